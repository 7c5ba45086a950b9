//! Measurement of matrix products in the shapes of small models' layers.

use super::{Product, seconds, turns};
use device::timed::{TimedOperand, width};
use kernels::cpu::Par;
use kernels::cpu::einsum::Einsum;
use kernels::cpu::narrow::{FloatsMut, Narrow, round};

/// Rows, columns and depth of a product.
#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

const fn shape(m: usize, n: usize, k: usize) -> Shape {
    Shape { m, n, k }
}

/// Shapes of forwards and input gradients: tokens of a micro-batch, and widths of tiny-llama, whole and cut over four ranks.
const SHAPES: [Shape; 9] = [
    shape(128, 256, 256),
    shape(128, 768, 256),
    shape(128, 256, 768),
    shape(128, 64, 256),
    shape(512, 256, 256),
    shape(512, 768, 256),
    shape(512, 256, 768),
    shape(512, 64, 256),
    shape(512, 256, 64),
];

/// The same of weight gradients, which have the tokens as depth, and are added to those of earlier micro-batches.
const ADDED: [Shape; 3] = [shape(256, 768, 128), shape(256, 768, 512), shape(256, 64, 512)];

/// A product that is over at once.
const LEAST: Shape = shape(1, 1, 1);

/// Sets of operands are no more than these, however small they are.
const MOST_TURNS: usize = 256;

/// All shapes, with operands of a format.
pub(super) fn all(cores: usize, format: Option<Narrow>) -> Result<Vec<Product>, String> {
    let shapes = SHAPES.iter().map(|&shape| (shape, false)).chain(ADDED.iter().map(|&shape| (shape, true)));
    shapes.map(|(shape, adds)| product(cores, shape, format, adds)).collect()
}

/// Seconds of a product of nothing but its start.
pub(super) fn least(cores: usize) -> Result<f64, String> {
    Ok(product(cores, LEAST, None, false)?.seconds)
}

/// Times a matmul of one shape. With `adds` it is added to f32; otherwise the result is rounded to the format of the operands.
fn product(cores: usize, shape: Shape, format: Option<Narrow>, adds: bool) -> Result<Product, String> {
    let Shape { m, n, k } = shape;
    let letters = ["mk", "kn", "mn"].map(|letters| letters.chars().collect::<Vec<_>>());
    let plan = &Einsum::new(&letters[0], &letters[1], &letters[2], &[m, k], &[k, n])?;
    let result = format.filter(|_| !adds);
    let bytes = (m * k + k * n) * width(format) + m * n * width(result);
    let sizes = [(format, m * k), (format, k * n), (result, m * n)];
    let seconds = seconds(cores, || {
        let operands = (0..turns(bytes).min(MOST_TURNS))
            .map(|_| sizes.map(|(format, elements)| TimedOperand::new(format, 0.5, elements)));
        let mut all: Vec<[TimedOperand; 3]> = operands.collect();
        let (mut next, mut wide, mut scratch) = (0, vec![0.0; m * n], Vec::new());
        move || {
            next = (next + 1) % all.len();
            let [a, b, out] = &mut all[next];
            match out.write() {
                FloatsMut::Wide(out) => plan.run(a.read(), b.read(), out, adds, Par(1), &mut scratch),
                FloatsMut::Narrow(format, out) if plan.can_round() => {
                    plan.run_rounded(a.read(), b.read(), (format, out), Par(1), &mut scratch);
                }
                FloatsMut::Narrow(format, out) => {
                    plan.run(a.read(), b.read(), &mut wide, false, Par(1), &mut scratch);
                    round(format, &wide, out, Par(1));
                }
            }
        }
    })?;
    Ok(Product { m, n, k, seconds })
}
