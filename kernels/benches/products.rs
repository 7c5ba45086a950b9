//! Matrix products on one thread next to the crate `gemm`, and products of 16-bit formats next to those of f32, in floating-point
//! operations per second.
//!
//! Products that are compared take turns, and of each the fastest of many short rounds counts. Other load of the machine falls on
//! both, and there are quiet moments on a busy one too. An argument chooses the cases whose names contain it.

use std::hint::black_box;
use std::time::Instant;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cpu::einsum::Einsum;
use meshwright_kernels::cpu::narrow::{Floats, Narrow, round, widen};

const ROUNDS: usize = 200;
/// Operations of a round of calls, about half a millisecond.
const ROUND: f64 = 1e8;

fn main() {
    // cargo passes `--bench`.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let squares = [64, 128, 512, 1024].map(|n| (n.to_string(), [n; 3]));
    // Weights of a Llama of width 256 (`tiny-llama`), on 2048 tokens.
    let weights = [("q", 256, 256), ("k", 256, 128), ("up", 256, 768), ("down", 768, 256), ("head", 256, 257)];
    let weights = weights.map(|(name, from, to)| (format!("llama {name}"), [2048, from, to]));
    for (name, layer) in squares.into_iter().chain(weights) {
        for kind in ["forward", "input", "weight"] {
            let name = format!("matmul {name}, {kind}");
            if name.contains(&wanted) {
                product(&name, kind, layer);
            }
        }
    }
    // Layers of a Llama of width 768, on 2048 tokens.
    for layer in [[2048, 768, 768], [2048, 768, 2048], [2048, 2048, 768]] {
        for kind in ["forward", "input", "weight"] {
            for (format, threads) in [(Narrow::Bf16, 1), (Narrow::Bf16, 2), (Narrow::F16, 1), (Narrow::F16, 2)] {
                let name = format!("{format:?} {} to {}, {kind}, {threads} threads", layer[1], layer[2]);
                if name.contains(&wanted) {
                    narrow(&name, kind, layer, (format, threads));
                }
            }
        }
    }
}

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

