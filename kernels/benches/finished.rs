//! Work on the elements of a product, apart from it and as they are completed: the time that it adds to the product, in nanoseconds
//! an element and thread. All take turns, and the fastest of many rounds counts. Tensors come from main memory, since the rounds go
//! through several sets of them.

use std::time::Instant;

use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cpu::einsum::Einsum;
use meshwright_kernels::cpu::elementwise::{Binary, Unary, binary, unary};
use meshwright_kernels::cpu::finished::{Finish, NextRun, RUN};
use meshwright_kernels::cpu::{Par, prefetch};

const ROUNDS: usize = 200;
const SETS: usize = 6;
/// Rows, columns and terms: a layer of tiny-llama on 2048 tokens, and one of the 110M model.
const SIZES: [[usize; 3]; 2] = [[2048, 768, 256], [2048, 2048, 768]];

/// Statements that follow a product.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// `out = x + product`: one tensor read, one written.
    Add,
    /// `out = silu_grad(x, product)`
    SiluGrad,
    /// The backward of a gated unit, as `compile` groups it: two tensors read, two written.
    Gate,
}

/// Tensors of a round: two that are read, two that are written.
struct Tensors<'a> {
    columns: usize,
    work: Work,
    read: [&'a [f32]; 2],
    write: [*mut f32; 2],
    /// Asks for the next run's elements.
    asks: bool,
}

// SAFETY: each element is written once.
unsafe impl Sync for Tensors<'_> {}

impl Finish for Tensors<'_> {
    fn finish(&self, [row, column]: [usize; 2], run: &[f32], next: Option<NextRun>) {
        self.ask(next);
        let (at, len) = (row * self.columns + column, run.len());
        let [x, y] = self.read.map(|read| &read[at..][..len]);
        // SAFETY: the tensors have all elements of the product.
        let [out, other] = self.write.map(|to| unsafe { std::slice::from_raw_parts_mut(to.add(at), len) });
        let mut lane = [0.0; RUN];
        match self.work {
            Work::Add => binary(Binary::Add, x, run, out, Par(1)),
            Work::SiluGrad => binary(Binary::SiluGrad, x, run, out, Par(1)),
            Work::Gate => {
                unary(Unary::Silu, x, &mut lane[..len], Par(1));
                binary(Binary::Mul, run, &lane[..len], out, Par(1));
                binary(Binary::Mul, run, y, &mut lane[..len], Par(1));
                binary(Binary::SiluGrad, x, &lane[..len], other, Par(1));
            }
        }
    }
}

impl Tensors<'_> {
    /// Asks for the elements of a run.
    fn ask(&self, run: Option<NextRun>) {
        let Some(NextRun { at: [row, column], len }) = run.filter(|_| self.asks) else { return };
        let (at, both) = (row * self.columns + column, if let Work::Gate = self.work { 2 } else { 1 });
        self.read[..both].iter().for_each(|read| prefetch(read[at..].as_ptr().cast(), 4 * len));
        self.write[..both].iter().for_each(|to| prefetch(to.wrapping_add(at).cast(), 4 * len));
    }
}

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

fn main() {
    for size in SIZES {
        for work in [Work::Add, Work::SiluGrad, Work::Gate] {
            for threads in [1, 2] {
                let [product, apart, completed, left, asked] = fastest(size, work, threads);
                let added = [apart, completed, left, asked].map(|time| time - product);
                println!(
                    "{size:?} {work:?}, {threads} threads: product {product:.2}, apart {:+.2}, as completed {:+.2}, and left {:+.2}, \
                     asked for {:+.2}",
                    added[0], added[1], added[2], added[3]
                );
            }
        }
    }
}

/// Nanoseconds of the product alone, with work apart, with work as elements are completed, with the product left too, and with work as
/// elements are completed that asks for the next ones.
fn fastest([m, n, k]: [usize; 3], work: Work, threads: usize) -> [f64; 5] {
    let letters = [['m', 'k'], ['k', 'n'], ['m', 'n']];
    let einsum = Einsum::new(&letters[0], &letters[1], &letters[2], &[m, k], &[k, n]).expect("a product");
    let (a, b) = (normals(m * k), normals(k * n));
    let tensors = || [normals(m * n), normals(m * n), vec![0.0; m * n], vec![0.0; m * n], vec![0.0; m * n]];
    let mut sets: Vec<_> = (0..SETS).map(|_| tensors()).collect();
    let (mut scratch, mut whole) = (Vec::new(), Vec::new());
    let mut best = [f64::INFINITY; 5];
    for round in 0..ROUNDS {
        for (kind, best) in best.iter_mut().enumerate() {
            let [x, y, out, other, product] = &mut sets[(round + kind) % SETS];
            let write = [out.as_mut_ptr(), other.as_mut_ptr()];
            let tensors = Tensors { columns: n, work, read: [x, y], write, asks: kind == 4 };
            let start = Instant::now();
            if kind < 2 {
                einsum.run(&a[..], &b[..], product, false, Par(threads), &mut scratch);
            }
            if kind == 1 {
                let product = &product[..];
                Par(threads).ranges(m, n, (&mut [], 0), &|rows, _| {
                    rows.for_each(|row| {
                        let line = product[row * n..][..n].chunks(RUN).enumerate();
                        line.for_each(|(at, run)| tensors.finish([row, at * RUN], run, None));
                    });
                });
            } else if kind > 1 {
                let left = (kind == 3).then_some(&mut product[..]);
                einsum.run_finished((&a[..], &b[..]), (left, n), Par(threads), [&mut scratch, &mut whole], &tensors);
            }
            *best = best.min(start.elapsed().as_secs_f64() * 1e9 * threads as f64 / (m * n) as f64);
        }
    }
    best
}
