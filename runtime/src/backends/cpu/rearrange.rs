//! Copies: broadcast, permute, reshape, slice, concatenate, pad, reverse, windows.

use super::KernelFn;
use super::sizes::{row_major, strides_in};
use crate::backend::KernelSite;
use ir::ops::{Broadcast, Concat, Equation, Fold, Frame, Pad, Permute, Reverse, Slice, Windows};
use kernels::cpu::shape::{self, View, add_strided, copy_strided};

pub(super) fn broadcast(op: &Broadcast, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    by_letters(&op.equation, site)
}

pub(super) fn permute(op: &Permute, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    by_letters(&op.equation, site)
}

/// Each letter of the result walks along the operand's stride of it.
fn by_letters(equation: &Equation, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (from, sizes) = (site.operand(0)?, site.result(0)?);
    let from = strides_in(&equation.operands[0], &from, &equation.result);
    let to = row_major(&sizes);
    Ok(Box::new(move |call, _| {
        let x = call.float(0);
        copy_strided(x, View { offset: 0, strides: &from }, call.out(), View { offset: 0, strides: &to }, &sizes);
    }))
}

/// The rule lets dims merge only where the order of the local elements stays.
pub(super) fn reshape() -> KernelFn {
    Box::new(|call, _| {
        let x = call.float(0);
        call.out().copy_from_slice(x);
    })
}

pub(super) fn slice(op: &Slice, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (from, sizes) = (row_major(&site.operand(0)?), site.result(0)?);
    let (offset, to) = (op.start as usize * from[op.dim], row_major(&sizes));
    Ok(Box::new(move |call, _| {
        let x = call.float(0);
        if !sizes.contains(&0) {
            copy_strided(x, View { offset, strides: &from }, call.out(), View { offset: 0, strides: &to }, &sizes);
        }
    }))
}

pub(super) fn concat(op: &Concat, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let to = row_major(&site.result(0)?);
    let mut offset = 0;
    let mut parts = Vec::new();
    for operand in 0..site.operands.len() {
        let sizes = site.operand(operand)?;
        let next = offset + sizes[op.dim] * to[op.dim];
        parts.push((offset, row_major(&sizes), sizes));
        offset = next;
    }
    Ok(Box::new(move |call, _| {
        for (operand, (offset, from, sizes)) in parts.iter().enumerate().filter(|(_, part)| !part.2.contains(&0)) {
            let x = call.float(operand);
            let to = View { offset: *offset, strides: &to };
            copy_strided(x, View { offset: 0, strides: from }, call.out(), to, sizes);
        }
    }))
}

pub(super) fn pad(op: &Pad, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (sizes, to) = (site.operand(0)?, row_major(&site.result(0)?));
    let (from, offset) = (row_major(&sizes), op.before as usize * to[op.dim]);
    Ok(Box::new(move |call, _| {
        let x = call.float(0);
        let out = call.out();
        out.fill(0.0);
        if !sizes.contains(&0) {
            copy_strided(x, View { offset: 0, strides: &from }, out, View { offset, strides: &to }, &sizes);
        }
    }))
}

pub(super) fn reverse(op: &Reverse, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let sizes = site.operand(0)?;
    let (n, inner) = (sizes[op.dim], sizes[op.dim + 1..].iter().product());
    Ok(Box::new(move |call, _| {
        let x = call.float(0);
        shape::reverse(x, n, inner, call.out());
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
    let to = row_major(&sizes);
    Ok(Box::new(move |call, _| {
        let x = call.float(0);
        copy_strided(x, View { offset: 0, strides: &from }, call.out(), View { offset: 0, strides: &to }, &sizes);
    }))
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
