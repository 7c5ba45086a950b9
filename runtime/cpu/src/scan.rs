//! Scans, and short convolutions.

use super::KernelFn;
use device::backend::KernelSite;
use ir::ops::{KernelOp, ScanKind, ScanSettings};
use kernels::cpu::scan::conv::{Conv, Sequences};
use kernels::cpu::scan::{Carry, Gradients, Inputs, Recurrence, Scan, Slopes};

/// The kernel of one of these ops; `None` if an operand is no box, or has other dims.
pub(super) fn kernel(op: &KernelOp, site: &KernelSite<'_>) -> Option<KernelFn> {
    match op {
        KernelOp::Scan(op) => scan(&op.0, site),
        KernelOp::ScanGrad(op) => scan_grad(&op.0, site),
        KernelOp::ScanState(op) => scan_state(&op.0, site),
        KernelOp::ScanDstart(op) => scan_dstart(&op.0, site),
        KernelOp::Carry(op) => carry(op.reverse, site),
        KernelOp::ShortConv(op) => short_conv(op.block, site),
        KernelOp::ShortConvDx(op) => short_conv_dx(op.block, site),
        KernelOp::ShortConvDw(op) => short_conv_dw(op.block, site),
        KernelOp::ShortConvDstart(op) => short_conv_dstart(op.block, site),
        _ => None,
    }
}

/// The local scan of keys, values and decays at these places. A block counts as a sequence.
fn plan(settings: &ScanSettings, places: [usize; 3], site: &KernelSite<'_>) -> Option<Scan> {
    let [keys, values, decay] = places.map(|at| site.operand(at).ok());
    let (keys, values, decay) = (keys?, values?, decay?);
    let (&[b, s, g, r, c], Some(&k)) = (values.as_slice(), keys.last()) else { return None };
    let kind = match settings.kind {
        ScanKind::Linear => Recurrence::Linear,
        ScanKind::Delta => Recurrence::Delta,
        ScanKind::Selective => Recurrence::Selective,
    };
    let (chunk, by_key) = (settings.chunk as usize, decay.len() == 5);
    let rows = settings.block.map_or(s, |block| block as usize);
    Some(Scan { kind, by_key, b: b * s / rows.max(1), s: rows, g, r, k, c, scale: settings.scale as f32, chunk })
}

/// The number of operands of a scan without blocks.
fn operands(settings: &ScanSettings) -> usize {
    settings.in_blocks(None).operands()
}

/// The operands of a call; `count` of them, and behind them states before blocks if `starts`.
macro_rules! inputs {
    ($call:ident, $count:ident, $starts:ident) => {
        Inputs {
            q: $call.float(0),
            k: $call.float(1),
            v: $call.float(2),
            decay: $call.float(3),
            further: if $count > 5 { $call.float(4) } else { &[] },
            pos: $call.int($count - 1),
            start: if $starts { $call.float($count) } else { &[] },
        }
    };
}

