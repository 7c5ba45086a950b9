//! Attention beside the matrix product it is made of, and element-wise kernels beside memory.
//!
//! Throughput of products is in floating-point operations per second (criterion's "elem/s"), causal attention counted
//! by half and backward as 2.5 forwards; that of the others in bytes read and written per second.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::attention::{Attention, Dropout, Gradients, Inputs, Saved};
use meshwright_kernels::cpu::dropout::{Part, dropout, normal};
use meshwright_kernels::cpu::einsum::Einsum;
use meshwright_kernels::cpu::elementwise::{Binary, Unary, binary, unary};
use meshwright_kernels::cpu::norm::{rms_norm, rms_norm_dx};
use meshwright_kernels::cpu::optimizer::{AdamW, adamw, sum_squares};
use meshwright_kernels::cpu::rope::{Heads, rope};
use meshwright_kernels::cpu::shape::{View, copy_strided};
use meshwright_kernels::cpu::softmax::softmax;

const PAR: Par = Par(1);

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

fn matmul(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matmul");
    // A layer forward, the gradient by its input, the gradient by its weight.
    for (name, a, b) in [("forward", "mk", "kn"), ("input", "mk", "nk"), ("weight", "km", "kn")] {
        for n in [128, 512, 1024] {
            let letters = [a, b, "mn"].map(|letters| letters.chars().collect::<Vec<_>>());
            let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &[n, n], &[n, n]).expect("a matrix product");
            let (a, b, mut out, mut scratch) = (normals(n * n), normals(n * n), vec![0.0; n * n], vec![]);
            group.throughput(Throughput::Elements(plan.flops()));
            group.bench_function(format!("{name} {n}"), |bench| {
                bench.iter(|| plan.run(black_box(&a), black_box(&b), &mut out, false, PAR, &mut scratch));
            });
        }
    }
}

fn attention(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention");
    let sizes = [(1024, 64, true), (1024, 64, false), (1024, 128, true), (4096, 64, true)];
    let cases = sizes.into_iter().map(|size| (size, 0.0)).chain([((1024, 64, true), 0.1)]);
    for ((s, d, causal), p) in cases {
        let global_dims = [1, s as u64, 2, 2, s as u64];
        let dropout = (p > 0.0).then_some(Dropout { p, key: [1, 2], origin: [0; 5], global_dims });
        let a = Attention { b: 1, s, t: s, g: 2, r: 2, d, c: d, scale: 0.125, causal, dropout };
        let [q, out, dout] = [(); 3].map(|()| normals(s * 4 * d));
        let [k, v] = [(); 2].map(|()| normals(s * 2 * d));
        let (pos, seg): (Vec<i32>, _) = ((0..s as i32).collect(), vec![0; s]);
        let x = Inputs { q: &q, k: &k, v: &v, qpos: &pos, kpos: &pos, qseg: &seg, kseg: &seg };
        let (mut out, mut lse, mut scratch) = (out, vec![0.0; s * 4], vec![]);
        let flops = a.flops() / if causal { 2 } else { 1 };
        let name = format!("s={s} d={d}{}", if causal { " causal" } else { "" });
        let name = if p > 0.0 { format!("{name} dropout") } else { name };
        group.throughput(Throughput::Elements(flops));
        group.bench_function(format!("forward {name}"), |bench| {
            bench.iter(|| a.forward(black_box(&x), &mut out, &mut lse, PAR, &mut scratch));
        });
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0.0; x.len()]);
        let saved = Saved { out: &out, lse: &lse, dout: &dout };
        group.throughput(Throughput::Elements(flops * 5 / 2));
        group.bench_function(format!("backward {name}"), |bench| {
            bench.iter(|| {
                let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
                a.backward(black_box(&x), &saved, gradients, PAR, &mut scratch);
            });
        });
    }
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
        bench("rope", 2, &mut |out| rope(&x, Heads { heads: 8, d: 128 }, &pos, &frequencies, false, out, PAR));
        bench("transpose", 2, &mut |out| {
            let (from, to) = (View { offset: 0, strides: &[1, cols] }, View { offset: 0, strides: &[rows, 1] });
            copy_strided(&x, from, out, to, &[cols, rows]);
        });
        bench("dropout", 2, &mut |out| {
            let part = Part { dims: &[rows, cols], origin: &[0, 0], global_dims: &[rows as u64, cols as u64] };
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
            black_box(sum_squares(black_box(&x)));
        });
    }
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = matmul, attention, memory
}
criterion_main!(kernels);
