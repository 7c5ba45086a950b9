//! Matrix products in the shapes of small models' layers.

use super::{Product, seconds};
use kernels::cpu::Par;
use kernels::cpu::einsum::Einsum;

/// Rows, columns and depth. Forward and input gradients have the tokens of a micro-batch as rows, weight gradients as depth;
/// widths are those of tiny-llama, whole and cut over four ranks.
const SHAPES: [[usize; 3]; 12] = [
    [128, 256, 256],
    [128, 768, 256],
    [128, 256, 768],
    [128, 64, 256],
    [512, 256, 256],
    [512, 768, 256],
    [512, 256, 768],
    [512, 64, 256],
    [512, 256, 64],
    [256, 768, 128],
    [256, 768, 512],
    [256, 64, 512],
];

/// Rows, columns and depth of a product that is over at once.
const LEAST: [usize; 3] = [1, 1, 1];

/// All shapes.
pub(super) fn all(cores: usize) -> Result<Vec<Product>, String> {
    SHAPES.iter().map(|&shape| product(cores, shape)).collect()
}

/// Seconds of a product of nothing but its start.
pub(super) fn least(cores: usize) -> Result<f64, String> {
    Ok(product(cores, LEAST)?.seconds)
}

fn product(cores: usize, [m, n, k]: [usize; 3]) -> Result<Product, String> {
    let letters = ["mk", "kn", "mn"].map(|letters| letters.chars().collect::<Vec<_>>());
    let plan = &Einsum::new(&letters[0], &letters[1], &letters[2], &[m, k], &[k, n])?;
    let work = || {
        let (a, b) = (vec![1.0; m * k], vec![0.5; k * n]);
        let (mut out, mut scratch) = (vec![0.0; m * n], Vec::new());
        move || plan.run(&a, &b, &mut out, false, Par(1), &mut scratch)
    };
    Ok(Product { m, n, k, seconds: seconds(cores, work) })
}
