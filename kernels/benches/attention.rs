//! Attention on one thread, in floating-point operations per second: the fastest of many short rounds, since there are quiet
//! moments on a busy machine too. An argument chooses the cases whose names contain it.

use std::hint::black_box;
use std::time::Instant;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::attention::{Attention, Dropout, Gradients, Inputs, Saved};
use meshwright_kernels::cpu::dropout::normal;

const ROUNDS: usize = 200;
/// Operations of a round of calls, about half a millisecond.
const ROUND: f64 = 1e8;

fn main() {
    // cargo passes `--bench`.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    for (s, d, p) in [(128, 32, 0.0), (1024, 64, 0.0), (1024, 128, 0.0), (4096, 64, 0.0), (1024, 64, 0.1)] {
        let name = format!("attention s={s} d={d} causal{}", if p > 0.0 { " dropout" } else { "" });
        if name.contains(&wanted) {
            attention(&name, s, d, p);
        }
    }
}

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

/// Operations per nanosecond in the fastest round.
fn fastest(flops: f64, mut call: impl FnMut()) -> f64 {
    let times = (ROUND / flops).ceil() as usize;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..times).for_each(|_| call());
        best = best.min(start.elapsed().as_secs_f64());
    }
    flops * times as f64 / best / 1e9
}

/// Causal attention counts by half, and backward as 2.5 forwards.
fn attention(name: &str, s: usize, d: usize, p: f32) {
    let global_dims = [1, s as u64, 2, 2, s as u64];
    let dropout = (p > 0.0).then_some(Dropout { p, key: [1, 2], origin: [0; 5], global_dims });
    let a = Attention {
        b: 1,
        s,
        t: s,
        g: 2,
        r: 2,
        d,
        c: d,
        scale: 0.125,
        causal: true,
        window: None,
        chunk: None,
        softcap: None,
        dropout,
    };
    let [q, dout, mut out] = [(); 3].map(|()| normals(s * 4 * d));
    let [k, v] = [(); 2].map(|()| normals(s * 2 * d));
    let (pos, seg): (Vec<i32>, _) = ((0..s as i32).collect(), vec![0; s]);
    let x = Inputs {
        q: (&q).into(),
        k: (&k).into(),
        v: (&v).into(),
        qpos: &pos,
        kpos: &pos,
        qseg: &seg,
        kseg: &seg,
        sink: None,
    };
    let (mut lse, mut scratch) = (vec![0.0; s * 4], vec![]);
    let flops = a.flops() as f64 / 2.0;
    let speed = fastest(flops, || a.forward(black_box(&x), &mut out, &mut lse, Par(1), &mut scratch));
    println!("{:42} {speed:6.1}", format!("{name}, forward"));
    let saved = Saved { out: (&out).into(), lse: &lse, dout: (&dout).into() };
    let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0.0; x.len()]);
    let backward = || {
        let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
        a.backward(black_box(&x), &saved, gradients, Par(1), &mut scratch);
    };
    let speed = fastest(2.5 * flops, backward);
    println!("{:42} {speed:6.1}", format!("{name}, backward"));
}
