//! Products that share their left operand, one after another and as one product of all their weights side by side: the most that
//! one sweep over the left operand could gain.
//!
//! Both take turns, and of each the fastest of many short rounds counts.

use std::hint::black_box;
use std::time::Instant;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cpu::einsum::Einsum;

const ROUNDS: usize = 200;

fn main() {
    // Tokens, width, and the columns of each weight: a micro-batch of `tiny-llama` and one of a Llama of 110M parameters.
    let layers: [(&str, [usize; 2], &[usize]); 4] = [
        ("tiny-llama q, k, v", [2048, 256], &[256, 128, 128]),
        ("tiny-llama gate, up", [2048, 256], &[768, 768]),
        ("llama-110m q, k, v", [512, 768], &[768, 768, 768]),
        ("llama-110m gate, up", [512, 768], &[2048, 2048]),
    ];
    for (name, [tokens, width], columns) in layers {
        for threads in [1, 2] {
            let x = normals(tokens * width);
            let mut apart: Vec<Product> = columns.iter().map(|&n| Product::new([tokens, n, width])).collect();
            let mut joined = Product::new([tokens, columns.iter().sum(), width]);
            let [apart, joined] =
                fastest([&mut || apart.iter_mut().for_each(|product| product.run(&x, threads)), &mut || {
                    joined.run(&x, threads)
                }]);
            let gain = 100.0 * (1.0 - joined / apart);
            println!("{name:20} {threads} threads   apart {apart:8.1} us   joined {joined:8.1} us   gain {gain:5.1} %");
        }
    }
}

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

/// A product of activations and a weight.
struct Product {
    plan: Einsum,
    weight: Vec<f32>,
    out: Vec<f32>,
    scratch: Vec<f32>,
}

impl Product {
    fn new([m, n, k]: [usize; 3]) -> Product {
        let plan = Einsum::new(&['m', 'k'], &['k', 'n'], &['m', 'n'], &[m, k], &[k, n]).expect("a product");
        Product { plan, weight: normals(k * n), out: vec![0.0; m * n], scratch: vec![] }
    }

    fn run(&mut self, x: &[f32], threads: usize) {
        let Product { plan, weight, out, scratch } = self;
        plan.run(black_box(x), black_box(&weight[..]), out, false, Par(threads), scratch);
    }
}

/// Microseconds of each, in their fastest rounds.
fn fastest(mut calls: [&mut dyn FnMut(); 2]) -> [f64; 2] {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (best, call) in best.iter_mut().zip(&mut calls) {
            let start = Instant::now();
            call();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best.map(|seconds| 1e6 * seconds)
}
