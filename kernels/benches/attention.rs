//! Attention on one thread, in floating-point operations per second: the fastest of many short rounds, since there are quiet
//! moments on a busy machine too. An argument chooses the cases whose names contain it.

use std::hint::black_box;
use std::time::Instant;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::attention::{Attention, Dropout, Gradients, Inputs, Saved};
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cpu::narrow::{Floats, Narrow, round};

const ROUNDS: usize = 200;
/// Operations of a round of calls, about half a millisecond.
const ROUND: f64 = 1e8;

fn main() {
    // cargo passes `--bench`.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    for (s, d, p) in
        [(128, 32, 0.0), (512, 64, 0.0), (1024, 64, 0.0), (1024, 128, 0.0), (4096, 64, 0.0), (1024, 64, 0.1)]
    {
        for format in [None, Some(Narrow::Bf16)] {
            let (dropout, bf16) = (if p > 0.0 { " dropout" } else { "" }, if format.is_some() { " bf16" } else { "" });
            let name = format!("attention s={s} d={d} causal{dropout}{bf16}");
            if name.contains(&wanted) {
                attention(&name, s, d, p, format);
            }
        }
    }
}

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

/// Numbers in a format, and without one in f32.
struct Stored {
    wide: Vec<f32>,
    narrow: Option<(Narrow, Vec<u8>)>,
}

impl Stored {
    fn new(wide: Vec<f32>, format: Option<Narrow>) -> Stored {
        let narrow = format.map(|format| {
            let mut bytes = vec![0; wide.len() * format.bytes()];
            round(format, &wide, &mut bytes, Par(1));
            (format, bytes)
        });
        Stored { wide, narrow }
    }

    fn floats(&self) -> Floats<'_> {
        match &self.narrow {
            Some((format, bytes)) => Floats::Narrow(*format, bytes),
            None => (&self.wide).into(),
        }
    }
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
fn attention(name: &str, s: usize, d: usize, p: f32, format: Option<Narrow>) {
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
    let [q, dout] = [(); 2].map(|()| Stored::new(normals(s * 4 * d), format));
    let [k, v] = [(); 2].map(|()| Stored::new(normals(s * 2 * d), format));
    let mut out = normals(s * 4 * d);
    let (pos, seg): (Vec<i32>, _) = ((0..s as i32).collect(), vec![0; s]);
    let x = Inputs {
        q: q.floats(),
        k: k.floats(),
        v: v.floats(),
        qpos: &pos,
        kpos: &pos,
        qseg: &seg,
        kseg: &seg,
        sink: None,
    };
    let (mut lse, mut scratch) = (vec![0.0; s * 4], vec![]);
    let flops = a.flops() as f64 / 2.0;
    let speed = fastest(flops, || a.forward(black_box(&x), &mut out, &mut lse, Par(1), &mut scratch));
    println!("{:48} {speed:6.1}", format!("{name}, forward"));
    let out = Stored::new(out, format);
    let saved = Saved { out: out.floats(), lse: &lse, dout: dout.floats() };
    let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0.0; x.wide.len()]);
    let backward = || {
        let gradients = Gradients { dq: (&mut dq).into(), dk: (&mut dk).into(), dv: (&mut dv).into() };
        a.backward(black_box(&x), &saved, gradients, Par(1), &mut scratch);
    };
    let speed = fastest(2.5 * flops, backward);
    println!("{:48} {speed:6.1}", format!("{name}, backward"));
}