fn scan(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<KernelFn> {
    let scan = plan(settings, [1, 2, 3], site)?;
    let (count, starts) = (operands(settings), settings.block.is_some());
    Some(Box::new(move |call, par| {
        let x = inputs!(call, count, starts);
        let [out] = call.outs();
        scan.forward(&x, out, par, call.scratch);
    }))
}

fn scan_grad(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<KernelFn> {
    let scan = plan(settings, [1, 2, 3], site)?;
    let (count, starts, dout) = (operands(settings), settings.block.is_some(), settings.operands());
    let has_end = site.operands.len() > dout + 1;
    Some(Box::new(move |call, par| {
        let x = inputs!(call, count, starts);
        let by = Slopes { out: call.float(dout), end: if has_end { call.float(dout + 1) } else { &[] } };
        let [q, k, v, decay, further] = call.outs();
        scan.backward(&x, &by, Gradients { q, k, v, decay, further }, par, call.scratch);
    }))
}

/// Keys stand for queries, which states do not read.
fn scan_state(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<KernelFn> {
    let scan = plan(settings, [0, 1, 2], site)?;
    let pos = operands(settings) - 2;
    Some(Box::new(move |call, par| {
        let further: &[f32] = if pos > 3 { call.float(3) } else { &[] };
        let [k, v, decay] = [call.float(0), call.float(1), call.float(2)];
        let x = Inputs { q: k, k, v, decay, further, pos: call.int(pos), start: &[] };
        let [end, through] = call.outs();
        scan.end(&x, end, through, par, call.scratch);
    }))
}

/// The gradient by results stands for values, which this gradient does not read.
fn scan_dstart(settings: &ScanSettings, site: &KernelSite<'_>) -> Option<KernelFn> {
    let dout = operands(settings) - 1;
    let scan = plan(settings, [1, dout, 2], site)?;
    Some(Box::new(move |call, par| {
        let further: &[f32] = if dout > 4 { call.float(3) } else { &[] };
        let [q, k, decay, v] = [call.float(0), call.float(1), call.float(2), call.float(dout)];
        let x = Inputs { q, k, v, decay, further, pos: call.int(dout - 1), start: &[] };
        let [dstart] = call.outs();
        scan.by_start(&x, v, dstart, par, call.scratch);
    }))
}

fn carry(reverse: bool, site: &KernelSite<'_>) -> Option<KernelFn> {
    let (end, through) = (site.operand(0).ok()?, site.operand(1).ok()?);
    let &[b, n, g, r, k, c] = end.as_slice() else { return None };
    let transition = through.get(4..)?.iter().product();
    let carry = Carry { reverse, b, n, heads: g * r, k, c, transition };
    Some(Box::new(move |call, par| carry.run(call.float(0), call.float(1), call.out(), par)))
}

/// The local convolution of rows of a tensor. A block counts as a sequence.
fn conv(x: &[usize], taps: usize, block: Option<u64>) -> Option<Conv> {
    let [_, s, channels @ ..] = x else { return None };
    Some(Conv { s: block.map_or(*s, |block| block as usize), channels: channels.iter().product(), taps })
}

fn taps(sizes: &[usize]) -> usize {
    sizes.last().copied().unwrap_or(1)
}

fn short_conv(block: Option<u64>, site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.operand(1).ok()?), block)?;
    Some(Box::new(move |call, par| {
        let start: &[f32] = if block.is_some() { call.float(3) } else { &[] };
        let (rows, w) = (Sequences { x: call.float(0), start, pos: call.int(2) }, call.float(1));
        let [out] = call.outs();
        conv.forward(&rows, w, out, par, call.scratch);
    }))
}

fn short_conv_dx(block: Option<u64>, site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.operand(1).ok()?), block)?;
    let has_end = site.operands.len() > 3;
    Some(Box::new(move |call, par| {
        let by = Slopes { out: call.float(0), end: if has_end { call.float(3) } else { &[] } };
        let (w, pos) = (call.float(1), call.int(2));
        let [out] = call.outs();
        conv.by_x(&by, w, pos, out, par, call.scratch);
    }))
}

fn short_conv_dw(block: Option<u64>, site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.result(0).ok()?), block)?;
    Some(Box::new(move |call, par| {
        let start: &[f32] = if block.is_some() { call.float(3) } else { &[] };
        let rows = Sequences { x: call.float(0), start, pos: call.int(2) };
        conv.by_w(&rows, call.float(1), call.out(), par);
    }))
}

fn short_conv_dstart(block: u64, site: &KernelSite<'_>) -> Option<KernelFn> {
    let conv = conv(&site.operand(0).ok()?, taps(&site.operand(1).ok()?), Some(block))?;
    Some(Box::new(move |call, par| {
        let (dy, w, pos) = (call.float(0), call.float(1), call.int(2));
        let [out] = call.outs();
        conv.by_start(dy, w, pos, out, par, call.scratch);
    }))
}
