//! Elementwise ops. Ops that do not broadcast run on any storage, by length alone.

use super::{KernelFn, Rng};
use device::backend::KernelSite;
use device::random::key;
use device::scalar;
use device::sizes::strides_in;
use ir::ops::{Binary, OpDef, Piece, Unary};
use ir::types::DType;
use kernels::cpu::dropout::{self, Noise, TensorPart};
use kernels::cpu::elementwise::{self, Strided};

pub(super) fn unary(op: &Unary, site: &KernelSite<'_>) -> KernelFn {
    if site.operands[0].dtype == DType::I32 {
        return Box::new(|call, _| {
            let x = call.int(0);
            call.out().iter_mut().zip(x).for_each(|(out, &x)| *out = x as f32);
        });
    }
    let Some(kind) = scalar::unary(op.0) else {
        return Box::new(|call, _| {
            let x = call.float(0);
            call.out().copy_from_slice(x);
        });
    };
    Box::new(move |call, par| elementwise::unary(kind, call.source(0), call.out(), par))
}

pub(super) fn binary(op: &Binary, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let kind = scalar::binary(op.kind);
    let Some(equation) = &op.equation else {
        return Ok(Box::new(move |call, par| {
            elementwise::binary(kind, call.source(0), call.source(1), call.out(), par);
        }));
    };
    let mut sizes = site.result(0)?;
    let strides = |operand: usize| -> Result<Vec<usize>, String> {
        Ok(strides_in(&equation.operands[operand], &site.operand(operand)?, &equation.result))
    };
    let (mut a, mut b) = (strides(0)?, strides(1)?);
    // A part of the rows may be asked for: their dims are one.
    let dims = op.rows(site.operands).and_then(|noise| noise.dims);
    if let Some(dims) = dims {
        [&mut sizes, &mut a, &mut b].into_iter().for_each(|list| drop(list.drain(..dims - 1)));
    }
    Ok(Box::new(move |call, par| {
        if dims.is_some() {
            sizes[0] = call.out().len() / sizes[1..].iter().product::<usize>().max(1);
        }
        let (x, y) = (Strided(call.float(0).into(), &a), Strided(call.float(1).into(), &b));
        elementwise::broadcast_binary(kind, x, y, call.out(), &sizes, par);
    }))
}

/// Dropout key: a hash of seed, step, repeat variable and path.
pub(super) fn dropout_key(rng: Rng, path: &str) -> [u32; 2] {
    let times = [rng.seed, rng.step, rng.site.index].map(u64::to_le_bytes);
    key(&[&times[0], &times[1], &times[2], path.as_bytes()])
}

/// Numbers go by the logical index of an element in the batch of the step, under the [`dropout_key`].
pub(super) fn drawn(noise: Noise, path: &str, piece: Option<Piece>, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (dims, mut whole) = (site.operand(0)?, site.operands[0].sizes());
    let mut first = site.operands[0].local_origin(site.mesh, site.coordinates);
    if let Some(piece) = piece {
        first[1] += piece.origin;
        whole[1] = piece.whole;
    }
    let (path, mut origin) = (path.to_string(), first.clone());
    Ok(Box::new(move |call, par| {
        let key = dropout_key(call.rng, &path);
        origin[0] = first[0] + call.rng.site.microbatch * whole[0];
        let part = TensorPart { dims: &dims, origin: &origin, global_dims: &whole, skipped: call.rng.skipped };
        dropout::drawn(call.source(0), call.out(), noise, key, part, par);
    }))
}
