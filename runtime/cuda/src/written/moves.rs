//! Elements that move, and sums of those that move to one place.

use super::{At, Steps, of_operand, of_result, threads, warps};
use device::backend::KernelSite;
use device::region::row_major;
use device::sizes::strides_in;
use ir::ops::{Concat, DynamicPad, DynamicSlice, Einsum, Equation, Fold, Pad, Reduce, Reverse};
use ir::types::PartialKind;
use kernels::cuda::written::{Definitions, texts};
use kernels::scalar::Strides;

/// The element types of the first float operand and the result.
fn tensors(site: &KernelSite<'_>, operand: usize) -> Result<Definitions, String> {
    Ok(Definitions::new().tensor("X", of_operand(site, operand)).tensor("OUT", of_result(site, 0)))
}

/// Each operand goes behind the one before.
pub(super) fn concat(op: &Concat, site: &KernelSite<'_>) -> Result<Steps, String> {
    let strides = row_major(&site.result(0)?);
    let (mut steps, mut offset) = (Steps::default(), 0);
    for operand in 0..site.operands.len() {
        let sizes = site.operand(operand)?;
        let n = sizes.iter().product();
        let place = Strides { dims: sizes.iter().copied().zip(strides.iter().copied()).collect(), offset };
        offset += sizes[op.dim] * strides[op.dim];
        let work = tensors(site, operand)?.size("N", n).place("PLACE", &place).kernel(texts::PUT, "put", threads(n));
        steps = steps.then(work, vec![At::Operand(operand)], vec![At::Result(0)]);
    }
    Ok(steps)
}

/// The way from a result's index along a dim to the operand's: `first + index * step + start * (a start that is read)`.
#[derive(Clone, Copy)]
struct Slide {
    dim: usize,
    first: i64,
    step: i64,
    start: i64,
}

impl Slide {
    fn steps(self, site: &KernelSite<'_>) -> Result<Steps, String> {
        let (from, to) = (site.operand(0)?, site.result(0)?);
        let (n, inner) = (to.iter().product(), to[self.dim + 1..].iter().product());
        let (from, to) = (from[self.dim], to[self.dim]);
        let define = tensors(site, 0)?.size("N", n).size("INNER", inner).size("FROM", from).size("TO", to);
        let define = define.integer("FIRST", self.first).integer("STEP", self.step).integer("START", self.start);
        let define = define.integer("MOST", from.abs_diff(to) as i64);
        let (name, operands) = match self.start {
            0 => ("slide", vec![At::Operand(0)]),
            _ => ("slide_from", vec![At::Operand(0), At::Operand(1)]),
        };
        Ok(Steps::one(define.kernel(texts::SLIDE, name, threads(n)), operands, vec![At::Result(0)]))
    }
}

pub(super) fn pad(op: &Pad, site: &KernelSite<'_>) -> Result<Steps, String> {
    Slide { dim: op.dim, first: -(op.before as i64), step: 1, start: 0 }.steps(site)
}

pub(super) fn reverse(op: &Reverse, site: &KernelSite<'_>) -> Result<Steps, String> {
    Slide { dim: op.dim, first: site.operand(0)?[op.dim] as i64 - 1, step: -1, start: 0 }.steps(site)
}

pub(super) fn dynamic_slice(op: &DynamicSlice, site: &KernelSite<'_>) -> Result<Steps, String> {
    Slide { dim: op.dim, first: 0, step: 1, start: 1 }.steps(site)
}

pub(super) fn dynamic_pad(op: &DynamicPad, site: &KernelSite<'_>) -> Result<Steps, String> {
    Slide { dim: op.dim, first: 0, step: 1, start: -1 }.steps(site)
}

/// Sums over the letters that the result lacks.
pub(super) fn einsum(op: &Einsum, site: &KernelSite<'_>) -> Result<Steps, String> {
    gather(&op.equation, site, false)
}

/// True if a reduction is neither of the last dims nor the sum over the first ones.
pub(super) fn is_scattered(op: &Reduce) -> bool {
    let (from, to) = (&op.equation.operands[0], &op.equation.result);
    !(from.starts_with(to) || from.ends_with(to) && op.kind == PartialKind::Sum)
}

pub(super) fn reduce(op: &Reduce, site: &KernelSite<'_>) -> Result<Steps, String> {
    gather(&op.equation, site, op.kind == PartialKind::Max)
}

fn gather(equation: &Equation, site: &KernelSite<'_>, largest: bool) -> Result<Steps, String> {
    let (from, sizes, kept) = (&equation.operands[0], site.operand(0)?, site.result(0)?);
    let mut dims: Vec<(usize, usize)> = kept.iter().copied().zip(strides_in(from, &sizes, &equation.result)).collect();
    let strides = row_major(&sizes);
    let mut count = 1;
    for ((name, &size), stride) in from.iter().zip(&sizes).zip(strides) {
        if !equation.result.contains(name) {
            dims.push((size, stride));
            count *= size;
        }
    }
    let n = kept.iter().product();
    let define = tensors(site, 0)?.size("N", n).size("COUNT", count).flag("LARGEST", largest);
    let work = define.place("PLACE", &Strides { dims, offset: 0 }).kernel(texts::GATHER, "gather", warps(n));
    Ok(Steps::one(work, vec![At::Operand(0)], vec![At::Result(0)]))
}

pub(super) fn fold(op: &Fold, site: &KernelSite<'_>) -> Result<Steps, String> {
    let (from, to, frame) = (site.operand(0)?, site.result(0)?, op.frame);
    let n = to.iter().product();
    let define = tensors(site, 0)?.size("N", n).size("INNER", to[frame.dim + 1..].iter().product());
    let define = define.size("TO", to[frame.dim]).size("WINDOWS", from[frame.dim]).size("SIZE", from[frame.dim + 1]);
    let define = define.size("STRIDE", frame.stride as usize).size("DILATION", frame.dilation as usize);
    Ok(Steps::one(define.kernel(texts::FOLD, "fold", threads(n)), vec![At::Operand(0)], vec![At::Result(0)]))
}
