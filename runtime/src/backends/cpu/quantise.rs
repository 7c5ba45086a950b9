//! Quantisation to 8 bits, and the numbers of what was quantised.

use super::KernelFn;
use super::call::Call;
use crate::backend::KernelSite;
use crate::host::narrow;
use ir::ops::ScaleFor;
use kernels::cpu::Par;
use kernels::cpu::quantise::{self, Blocks};

pub(super) fn absmax(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let blocks = Blocks::new(&site.operand(0)?, &site.result(0)?)?;
    Ok(Box::new(move |call, par| {
        let (x, [out]) = (call.floats(0), call.outs());
        quantise::absmax(x, &blocks, out, call.scratch, par);
    }))
}

pub(super) fn scale_for(op: &ScaleFor) -> Result<KernelFn, String> {
    let format = narrow(op.to).ok_or_else(|| format!("{} is no format to quantise to", op.to.name()))?;
    Ok(Box::new(move |call, _| quantise::scale_for(format, call.float(0), call.out())))
}

pub(super) fn quantise(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let blocks = Blocks::new(&site.operand(0)?, &site.operand(1)?)?;
    Ok(Box::new(move |call, par| {
        let (x, scales) = (call.floats(0), call.float(1));
        match call.narrow_out() {
            Some(out) => quantise::quantise(x, scales, &blocks, out, par),
            None => quantise::quotients(x, scales, &blocks, call.out(), par),
        }
    }))
}

/// Writes the operands of a contraction times the scales that follow them.
pub(super) fn dequantise(site: &KernelSite<'_>) -> Result<impl Fn(&Call<'_>, &mut [Vec<f32>; 2], Par) + use<>, String> {
    let blocks = |at: usize| Blocks::new(&site.operand(at)?, &site.operand(at + 2)?);
    let blocks = [blocks(0)?, blocks(1)?];
    Ok(move |call: &Call<'_>, out: &mut [Vec<f32>; 2], par: Par| {
        for (at, (blocks, out)) in blocks.iter().zip(out).enumerate() {
            let x = call.floats(at);
            out.resize(x.len(), 0.0);
            quantise::dequantise(x, call.float(at + 2), blocks, out, par);
        }
    })
}
