//! Work on the elements of a product, apart from it and as they are completed, on one thread: the time that it adds to the product,
//! in nanoseconds an element. All take turns, and the fastest of many rounds counts. Tensors come from main memory, since the
//! rounds go through several sets of them.

use std::time::Instant;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cpu::einsum::Einsum;
use meshwright_kernels::cpu::elementwise::{Binary, binary};
use meshwright_kernels::cpu::finished::{Finish, prefetch};

const ROUNDS: usize = 600;
const SETS: usize = 40;
/// Rows, columns and terms: a layer of tiny-llama on 128 tokens.
const SIZE: [usize; 3] = [128, 768, 256];

/// The gradient of a gate: `out = op(x, product)`, in part of a tensor from a row and a column on.
struct Work<'a> {
    op: Binary,
    x: &'a [f32],
    out: *mut f32,
    fetches: bool,
}

// SAFETY: each element is written once.
unsafe impl Sync for Work<'_> {}

impl Finish for Work<'_> {
    fn expect(&self, [row, column]: [usize; 2], len: usize) {
        let at = row * SIZE[1] + column;
        if self.fetches {
            // SAFETY: the tensors have all elements of the product.
            unsafe {
                prefetch(std::slice::from_raw_parts(self.x[at..].as_ptr().cast(), 4 * len));
                prefetch(std::slice::from_raw_parts(self.out.add(at).cast(), 4 * len));
            }
        }
    }

    fn finish(&self, [row, column]: [usize; 2], run: &[f32]) {
        let at = row * SIZE[1] + column;
        // SAFETY: as above.
        let out = unsafe { std::slice::from_raw_parts_mut(self.out.add(at), run.len()) };
        binary(self.op, &self.x[at..][..run.len()], run, out, Par(1));
    }
}

fn normals(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| normal([1, 2], i)).collect()
}

fn main() {
    for op in [Binary::Add, Binary::Mul, Binary::SiluGrad] {
        let [product, apart, completed, fetched] = fastest(op);
        let added = [apart, completed, fetched].map(|time| time - product);
        println!(
            "{op:?}: product {product:.2}, apart {:+.2}, as completed {:+.2}, and fetched {:+.2}",
            added[0], added[1], added[2]
        );
    }
}

/// Nanoseconds an element of the product alone, with work apart, with work as elements are completed, and with its operands fetched.
fn fastest(op: Binary) -> [f64; 4] {
    let [m, n, k] = SIZE;
    let letters = [['m', 'k'], ['k', 'n'], ['m', 'n']];
    let einsum = Einsum::new(&letters[0], &letters[1], &letters[2], &[m, k], &[k, n]).expect("a product");
    let (a, b) = (normals(m * k), normals(k * n));
    let tensors = || [normals(m * n), vec![0.0; m * n], vec![0.0; m * n]];
    let mut sets: Vec<_> = (0..SETS).map(|_| tensors()).collect();
    let (mut scratch, mut whole) = (Vec::new(), Vec::new());
    let mut best = [f64::INFINITY; 4];
    for round in 0..ROUNDS {
        for (kind, best) in best.iter_mut().enumerate() {
            let [x, out, product] = &mut sets[(round + kind) % SETS];
            let start = Instant::now();
            if kind < 2 {
                einsum.run(&a[..], &b[..], product, false, Par(1), &mut scratch);
            }
            if kind == 1 {
                binary(op, &x[..], &product[..], out, Par(1));
            }
            if kind > 1 {
                let work = Work { op, x, out: out.as_mut_ptr(), fetches: kind == 3 };
                einsum.run_finished((&a[..], &b[..]), (None, n), Par(1), [&mut scratch, &mut whole], &work);
            }
            *best = best.min(start.elapsed().as_secs_f64() * 1e9 / (m * n) as f64);
        }
    }
    best
}