/// Operations per nanosecond of each, in their fastest rounds.
fn fastest<const N: usize>(flops: f64, mut calls: [&mut dyn FnMut(); N]) -> [f64; N] {
    let times = (ROUND / flops).ceil() as usize;
    let mut best = [f64::INFINITY; N];
    for _ in 0..ROUNDS {
        for (best, call) in best.iter_mut().zip(&mut calls) {
            let start = Instant::now();
            (0..times).for_each(|_| call());
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best.map(|seconds| flops * times as f64 / seconds / 1e9)
}

/// The operands and the size of the product of a layer of so many tokens and a weight of `from` x `to`: forward, or the
/// gradient by its input or by its weight.
fn layer(kind: &str, [tokens, from, to]: [usize; 3]) -> ([&'static str; 2], [usize; 3]) {
    match kind {
        "forward" => (["mk", "kn"], [tokens, to, from]),
        "input" => (["mk", "nk"], [tokens, from, to]),
        _ => (["km", "kn"], [from, to, tokens]),
    }
}

fn plan(operands: [&str; 2], [m, n, k]: [usize; 3]) -> Einsum {
    let letters = operands.map(|letters| letters.chars().collect::<Vec<_>>());
    let size = |letter: &char| [m, n, k]["mnk".find(*letter).expect("one of three")];
    let dims = letters.clone().map(|letters| letters.iter().map(size).collect::<Vec<_>>());
    Einsum::new(&letters[0], &letters[1], &['m', 'n'], &dims[0], &dims[1]).expect("a product")
}

fn product(name: &str, kind: &str, sizes: [usize; 3]) {
    let (operands, [m, n, k]) = layer(kind, sizes);
    let plan = plan(operands, [m, n, k]);
    let (a, b, mut scratch) = (normals(m * k), normals(k * n), vec![]);
    let [mut ours, mut theirs] = [(); 2].map(|()| vec![0.0; m * n]);
    let a_strides = if operands[0] == "mk" { [k, 1] } else { [1, m] };
    let b_strides = if operands[1] == "kn" { [n, 1] } else { [1, k] };
    let speeds = fastest(
        plan.flops() as f64,
        [&mut || plan.run(black_box(&a), black_box(&b), &mut ours, false, Par(1), &mut scratch), &mut || {
            crate_gemm([m, n, k], (black_box(&a), a_strides), (black_box(&b), b_strides), &mut theirs)
        }],
    );
    println!("{name:42} {:6.1}   crate gemm {:6.1}   ratio {:.2}", speeds[0], speeds[1], speeds[0] / speeds[1]);
}

/// A layer's product of narrow operands, that of their numbers in f32, and the former rounded to their format.
fn narrow(name: &str, kind: &str, sizes: [usize; 3], (format, threads): (Narrow, usize)) {
    let (operands, [m, n, k]) = layer(kind, sizes);
    let plan = plan(operands, [m, n, k]);
    let stored = [m * k, k * n].map(|count| {
        let (mut numbers, mut bytes) = (normals(count), Lines::new(format.bytes() * count));
        round(format, &numbers, bytes.get(), Par(1));
        widen(format, bytes.get(), &mut numbers, Par(1));
        (numbers, bytes)
    });
    let [mut rounded, mut out] = [Lines::new(format.bytes() * m * n), Lines::new(4 * m * n)];
    let mut sum = vec![0.0; m * n];
    // SAFETY: every pattern of bits is a number, and lines are aligned.
    let out = unsafe { out.get().align_to_mut::<f32>().1 };
    let [a, b] = stored.each_ref().map(|(numbers, _)| Floats::from(numbers));
    let [x, y] = stored.each_ref().map(|(_, bytes)| Floats::Narrow(format, bytes.all()));
    let (par, [mut first, mut second, mut third]) = (Par(threads), [const { vec![] }; 3]);
    let speeds = fastest(
        plan.flops() as f64,
        [
            &mut || plan.run(black_box(x), black_box(y), out, false, par, &mut first),
            &mut || plan.run(black_box(a), black_box(b), &mut sum, false, par, &mut second),
            &mut || plan.run_rounded(black_box(x), black_box(y), (format, rounded.get()), par, &mut third),
        ],
    );
    let [narrow, wide, rounded] = speeds;
    println!("{name:42} {narrow:7.1}   f32 {wide:7.1}   ratio {:.2}   rounded {rounded:7.1}", narrow / wide);
}

/// Bytes from the beginning of a cache line on, as tensors have them.
struct Lines(Vec<u8>, std::ops::Range<usize>);

impl Lines {
    fn new(len: usize) -> Lines {
        let bytes = vec![0; len + 64];
        let first = bytes.as_ptr().align_offset(64);
        Lines(bytes, first..first + len)
    }

    fn all(&self) -> &[u8] {
        &self.0[self.1.clone()]
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.0[self.1.clone()]
    }
}

/// `out = a b` by the crate `gemm`.
fn crate_gemm([m, n, k]: [usize; 3], a: (&[f32], [usize; 2]), b: (&[f32], [usize; 2]), out: &mut [f32]) {
    assert!(a.0.len() == m * k && b.0.len() == k * n && out.len() == m * n, "dense operands");
    let [[a_down, a_across], [b_down, b_across]] = [a.1, b.1].map(|strides| strides.map(|s| s as isize));
    let (a, b, to, down) = (a.0.as_ptr(), b.0.as_ptr(), out.as_mut_ptr(), n as isize);
    let alone = gemm::Parallelism::None;
    // SAFETY: all three are dense matrices of these sizes.
    unsafe {
        gemm::gemm(
            m, n, k, to, 1, down, false, a, a_across, a_down, b, b_across, b_down, 0.0, 1.0, false, false, false, alone,
        );
    }
}
