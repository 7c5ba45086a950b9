//! Quantisation to 8 bits, and the numbers of what was quantised.

use super::KernelFn;
use super::call::Call;
use device::backend::KernelSite;
use device::host::narrow;
use ir::ops::{DelayedScale, ScaleFor};
use ir::types::DType;
use kernels::cpu::Par;
use kernels::cpu::narrow::Narrow;
use kernels::cpu::quantise::{self, Blocks};

fn format(dtype: DType) -> Result<Narrow, String> {
    narrow(dtype).ok_or_else(|| format!("{} is no format to quantise to", dtype.name()))
}

pub(super) fn absmax(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let blocks = Blocks::new(&site.operand(0)?, &site.result(0)?)?;
    Ok(Box::new(move |call, par| {
        let (x, [out]) = (call.floats(0), call.outs());
        quantise::absmax(x, &blocks, out, call.scratch, par);
    }))
}

pub(super) fn scale_for(op: &ScaleFor) -> Result<KernelFn, String> {
    let format = format(op.to)?;
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

pub(super) fn exponents() -> KernelFn {
    Box::new(|call, par| quantise::exponents(call.floats(0), call.out(), par))
}

pub(super) fn ages() -> KernelFn {
    Box::new(|call, _| {
        let (seen, clip) = (call.float(1), call.scalar(2));
        quantise::age(call.out(), seen, clip);
    })
}

pub(super) fn delayed_scale(op: &DelayedScale) -> Result<KernelFn, String> {
    let (format, within) = (format(op.to)?, op.within as f32);
    Ok(Box::new(move |call, _| call.out()[0] = quantise::delayed_scale(format, call.float(0), within)))
}

/// The operands of a contraction, times the scales that follow them.
pub(super) struct Dequantise([Blocks; 2]);

impl Dequantise {
    pub(super) fn of(site: &KernelSite<'_>) -> Result<Dequantise, String> {
        let blocks = |at: usize| Blocks::new(&site.operand(at)?, &site.operand(at + 2)?);
        Ok(Dequantise([blocks(0)?, blocks(1)?]))
    }

    pub(super) fn run(&self, call: &Call<'_>, out: &mut [Vec<f32>; 2], par: Par) {
        for (at, (blocks, out)) in self.0.iter().zip(out).enumerate() {
            let x = call.floats(at);
            out.resize(x.len(), 0.0);
            quantise::dequantise(x, call.float(at + 2), blocks, out, par);
        }
    }
}
