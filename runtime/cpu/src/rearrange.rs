//! Copies: broadcast, permute, reshape, slice, concatenate, pad, reverse, windows. They move elements of any type as they are.

use super::KernelFn;
use super::call::Call;
use device::arena::Stored;
use device::backend::KernelSite;
use device::region::row_major;
use device::sizes::strides_in;
use ir::ops::{Broadcast, Concat, Equation, Fold, Frame, Pad, Permute, Reverse, Slice, Windows};
use kernels::cpu::shape::{self, View, add_strided, copy_strided};

/// A strided copy of a box of an operand into the result.
pub(super) struct BoxCopy {
    pub(super) operand: usize,
    /// The first element in the operand and in the result.
    pub(super) offsets: [usize; 2],
    /// The strides there.
    pub(super) strides: [Vec<usize>; 2],
    pub(super) sizes: Vec<usize>,
}

/// Copies that make a result.
pub(super) struct Copies {
    /// The result is zero where no box falls.
    pub(super) zero: bool,
    pub(super) boxes: Vec<BoxCopy>,
}

impl Copies {
    /// Makes the result.
    pub(super) fn run(&self, call: &mut Call<'_>) {
        match call.word() {
            None => {
                let [out] = call.outs();
                self.put(|operand| call.float(operand), out);
            }
            Some(4) => self.words::<u32>(call),
            Some(2) => self.words::<u16>(call),
            Some(_) => self.words::<u8>(call),
        }
    }

    fn words<T: Stored + Default + 'static>(&self, call: &Call<'_>) {
        self.put(|operand| call.elements::<T>(operand), call.stored(0));
    }

    fn put<'x, T: Copy + Default + 'x>(&self, operand: impl Fn(usize) -> &'x [T], out: &mut [T]) {
        if self.zero {
            out.fill(T::default());
        }
        for BoxCopy { operand: at, offsets, strides, sizes } in &self.boxes {
            let [from, to] = [0, 1].map(|side| View { offset: offsets[side], strides: &strides[side] });
            if !sizes.contains(&0) {
                copy_strided(operand(*at), from, out, to, sizes);
            }
        }
    }

    fn kernel(self) -> KernelFn {
        Box::new(move |call, _| self.run(call))
    }
}

/// The copy of one box of the one operand.
pub(super) fn copy(offsets: [usize; 2], strides: [Vec<usize>; 2], sizes: Vec<usize>, zero: bool) -> Copies {
    Copies { zero, boxes: vec![BoxCopy { operand: 0, offsets, strides, sizes }] }
}

pub(super) fn broadcast(op: &Broadcast, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    by_letters(&op.equation, site)
}

pub(super) fn permute(op: &Permute, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    by_letters(&op.equation, site)
}

/// Each letter of the result walks along the operand's stride of it.
fn by_letters(equation: &Equation, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (from, sizes) = (site.operand(0)?, site.result(0)?);
    let strides = [strides_in(&equation.operands[0], &from, &equation.result), row_major(&sizes)];
    Ok(copy([0, 0], strides, sizes, false).kernel())
}

/// The rule lets dims merge only where the order of the local elements stays.
pub(super) fn reshape(site: &KernelSite<'_>) -> KernelFn {
    let len = device::region::local_len(site.results[0], site.mesh, site.coordinates);
    copy([0, 0], [vec![1], vec![1]], vec![len], false).kernel()
}

pub(super) fn slice(op: &Slice, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (from, sizes) = (row_major(&site.operand(0)?), site.result(0)?);
    let offsets = [op.start as usize * from[op.dim], 0];
    Ok(copy(offsets, [from, row_major(&sizes)], sizes, false).kernel())
}

pub(super) fn concat(op: &Concat, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let to = row_major(&site.result(0)?);
    let (mut offset, mut boxes) = (0, Vec::new());
    for operand in 0..site.operands.len() {
        let sizes = site.operand(operand)?;
        let next = offset + sizes[op.dim] * to[op.dim];
        boxes.push(BoxCopy { operand, offsets: [0, offset], strides: [row_major(&sizes), to.clone()], sizes });
        offset = next;
    }
    Ok(Copies { zero: false, boxes }.kernel())
}

pub(super) fn pad(op: &Pad, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (sizes, to) = (site.operand(0)?, row_major(&site.result(0)?));
    let offsets = [0, op.before as usize * to[op.dim]];
    Ok(copy(offsets, [row_major(&sizes), to], sizes, true).kernel())
}

pub(super) fn reverse(op: &Reverse, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let sizes = site.operand(0)?;
    let (n, inner) = (sizes[op.dim], sizes[op.dim + 1..].iter().product());
    Ok(Box::new(move |call, _| match call.word() {
        None => shape::reverse(call.float(0), n, inner, call.out()),
        Some(4) => shape::reverse(call.elements::<u32>(0), n, inner, call.stored(0)),
        Some(2) => shape::reverse(call.elements::<u16>(0), n, inner, call.stored(0)),
        Some(_) => shape::reverse(call.elements::<u8>(0), n, inner, call.stored(0)),
    }))
}

/// The strides of a dense tensor of these sizes along its windows.
fn along(frame: Frame, sizes: &[usize]) -> Vec<usize> {
    let (mut strides, dim) = (row_major(sizes), frame.dim);
    let steps = [frame.stride, frame.dilation].map(|step| step as usize * strides[dim]);
    strides.splice(dim..=dim, steps);
    strides
}

pub(super) fn windows(op: &Windows, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (from, sizes) = (along(op.frame, &site.operand(0)?), site.result(0)?);
    Ok(copy([0, 0], [from, row_major(&sizes)], sizes, false).kernel())
}

pub(super) fn fold(op: &Fold, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (sizes, to) = (site.operand(0)?, along(op.frame, &site.result(0)?));
    let from = row_major(&sizes);
    Ok(Box::new(move |call, _| {
        let y = call.float(0);
        let out = call.out();
        out.fill(0.0);
        add_strided(y, View { offset: 0, strides: &from }, out, View { offset: 0, strides: &to }, &sizes);
    }))
}
