//! How far results of kernels that are written by hand may be from the processor's: most do its operations in its order, and have its bits.
//! Sums of `n` numbers in other orders differ by `2 n u` of the sum of their magnitudes (`u` = 2^-24), which the processor computes from
//! operands without signs.

use super::bounds::UNIT;
use device::backend::KernelSite;
use ir::ops::KernelOp;
use ir::types::{DType, PartialKind};

/// The numbers of a comparison.
pub(super) struct Compared<'a> {
    pub(super) site: &'a KernelSite<'a>,
    pub(super) operands: &'a [Vec<f32>],
    pub(super) right: &'a [Vec<f32>],
    /// The numbers that were in the results, if they were added.
    pub(super) held: Option<&'a [Vec<f32>]>,
    /// True if its products are those of tensor cores.
    pub(super) on_tensor_cores: bool,
}

impl Compared<'_> {
    /// How far each result may be off; `sizes` computes the first result of the magnitudes of some operands.
    ///
    /// # Errors
    /// The processor cannot run the op.
    pub(super) fn errors(
        &self,
        op: &KernelOp,
        sizes: impl Fn(&[usize]) -> Result<Vec<f32>, String>,
    ) -> Result<Vec<Vec<f32>>, String> {
        let of_sums = |terms: usize, sizes: Vec<f32>| -> Vec<Vec<f32>> {
            vec![sizes.into_iter().map(|size| 2.0 * (terms as f32 + 1.0) * UNIT * size).collect()]
        };
        let terms = |operand: usize| self.operands[operand].len() / self.right[0].len().max(1);
        let made = match op {
            // Each side rounds the sum in double precision once.
            KernelOp::SumSquares(_) => vec![self.right[0].iter().map(|x| 4.0 * UNIT * x.abs()).collect()],
            KernelOp::Einsum(_) => of_sums(terms(0), sizes(&[0])?),
            KernelOp::Reduce(op) if op.kind == PartialKind::Sum => of_sums(terms(0), sizes(&[0])?),
            KernelOp::CombineDw(_) => of_sums(self.site.operand(1)?.last().copied().unwrap_or(0), sizes(&[0, 1])?),
            KernelOp::Attention(op) => super::attention::Heads::new(self, &op.0)?.forward(),
            KernelOp::AttentionGrad(op) => super::attention::Heads::new(self, &op.0)?.backward(),
            _ => self.right.iter().map(|right| vec![0.0; right.len()]).collect(),
        };
        Ok(made.into_iter().enumerate().map(|(result, errors)| self.rounded(result, errors)).collect())
    }

    /// Numbers that are off may round to two neighbours.
    fn rounded(&self, result: usize, errors: Vec<f32>) -> Vec<f32> {
        let place = match self.site.results[result].dtype {
            DType::BF16 => 2f32.powi(-7),
            DType::F16 => 2f32.powi(-10),
            _ => 0.0,
        };
        let held = |i: usize| self.held.map_or(0.0, |held| held[result][i].abs());
        let rounded = |(i, error): (usize, f32)| {
            let size = self.right[result][i].abs() + held(i) + error;
            if error == 0.0 || size.is_infinite() { error } else { error + (place + 2.0 * UNIT) * size }
        };
        errors.into_iter().enumerate().map(rounded).collect()
    }
}
