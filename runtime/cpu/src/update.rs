//! Parameter updates and the rank's share of the gradient norm, on any storage. The results hold the updated tensors' old
//! values.

use super::KernelFn;
use ir::ops::{AdamW, Sgd};
use kernels::cpu::optimizer;

pub(super) fn sum_squares() -> KernelFn {
    Box::new(|call, par| {
        let g = call.float(0);
        call.out()[0] = optimizer::sum_squares(g, par) as f32;
    })
}

/// Operands w, g, m, v, clip, lr, step.
pub(super) fn adamw(op: &AdamW) -> KernelFn {
    let op = op.clone();
    Box::new(move |call, par| {
        let (g, step) = (call.float(1), call.scalar(6) as u32);
        let settings = optimizer::AdamW {
            lr: call.scalar(5),
            beta1: op.beta1 as f32,
            beta2: op.beta2 as f32,
            eps: op.eps as f32,
            weight_decay: op.weight_decay as f32,
            scale: call.scalar(4),
            bias1: optimizer::bias(op.beta1, step),
            bias2: optimizer::bias(op.beta2, step),
        };
        let [w, m, v] = call.outs();
        optimizer::adamw(w, g, m, v, &settings, par);
    })
}

/// Operands w, g, clip, lr, or with momentum w, g, m, clip, lr.
pub(super) fn sgd(op: &Sgd) -> KernelFn {
    let op = op.clone();
    let scalars = if op.has_momentum() { 3 } else { 2 };
    Box::new(move |call, par| {
        let g = call.float(1);
        let settings = optimizer::Sgd {
            lr: call.scalar(scalars + 1),
            momentum: op.momentum as f32,
            nesterov: op.nesterov,
            weight_decay: op.weight_decay as f32,
            scale: call.scalar(scalars),
        };
        let has_momentum = op.has_momentum();
        let [w, m] = call.outs();
        optimizer::sgd(w, g, has_momentum.then_some(m), &settings, par);
    })
}
