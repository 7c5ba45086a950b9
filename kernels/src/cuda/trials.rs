//! Trials of the instructions that have wrappers in `instructions.cu`: a kernel for each, operands, and results by plain arithmetic.
//!
//! Kernels may rely on an instruction that did right here. The stand-in's models are tried in the same way.

use super::kernel::WARP;
use super::written::{Definitions, Written, texts};
use crate::scalar::Element;

/// A trial of an instruction.
pub struct Trial {
    /// The instruction.
    pub what: &'static str,
    /// Its kernel, for one block. Its arguments are the operands, the result in f32, and a number that is not read.
    pub work: Written,
    /// The bytes of each operand.
    pub operands: Vec<Vec<u8>>,
    /// The result.
    pub right: Vec<f32>,
    /// The largest relative error that is right; 0 for most.
    pub bound: f64,
}

/// The relative error of `ex2.approx.ftz.f32` (PTX ISA, "Floating Point Instructions: ex2").
pub const EXP2_ERROR: f64 = 1.0 / (1 << 22) as f64;

/// All trials.
pub fn all() -> Vec<Trial> {
    let formats = [("bf16", Element::Bf16), ("f16", Element::F16)];
    let mut trials = vec![
        ldmatrix("ldmatrix_x4", 4, false),
        ldmatrix("ldmatrix_x4_trans", 4, true),
        ldmatrix("ldmatrix_x2", 2, false),
        ldmatrix("ldmatrix_x2_trans", 2, true),
    ];
    trials.push(cp_async());
    trials.extend(formats.into_iter().flat_map(|(name, element)| [mma(name, element), pack(name, element)]));
    trials.push(exp2());
    trials
}

/// The kernel of a name, in a text with names for an instruction on matrices and for those of an element type.
fn kernel(kernel: &'static str, ldmatrix: &str, matrices: usize, element: Element) -> Written {
    let suffix = if element == Element::F16 { "f16" } else { "bf16" };
    let define = Definitions::new().tensor("X", element).name("LDMATRIX", ldmatrix).size("MATRICES", matrices);
    let define = define.name("MULTIPLY", &format!("mma_{suffix}")).name("PACK", &format!("pack_{suffix}"));
    Written { threads: WARP, ..define.kernel(texts::TRIALS, kernel, 1) }
}

/// Bits without order.
fn words(n: usize) -> Vec<u16> {
    (0..n as u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 16) as u16).collect()
}

fn bytes<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.flatten().collect()
}

fn ldmatrix(name: &'static str, matrices: usize, transposed: bool) -> Trial {
    let rows = words(8 * WARP);
    let right = (0..WARP * matrices * 2).map(|i| {
        let (lane, matrix, half) = (i / 2 / matrices, i / 2 % matrices, i % 2);
        let (outer, inner) = (lane / 4, lane % 4 * 2 + half);
        let (row, column) = if transposed { (inner, outer) } else { (outer, inner) };
        f32::from(rows[((8 * matrix + row) ^ 5) * 8 + column])
    });
    Trial {
        what: name,
        work: kernel("try_ldmatrix", name, matrices, Element::Bf16),
        right: right.collect(),
        operands: vec![bytes(rows.iter().map(|word| word.to_le_bytes()))],
        bound: 0.0,
    }
}

/// Integers from -8 to 8, whose products and sums are exact, and their bytes in an element type.
fn integers(n: usize, seed: usize, element: Element) -> (Vec<f32>, Vec<u8>) {
    let numbers: Vec<f32> = (0..n).map(|i| ((i * 7 + i * i / 3 + seed) % 17) as f32 - 8.0).collect();
    let bits = numbers.iter().map(|x| match element {
        Element::F16 => half::f16::from_f32(*x).to_bits(),
        _ => half::bf16::from_f32(*x).to_bits(),
    });
    let encoded = bytes(bits.map(u16::to_le_bytes));
    (numbers, encoded)
}

