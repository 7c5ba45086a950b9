//! Elementwise ops. Those that spread nothing run on any storage, by length alone.

use super::Run;
use super::sizes::strides_in;
use crate::backend::{Moment, Site};
use crate::state::key;
use ir::ops::{Binary, BinaryKind, Dropout, Unary, UnaryKind};
use kernels::cpu::dropout::{self, Part};
use kernels::cpu::elementwise::{self, Strided};

pub(super) fn unary(op: &Unary) -> Run {
    use elementwise::Unary as U;
    let kind = match op.0 {
        UnaryKind::Neg => U::Neg,
        UnaryKind::Exp => U::Exp,
        UnaryKind::Log => U::Log,
        UnaryKind::Sqrt => U::Sqrt,
        UnaryKind::Rsqrt => U::Rsqrt,
        UnaryKind::Recip => U::Recip,
        UnaryKind::Square => U::Square,
        UnaryKind::Silu => U::Silu,
        UnaryKind::Gelu => U::Gelu,
        UnaryKind::GeluErf => U::GeluErf,
        UnaryKind::Scale(by) => U::Scale(by as f32),
        UnaryKind::Shift(by) => U::Shift(by as f32),
        UnaryKind::AtMost(max) => U::AtMost(max as f32),
        UnaryKind::Cast(_) => {
            return Box::new(|call, _| {
                let x = call.float(0);
                call.out().copy_from_slice(x);
            });
        }
    };
    Box::new(move |call, par| elementwise::unary(kind, call.source(0), call.out(), par))
}

pub(super) fn binary(op: &Binary, site: &Site<'_>) -> Result<Run, String> {
    use elementwise::Binary as B;
    let kind = match op.kind {
        BinaryKind::Add => B::Add,
        BinaryKind::Sub => B::Sub,
        BinaryKind::Mul => B::Mul,
        BinaryKind::Div => B::Div,
        BinaryKind::Max => B::Max,
        BinaryKind::SiluGrad => B::SiluGrad,
        BinaryKind::GeluGrad => B::GeluGrad,
        BinaryKind::GeluErfGrad => B::GeluErfGrad,
    };
    let Some(equation) = &op.equation else {
        return Ok(Box::new(move |call, par| {
            elementwise::binary(kind, call.source(0), call.source(1), call.out(), par);
        }));
    };
    let sizes = site.result(0)?;
    let strides = |operand: usize| -> Result<Vec<usize>, String> {
        Ok(strides_in(&equation.operands[operand], &site.operand(operand)?, &equation.result))
    };
    let (a, b) = (strides(0)?, strides(1)?);
    Ok(Box::new(move |call, par| {
        let (x, y) = (Strided(call.float(0).into(), &a), Strided(call.float(1).into(), &b));
        elementwise::broadcast_binary(kind, x, y, call.out(), &sizes, par);
    }))
}

/// The key of what is drawn at a moment: that of (seed, step, repeat variable, path).
pub(super) fn dropout_key(moment: Moment, path: &str) -> [u32; 2] {
    let times = [moment.seed, moment.step, moment.index].map(u64::to_le_bytes);
    key(&[&times[0], &times[1], &times[2], path.as_bytes()])
}

/// Numbers go by the logical index of an element in the batch of the step, under the [`dropout_key`].
pub(super) fn dropout(op: &Dropout, site: &Site<'_>) -> Result<Run, String> {
    let (dims, whole, p) = (site.operand(0)?, site.operands[0].sizes(), op.p as f32);
    let first = site.operands[0].local_origin(site.mesh, site.coordinates);
    let (path, mut origin) = (op.path.clone(), first.clone());
    Ok(Box::new(move |call, par| {
        let key = dropout_key(call.moment, &path);
        origin[0] = first[0] + call.moment.microbatch * whole[0];
        let part = Part { dims: &dims, origin: &origin, global_dims: &whole };
        dropout::dropout(call.source(0), call.out(), p, key, part, par);
    }))
}
