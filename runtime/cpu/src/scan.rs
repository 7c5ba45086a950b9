//! Scans, and short convolutions.

use super::KernelFn;
use device::backend::KernelSite;
use ir::ops::{KernelOp, ScanKind, ScanSettings};
use kernels::cpu::scan::conv::Conv;
use kernels::cpu::scan::{Gradients, Inputs, Recurrence, Scan};

/// The kernel of one of these ops; `None` if an operand is no box, or has other dims.
pub(super) fn kernel(op: &KernelOp, site: &KernelSite<'_>) -> Option<KernelFn> {
    match op {
        KernelOp::Scan(op) => scan(&op.0, site),
        KernelOp::ScanGrad(op) => scan_grad(&op.0, site),
        KernelOp::ShortConv(_) => short_conv(site),
        KernelOp::ShortConvDx(_) => short_conv_dx(site),
        KernelOp::ShortConvDw(_) => short_conv_dw(site),
        _ => None,
    }
}

/// The local scan, and the number of its operands without a gradient by the results.
fn plan(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<(Scan, usize)> {
    let [keys, values, decay] = [1, 2, 3].map(|at| site.operand(at).ok());
    let (keys, values, decay) = (keys?, values?, decay?);
    let (&[b, s, g, r, c], Some(&k)) = (values.as_slice(), keys.last()) else { return None };
    let kind = match settings.kind {
        ScanKind::Linear => Recurrence::Linear,
        ScanKind::Delta => Recurrence::Delta,
        ScanKind::Selective => Recurrence::Selective,
    };
    let (chunk, by_key) = (settings.chunk as usize, decay.len() == 5);
    let operands = if kind == Recurrence::Linear { 5 } else { 6 };
    Some((Scan { kind, by_key, b, s, g, r, k, c, scale: settings.scale as f32, chunk }, operands))
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

fn scan(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<KernelFn> {
    let (scan, count) = plan(settings, site)?;
    Some(Box::new(move |call, par| {
        let x = inputs!(call, count);
        let [out] = call.outs();
        scan.forward(&x, out, par, call.scratch);
    }))
}

fn scan_grad(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<KernelFn> {
    let (scan, count) = plan(settings, site)?;
    Some(Box::new(move |call, par| {
        let (x, dout) = (inputs!(call, count), call.float(count));
        let [q, k, v, decay, further] = call.outs();
        scan.backward(&x, dout, Gradients { q, k, v, decay, further }, par, call.scratch);
    }))
}

/// The local convolution of rows of a tensor.
fn conv(x: &[usize], taps: usize) -> Option<Conv> {
    let [_, s, channels @ ..] = x else { return None };
    Some(Conv { s: *s, channels: channels.iter().product(), taps })
}

fn taps(sizes: &[usize]) -> usize {
    sizes.last().copied().unwrap_or(1)
}

fn short_conv(site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.operand(1).ok()?))?;
    Some(Box::new(move |call, par| {
        let (x, w, pos) = (call.float(0), call.float(1), call.int(2));
        let [out] = call.outs();
        conv.forward(x, w, pos, out, par, call.scratch);
    }))
}

fn short_conv_dx(site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.operand(1).ok()?))?;
    Some(Box::new(move |call, par| {
        let (dy, w, pos) = (call.float(0), call.float(1), call.int(2));
        let [out] = call.outs();
        conv.by_x(dy, w, pos, out, par, call.scratch);
    }))
}

fn short_conv_dw(site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.result(0).ok()?))?;
    Some(Box::new(move |call, par| conv.by_w(call.float(0), call.float(1), call.int(2), call.out(), par)))
}