fn mma(name: &str, element: Element) -> Trial {
    let ((a, a_bytes), (b, b_bytes)) = (integers(16 * 16, 3, element), integers(16 * 8, 5, element));
    let held: Vec<f32> = (0..16 * 8).map(|i| (i * 1009 % 4001) as f32).collect();
    let sums = held.iter().enumerate().map(|(i, held)| {
        let product = (0..16).map(|k| a[i / 8 * 16 + k] * b[k * 8 + i % 8]).sum::<f32>();
        held + product
    });
    Trial {
        what: if name == "f16" { "mma_f16" } else { "mma_bf16" },
        work: kernel("try_mma", "ldmatrix_x4", 4, element),
        right: sums.collect(),
        operands: vec![a_bytes, b_bytes, bytes(held.iter().map(|x| x.to_le_bytes()))],
        bound: 0.0,
    }
}

fn cp_async() -> Trial {
    let given = words(2 * WARP * 8);
    let right = (0..WARP).flat_map(|lane| {
        let own = WARP - 1 - lane;
        let other = own ^ 3;
        let [first, second] = [own, other].map(|lane| if lane.is_multiple_of(5) { 0.0 } else { 1.0 });
        let of_other = 8 * other;
        let of_second = 8 * (WARP + other);
        [(first, of_other + 2), (first, of_other + 3), (second, of_second + 6), (second, of_second + 7)]
            .map(|(factor, at)| factor * f32::from(given[at]))
    });
    Trial {
        what: "cp_async",
        work: kernel("try_cp_async", "ldmatrix_x4", 4, Element::Bf16),
        right: right.collect(),
        operands: vec![bytes(given.iter().map(|word| word.to_le_bytes()))],
        bound: 0.0,
    }
}

/// Numbers of all sizes, among them halves of the last place, and such as are too large or too small.
fn pack(name: &str, element: Element) -> Trial {
    let edges = [0.0, -0.0, 1.003_906_2, 1.011_718_8, 1.000_488_3, 1.001_464_8, 65_504.0, 65_520.0, 1e-7, 3e38, 1e-40];
    let scaled = (edges.len()..2 * WARP).map(|i| (i as f32 - 20.3) * 1.37f32.powi(i as i32 % 41 - 20));
    let numbers: Vec<f32> = edges.into_iter().chain(scaled).collect();
    Trial {
        what: if name == "f16" { "pack_f16" } else { "pack_bf16" },
        work: kernel("try_pack", "ldmatrix_x4", 4, element),
        right: numbers.iter().map(|x| element.nearest(*x)).collect(),
        operands: vec![bytes(numbers.iter().map(|x| x.to_le_bytes()))],
        bound: 0.0,
    }
}

fn exp2() -> Trial {
    let edges = [0.0, 1.0, -1.0, f32::NEG_INFINITY, 127.0, -126.0, -140.0];
    let others = (edges.len()..WARP).map(|lane| lane as f32 * 0.731 - 20.0);
    let numbers: Vec<f32> = edges.into_iter().chain(others).collect();
    Trial {
        what: "exp2_approx",
        work: kernel("try_exp2", "ldmatrix_x4", 4, Element::Bf16),
        right: numbers.iter().map(|x| if *x < -126.0 { 0.0 } else { x.exp2() }).collect(),
        operands: vec![bytes(numbers.iter().map(|x| x.to_le_bytes()))],
        bound: EXP2_ERROR,
    }
}

impl Trial {
    /// The largest relative error of a result.
    pub fn error(&self, got: &[f32]) -> f64 {
        let errors = got.iter().zip(&self.right).map(|(got, right)| {
            if got == right { 0.0 } else { f64::from((got - right).abs()) / f64::from(right.abs()) }
        });
        errors.fold(0.0, |worst, error| if error.is_nan() { f64::INFINITY } else { error.max(worst) })
    }
}
