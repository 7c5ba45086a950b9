//! Kernels that memory bounds, on one thread.
//!
//! Throughput is in bytes read and written per second.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::{TensorPart, dropout, normal};
use meshwright_kernels::cpu::elementwise::{Binary, Unary, binary, unary};
use meshwright_kernels::cpu::norm::{rms_norm, rms_norm_dx};
use meshwright_kernels::cpu::optimizer::{AdamW, adamw, sum_squares};
use meshwright_kernels::cpu::rope::{Heads, Turn, rope};
use meshwright_kernels::cpu::shape::{View, copy_strided};
use meshwright_kernels::cpu::softmax::softmax;

const PAR: Par = Par(1);

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

fn memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    for (place, rows) in [("L2", 64), ("main", 16384)] {
        let cols = 1024;
        let n = rows * cols;
        let (x, y, gamma) = (normals(n), normals(n), normals(cols));
        let (mut out, mut rstd) = (vec![0.0; n], vec![1.0; rows]);
        let pos: Vec<i32> = (0..rows as i32).collect();
        let frequencies: Vec<f64> = (0..64).map(|i| 1e4f64.powf(-f64::from(i) / 64.0)).collect();
        let mut bench = |name: &str, passes: usize, f: &mut dyn FnMut(&mut [f32])| {
            group.throughput(Throughput::Bytes((4 * passes * n) as u64));
            group.bench_function(format!("{name} {place}"), |bench| bench.iter(|| f(black_box(&mut out))));
        };
        bench("add", 3, &mut |out| binary(Binary::Add, &x, &y, out, PAR));
        bench("exp", 2, &mut |out| unary(Unary::Exp, &x, out, PAR));
        bench("silu", 2, &mut |out| unary(Unary::Silu, &x, out, PAR));
        bench("gelu", 2, &mut |out| unary(Unary::Gelu, &x, out, PAR));
        bench("gelu_erf", 2, &mut |out| unary(Unary::GeluErf, &x, out, PAR));
        bench("log", 2, &mut |out| unary(Unary::Log, &x, out, PAR));
        bench("silu_grad", 3, &mut |out| binary(Binary::SiluGrad, &x, &y, out, PAR));
        bench("rms_norm", 2, &mut |out| rms_norm(&x, &gamma, 1e-5, out, &mut rstd, PAR));
        let rstd = vec![1.0; rows];
        bench("rms_norm_dx", 3, &mut |out| rms_norm_dx(&x, &gamma, &rstd, &y, out, PAR));
        bench("softmax", 2, &mut |out| softmax(&x, cols, out, PAR));
        let turn = Turn { frequencies: &frequencies, beyond: None, gain: 1.0, inverse: false };
        bench("rope", 2, &mut |out| rope(&x, Heads { heads: 8, d: 128 }, &pos, turn, out, PAR));
        bench("transpose", 2, &mut |out| {
            let (from, to) = (View { offset: 0, strides: &[1, cols] }, View { offset: 0, strides: &[rows, 1] });
            copy_strided(&x, from, out, to, &[cols, rows]);
        });
        bench("dropout", 2, &mut |out| {
            let global_dims = &[rows as u64, cols as u64];
            let part = TensorPart { dims: &[rows, cols], origin: &[0, 0], global_dims, skipped: 0 };
            dropout(&x, out, 0.1, [1, 2], part, PAR);
        });
        let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
        let settings = AdamW {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            scale: 1.0,
            bias1: 0.1,
            bias2: 0.05,
        };
        bench("adamw", 7, &mut |out| adamw(out, &y, &mut m, &mut v, &settings, PAR));
        bench("sum_squares", 1, &mut |_| {
            black_box(sum_squares(black_box(&x), PAR));
        });
    }
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = memory
}
criterion_main!(kernels);
