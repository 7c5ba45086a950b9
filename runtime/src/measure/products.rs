//! Measurement of matrix products in the shapes of small models' layers.

use super::{Product, seconds, turns};
use kernels::cpu::Par;
use kernels::cpu::einsum::Einsum;

/// Rows, columns and depth of forwards and input gradients: tokens of a micro-batch, and widths of tiny-llama, whole and cut
/// over four ranks.
const SHAPES: [[usize; 3]; 9] = [
    [128, 256, 256],
    [128, 768, 256],
    [128, 256, 768],
    [128, 64, 256],
    [512, 256, 256],
    [512, 768, 256],
    [512, 256, 768],
    [512, 64, 256],
    [512, 256, 64],
];

/// The same of weight gradients, which have the tokens as depth, and are added to those of earlier micro-batches.
const ADDED: [[usize; 3]; 3] = [[256, 768, 128], [256, 768, 512], [256, 64, 512]];

/// Rows, columns and depth of a product that is over at once.
const LEAST: [usize; 3] = [1, 1, 1];

/// Sets of operands are no more than these, however small they are.
const MOST_TURNS: usize = 256;

/// All shapes.
pub(super) fn all(cores: usize) -> Result<Vec<Product>, String> {
    let measure = |shapes: &'static [[usize; 3]], adds| shapes.iter().map(move |&shape| product(cores, shape, adds));
    measure(&SHAPES, false).chain(measure(&ADDED, true)).collect()
}

/// Seconds of a product of nothing but its start.
pub(super) fn least(cores: usize) -> Result<f64, String> {
    Ok(product(cores, LEAST, false)?.seconds)
}

/// Times a matmul of one shape; with `adds` it accumulates.
fn product(cores: usize, [m, n, k]: [usize; 3], adds: bool) -> Result<Product, String> {
    let letters = ["mk", "kn", "mn"].map(|letters| letters.chars().collect::<Vec<_>>());
    let plan = &Einsum::new(&letters[0], &letters[1], &letters[2], &[m, k], &[k, n])?;
    let work = || {
        let operands = || [m * k, k * n, m * n].map(|elements| vec![0.5; elements]);
        let mut all: Vec<[Vec<f32>; 3]> =
            (0..turns(m * k + k * n + m * n).min(MOST_TURNS)).map(|_| operands()).collect();
        let (mut next, mut scratch) = (0, Vec::new());
        move || {
            next = (next + 1) % all.len();
            let [a, b, out] = &mut all[next];
            plan.run(a, b, out, adds, Par(1), &mut scratch);
        }
    };
    Ok(Product { m, n, k, seconds: seconds(cores, work) })
}
