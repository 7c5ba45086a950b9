//! Ops selected by run-time values: entries by index, ranges, elements by a mask.

use super::{KernelFn, rearrange};
use device::backend::KernelSite;
use device::region::row_major;
use ir::ops::{Compare, CompareKind, DynamicPad, DynamicSlice, Iota, ScatterAdd, Select, Selected, Take};
use ir::types::DType;
use kernels::cpu::select;
use kernels::cpu::take::{self, Selection};

/// The sizes of a selection from a tensor of these local sizes by an index of those.
fn selection(at: Selected, whole: &[usize], index: &[usize], origin: i64) -> Selection {
    let Selected { dim, batch } = at;
    let product = |sizes: &[usize]| sizes.iter().product();
    Selection {
        batches: product(&whole[..batch]),
        outer: product(&whole[batch..dim]),
        len: whole[dim],
        picks: product(&index[batch..]),
        inner: product(&whole[dim + 1..]),
        origin,
    }
}

pub(super) fn take(op: &Take, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let origin = site.origin(site.operands[0], op.at.dim);
    let chosen = selection(op.at, &site.operand(0)?, &site.operand(1)?, origin);
    Ok(Box::new(move |call, par| {
        let index = call.int(1);
        match call.word() {
            None => take::take(call.float(0), index, chosen, call.out(), par),
            Some(4) => take::take::<u32>(call.elements(0), index, chosen, call.stored(0), par),
            Some(2) => take::take::<u16>(call.elements(0), index, chosen, call.stored(0), par),
            Some(_) => take::take::<u8>(call.elements(0), index, chosen, call.stored(0), par),
        }
    }))
}

pub(super) fn scatter_add(op: &ScatterAdd, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let origin = site.origin(site.results[0], op.at.dim);
    let chosen = selection(op.at, &site.result(0)?, &site.operand(1)?, origin);
    Ok(Box::new(move |call, _| take::scatter_add(call.float(0), call.int(1), chosen, call.out())))
}

/// Start of a range of `length` in a dim of `size`.
fn begin(start: i32, length: usize, size: usize) -> usize {
    usize::try_from(start).unwrap_or(0).min(size - length)
}

pub(super) fn dynamic_slice(op: &DynamicSlice, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (whole, sizes, dim) = (site.operand(0)?, site.result(0)?, op.dim);
    let (from, length) = (row_major(&whole), sizes[dim]);
    let (size, stride) = (whole[dim], from[dim]);
    let mut copies = rearrange::copy([0, 0], [from, row_major(&sizes)], sizes, false);
    Ok(Box::new(move |call, _| {
        copies.boxes[0].offsets[0] = begin(call.int(1)[0], length, size) * stride;
        copies.run(call);
    }))
}

pub(super) fn dynamic_pad(op: &DynamicPad, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (whole, sizes, dim) = (site.result(0)?, site.operand(0)?, op.dim);
    let (to, length) = (row_major(&whole), sizes[dim]);
    let (size, stride) = (whole[dim], to[dim]);
    let mut copies = rearrange::copy([0, 0], [row_major(&sizes), to], sizes, true);
    Ok(Box::new(move |call, _| {
        copies.boxes[0].offsets[1] = begin(call.int(1)[0], length, size) * stride;
        copies.run(call);
    }))
}

pub(super) fn compare(op: &Compare, site: &KernelSite<'_>) -> KernelFn {
    let kind = op.0;
    if site.operands[0].dtype == DType::I32 {
        return Box::new(move |call, _| {
            let (a, b) = (call.int(0), call.int(1));
            select::compare(a, b, call.stored(0), |a, b| holds(kind, a, b));
        });
    }
    Box::new(move |call, _| {
        let (a, b) = (call.float(0), call.float(1));
        select::compare(a, b, call.stored(0), |a, b| holds(kind, a, b));
    })
}

fn holds<T: PartialOrd>(kind: CompareKind, a: T, b: T) -> bool {
    match kind {
        CompareKind::Less => a < b,
        CompareKind::LessEqual => a <= b,
        CompareKind::Equal => a == b,
    }
}

/// Indices in the whole: a part begins at its origin.
pub(super) fn iota(op: &Iota, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (sizes, origin) = (site.result(0)?, site.origin(site.results[0], op.dim));
    let (size, inner) = (sizes[op.dim], sizes[op.dim + 1..].iter().product::<usize>());
    let index = move |at: usize| origin as usize + at / inner % size;
    if op.dtype == DType::I32 {
        return Ok(Box::new(move |call, _| {
            call.stored(0).iter_mut().enumerate().for_each(|(at, out): (_, &mut i32)| *out = index(at) as i32);
        }));
    }
    Ok(Box::new(move |call, _| call.out().iter_mut().enumerate().for_each(|(at, out)| *out = index(at) as f32)))
}

pub(super) fn select(op: &Select, site: &KernelSite<'_>) -> KernelFn {
    let (not, has_other) = (op.not, site.operands.len() == 3);
    Box::new(move |call, _| {
        let (mask, a, b) = (call.int(0), call.float(1), has_other.then(|| call.float(2)));
        select::select(mask, not, a, b, call.out());
    })
}
