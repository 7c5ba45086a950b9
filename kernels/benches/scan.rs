//! Scans and convolutions of published layers: seconds of the fastest of some rounds, forward and backward. The arguments are the name of a
//! case, or `all`, and the number of threads, else one. `benches/scans.py` runs this beside PyTorch.

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cpu::scan::conv::{Conv, Sequences};
use meshwright_kernels::cpu::scan::{Gradients, Inputs, Recurrence, Scan, Slopes};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 7;

/// Tokens of a sequence.
const TOKENS: usize = 1024;

/// Scans as layers have them; the names are those of `benches/scans.py`.
const SCANS: [(&str, Scan); 4] = [
    // Half of the heads of Qwen3-Next 80B.
    ("delta", Scan { g: 8, r: 2, ..PLAIN }),
    // Half of those of Kimi Linear 48B.
    ("delta-by-key", Scan { by_key: true, g: 16, r: 1, ..PLAIN }),
    // Two of the groups of Nemotron-H 56B.
    ("ssd", Scan { kind: Recurrence::Linear, g: 2, r: 32, k: 256, c: 64, chunk: 128, ..PLAIN }),
    // An eighth of the channels of Falcon-Mamba 7B.
    ("selective", Scan { kind: Recurrence::Selective, g: 1, r: 1024, k: 16, c: 1, ..PLAIN }),
];

const PLAIN: Scan = Scan {
    kind: Recurrence::Delta,
    by_key: false,
    b: 1,
    s: TOKENS,
    g: 1,
    r: 1,
    k: 128,
    c: 128,
    scale: 0.088_388_35,
    chunk: 64,
};

fn main() {
    // cargo passes `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let wanted = arguments.next().unwrap_or_else(|| "all".to_string());
    let par = Par(arguments.next().and_then(|threads| threads.parse().ok()).unwrap_or(1));
    for (name, scan) in SCANS.into_iter().filter(|(name, _)| wanted == "all" || *name == wanted) {
        measure(name, &scan, par);
    }
    if wanted == "all" || wanted == "conv" {
        measure_conv(par);
    }
}

fn normals(n: usize, factor: f32) -> Vec<f32> {
    (0..n as u64).map(|i| factor * normal([1, 2], i)).collect()
}

/// Seconds of the fastest round.
fn fastest(mut call: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        call();
        start.elapsed().as_secs_f64()
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn print(name: &str, forward: f64, backward: f64) {
    println!("{name:16} forward {forward:.5} backward {backward:.5}");
}

fn measure(name: &str, scan: &Scan, par: Par) {
    let Scan { s, g, r, k, c, .. } = *scan;
    let (keys, heads) = (s * g * k, s * g * r);
    let width = if scan.by_key { k } else { 1 };
    let further = match scan.kind {
        Recurrence::Linear => 0,
        Recurrence::Delta => heads,
        Recurrence::Selective => g * r * k,
    };
    // Keys of the length 1, and decays and betas as trained layers have them.
    let [q, key] = [(); 2].map(|()| normals(keys, (k as f32).sqrt().recip()));
    let (v, dout) = (normals(heads * c, 1.0), normals(heads * c, 1.0));
    let decay: Vec<f32> = normals(heads * width, 0.1).into_iter().map(|x| -x.abs()).collect();
    let further: Vec<f32> = normals(further, 0.5).into_iter().map(|x| x.abs().min(1.0)).collect();
    let pos: Vec<i32> = (0..s as i32).collect();
    let x = Inputs { q: &q, k: &key, v: &v, decay: &decay, further: &further, pos: &pos, start: &[] };
    let (mut out, mut scratch) = (vec![0.0; v.len()], vec![]);
    let forward = fastest(|| scan.forward(black_box(&x), &mut out, par, &mut scratch));
    let [mut dq, mut dk, mut dv, mut ddecay, mut dfurther] =
        [&q, &key, &v, &decay, &further].map(|x| vec![0.0; x.len()]);
    let by = Slopes { out: &dout, end: &[] };
    let backward = fastest(|| {
        let gradients = Gradients { q: &mut dq, k: &mut dk, v: &mut dv, decay: &mut ddecay, further: &mut dfurther };
        scan.backward(black_box(&x), &by, gradients, par, &mut scratch);
    });
    print(name, forward, backward);
}

/// The convolution of queries, keys and values in half of Qwen3-Next's heads.
fn measure_conv(par: Par) {
    let conv = Conv { s: TOKENS, channels: 4096, taps: 4 };
    let (x, dy, w) = (normals(TOKENS * 4096, 1.0), normals(TOKENS * 4096, 1.0), normals(4096 * 4, 0.5));
    let pos: Vec<i32> = (0..TOKENS as i32).collect();
    let rows = Sequences { x: &x, start: &[], pos: &pos };
    let (mut out, mut dw, mut scratch) = (vec![0.0; x.len()], vec![0.0; w.len()], vec![]);
    let forward = fastest(|| conv.forward(black_box(&rows), &w, &mut out, par, &mut scratch));
    let backward = fastest(|| {
        conv.by_x(&Slopes { out: &dy, end: &[] }, &w, &pos, &mut out, par, &mut scratch);
        conv.by_w(black_box(&rows), &dy, &mut dw, par);
    });
    print("conv", forward, backward);
}
