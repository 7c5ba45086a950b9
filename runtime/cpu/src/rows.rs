//! Norms and softmax: ops on rows along the last dim.

use super::KernelFn;
use device::backend::KernelSite;
use ir::ops::{LayerNorm, RmsNorm};
use kernels::cpu::{norm, softmax};

pub(super) fn rms_norm(op: &RmsNorm) -> KernelFn {
    let eps = op.eps as f32;
    Box::new(move |call, par| {
        let (x, gamma) = (call.float(0), call.float(1));
        let [y, rstd] = call.outs();
        norm::rms_norm(x, gamma, eps, y, rstd, par);
    })
}

pub(super) fn rms_norm_dx() -> KernelFn {
    Box::new(|call, par| {
        let [x, gamma, rstd, dy] = [0, 1, 2, 3].map(|i| call.float(i));
        norm::rms_norm_dx(x, gamma, rstd, dy, call.out(), par);
    })
}

pub(super) fn rms_norm_dgamma() -> KernelFn {
    Box::new(|call, par| {
        let [x, rstd, dy] = [0, 1, 2].map(|i| call.float(i));
        let accumulate = call.accumulate;
        norm::rms_norm_dgamma(x, rstd, dy, call.out(), accumulate, par);
    })
}

pub(super) fn layer_norm(op: &LayerNorm) -> KernelFn {
    let eps = op.eps as f32;
    Box::new(move |call, par| {
        let [x, gamma, beta] = [0, 1, 2].map(|i| call.float(i));
        let [y, mean, rstd] = call.outs();
        norm::layer_norm(x, (gamma, beta), eps, y, (mean, rstd), par);
    })
}

pub(super) fn layer_norm_dx() -> KernelFn {
    Box::new(|call, par| {
        let [x, gamma, mean, rstd, dy] = [0, 1, 2, 3, 4].map(|i| call.float(i));
        norm::layer_norm_dx(x, gamma, (mean, rstd), dy, call.out(), par);
    })
}

pub(super) fn layer_norm_dgamma() -> KernelFn {
    Box::new(|call, par| {
        let [x, mean, rstd, dy] = [0, 1, 2, 3].map(|i| call.float(i));
        let accumulate = call.accumulate;
        norm::layer_norm_dgamma(x, (mean, rstd), dy, call.out(), accumulate, par);
    })
}

pub(super) fn softmax(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let cols = last(site)?;
    Ok(Box::new(move |call, par| softmax::softmax(call.float(0), cols, call.out(), par)))
}

pub(super) fn softmax_grad(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let cols = last(site)?;
    Ok(Box::new(move |call, par| softmax::softmax_grad(call.float(0), call.float(1), cols, call.out(), par)))
}

/// The length of a row of the first operand.
pub(super) fn last(site: &KernelSite<'_>) -> Result<usize, String> {
    site.operand(0)?.last().copied().ok_or_else(|| "a scalar has no rows".to_string())
}
