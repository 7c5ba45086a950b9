//! Ops whose kernels are written by hand, as steps on a rank's sizes.

mod attend;
mod experts;
mod moves;
mod numbers;
mod picks;
mod tiles;

pub(super) use attend::{by_tiles, tiles_of};
pub(super) use numbers::update;
pub(super) use tiles::Tiles;

use super::lower::{element, len};
use device::backend::KernelSite;
use ir::ops::KernelOp;
use kernels::cuda::kernel::WARP;
use kernels::cuda::written::{BLOCK, Written};
use kernels::scalar::Element;

/// A tensor of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// An operand of the op.
    Operand(usize),
    /// A result of the op.
    Result(usize),
    /// A piece of scratch memory, by its number.
    Scratch(usize),
    /// The counts of the experts' choices.
    Tally,
}

/// A launch.
pub(super) struct Step {
    pub(super) work: Written,
    pub(super) operands: Vec<At>,
    pub(super) results: Vec<At>,
}

/// The launches of an op.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    /// Bytes of each piece of scratch memory.
    pub(super) scratch: Vec<usize>,
}

impl Steps {
    /// One launch.
    fn one(work: Written, operands: Vec<At>, results: Vec<At>) -> Steps {
        Steps { steps: vec![Step { work, operands, results }], scratch: Vec::new() }
    }

    /// One launch more.
    #[must_use]
    fn then(mut self, work: Written, operands: Vec<At>, results: Vec<At>) -> Steps {
        self.steps.push(Step { work, operands, results });
        self
    }
}

/// The steps of an op, if it is one of those.
///
/// # Errors
/// A tensor is a flat shard where boxes are needed, or sizes do not fit.
pub(super) fn steps(op: &KernelOp, site: &KernelSite<'_>) -> Option<Result<Steps, String>> {
    use KernelOp as Op;
    Some(match op {
        Op::Einsum(op) if op.equation.operands.len() == 1 => moves::einsum(op, site),
        Op::Reduce(op) if moves::is_scattered(op) => moves::reduce(op, site),
        Op::Concat(op) => moves::concat(op, site),
        Op::Pad(op) => moves::pad(op, site),
        Op::Reverse(op) => moves::reverse(op, site),
        Op::DynamicSlice(op) => moves::dynamic_slice(op, site),
        Op::DynamicPad(op) => moves::dynamic_pad(op, site),
        Op::Fold(op) => moves::fold(op, site),
        Op::ScatterAdd(op) => picks::scatter_add(op, site),
        Op::EmbeddingGrad(op) => picks::embedding_grad(op, site),
        Op::SumSquares(_) => numbers::sum_squares(site),
        Op::AbsMax(_) => numbers::absmax(site),
        Op::ScaleFor(op) => numbers::scale_for(op, site),
        Op::Exponents(_) => numbers::exponents(site),
        Op::Ages(_) => numbers::ages(site),
        Op::DelayedScale(op) => numbers::delayed_scale(op),
        Op::AdamW(_) | Op::Sgd(_) => Ok(numbers::update(op, site, None)?),
        Op::TopK(op) => experts::top_k(op, site),
        Op::TopKGrad(_) => experts::top_k_grad(site),
        Op::Dispatch(_) => experts::dispatch(site),
        Op::Combine(_) => experts::combine(site),
        Op::CombineDw(_) => experts::combine_dw(site),
        Op::Attention(op) => attend::attention(op, site),
        Op::AttentionGrad(op) => attend::attention_grad(op, site),
        _ => return None,
    })
}

/// Blocks of which each thread has an element.
fn threads(elements: usize) -> usize {
    elements.div_ceil(BLOCK)
}

/// Blocks of which each warp has a row.
fn warps(rows: usize) -> usize {
    rows.div_ceil(BLOCK / WARP)
}

/// The element type of an operand.
fn of_operand(site: &KernelSite<'_>, operand: usize) -> Element {
    element(site.operands[operand].dtype)
}

/// The element type of a result.
fn of_result(site: &KernelSite<'_>, result: usize) -> Element {
    element(site.results[result].dtype)
}

/// The elements of a result.
fn result_len(site: &KernelSite<'_>, result: usize) -> usize {
    len(site.results[result], site)
}
