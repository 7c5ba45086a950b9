//! Scans, and short convolutions.

use super::KernelFn;
use device::backend::KernelSite;
use ir::ops::{ScanKind, ScanSettings};
use kernels::cpu::scan::conv::Conv;
use kernels::cpu::scan::{Gradients, Inputs, Kind, Scan};

/// The local scan, and the number of its operands without a gradient by the results.
fn plan(settings: &ScanSettings, site: &KernelSite<'_>) -> Result<(Scan, usize), String> {
    let (keys, values, decay) = (site.operand(1)?, site.operand(2)?, site.operand(3)?);
    let (&[b, s, g, r, c], Some(&k)) = (values.as_slice(), keys.last()) else {
        return Err("wants k [b, s, g, k] and v [b, s, g, r, c]".to_string());
    };
    let kind = match settings.kind {
        ScanKind::Linear => Kind::Linear,
        ScanKind::Delta => Kind::Delta,
        ScanKind::Selective => Kind::Selective,
    };
    let (chunk, by_key) = (settings.chunk as usize, decay.len() == 5);
    let operands = if kind == Kind::Linear { 5 } else { 6 };
    Ok((Scan { kind, by_key, b, s, g, r, k, c, scale: settings.scale as f32, chunk }, operands))
}

/// The operands of a call; `count` of them.
macro_rules! inputs {
    ($call:ident, $count:ident) => {
        Inputs {
            q: $call.float(0),
            k: $call.float(1),
            v: $call.float(2),
            decay: $call.float(3),
            further: if $count > 5 { $call.float(4) } else { &[] },
            pos: $call.int($count - 1),
        }
    };
}

pub(super) fn scan(settings: &ScanSettings, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (scan, count) = plan(settings, site)?;
    Ok(Box::new(move |call, par| {
        let x = inputs!(call, count);
        let [out] = call.outs();
        scan.forward(&x, out, par, call.scratch);
    }))
}

pub(super) fn scan_grad(settings: &ScanSettings, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (scan, count) = plan(settings, site)?;
    Ok(Box::new(move |call, par| {
        let (x, dout) = (inputs!(call, count), call.float(count));
        let [q, k, v, decay, further] = call.outs();
        scan.backward(&x, dout, Gradients { q, k, v, decay, further }, par, call.scratch);
    }))
}

/// The local convolution of rows of a tensor.
fn conv(x: &[usize], taps: usize) -> Result<Conv, String> {
    let [_, s, channels @ ..] = x else { return Err("wants x [b, s, ..]".to_string()) };
    Ok(Conv { s: *s, channels: channels.iter().product(), taps })
}

fn taps(sizes: &[usize]) -> usize {
    sizes.last().copied().unwrap_or(1)
}

pub(super) fn short_conv(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let conv = conv(&site.operand(0)?, taps(&site.operand(1)?))?;
    Ok(Box::new(move |call, par| {
        let (x, w, pos) = (call.float(0), call.float(1), call.int(2));
        let [out] = call.outs();
        conv.forward(x, w, pos, out, par, call.scratch);
    }))
}

pub(super) fn short_conv_dx(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let conv = conv(&site.operand(0)?, taps(&site.operand(1)?))?;
    Ok(Box::new(move |call, par| {
        let (dy, w, pos) = (call.float(0), call.float(1), call.int(2));
        let [out] = call.outs();
        conv.by_x(dy, w, pos, out, par, call.scratch);
    }))
}

pub(super) fn short_conv_dw(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let conv = conv(&site.operand(0)?, taps(&site.result(0)?))?;
    Ok(Box::new(move |call, par| conv.by_w(call.float(0), call.float(1), call.int(2), call.out(), par)))
}
