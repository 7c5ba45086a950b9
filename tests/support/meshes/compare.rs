//! When two runs are the same: within what f32 loses by adding up in another order.

use super::record::{Record, Tensors};
use ir::optimizer::{Optimizer, OptimizerKind};

/// Loss and gradient norm of every step, relative; parameters after gradient descent, relative to the tensor's norm.
const TIGHT: f64 = 1e-4;
/// Parameters after AdamW, which divides by gradients' roots and so makes much of little; gradients of the last step.
const LOOSE: f64 = 1e-3;
/// Least norm of a tensor in comparisons, relative to the largest in its block.
const FLOOR: f64 = 1e-3;
/// A gradient below this, relative to the largest in its block, is rounding: its parameter goes anywhere under AdamW.
const NOISE: f64 = 1e-6;

/// Difference: `loss`, `norm`, `dropped`, `balance`, `gradient` or `parameter`, and its size.
pub(crate) type Difference = (&'static str, String);

/// All in which a run differs from the one that is right, after the same updates.
pub(crate) fn differences(got: &Record, want: &Record, optimizer: &Optimizer) -> Vec<Difference> {
    let mut found = Vec::new();
    let of_steps = [
        ("loss", &got.losses, &want.losses),
        ("norm", &got.norms, &want.norms),
        ("dropped", &got.dropped, &want.dropped),
        ("balance", &got.balance, &want.balance),
    ];
    for (check, got, want) in of_steps {
        found.extend(scalars(check, got, want));
    }
    found.extend(tensors("gradient", &got.gradients, &want.gradients, |name| {
        Some(LOOSE * norm_of(&want.gradients, name).max(FLOOR * largest(&want.gradients, name)))
    }));
    found.extend(tensors("parameter", &got.params, &want.params, |name| {
        let own = norm_of(&want.params, name);
        let noise = norm_of(&want.gradients, name) < NOISE * largest(&want.gradients, name);
        match optimizer.kind {
            _ if noise => None,
            OptimizerKind::Sgd { .. } => Some(TIGHT * own),
            OptimizerKind::AdamW { .. } | OptimizerKind::Muon { .. } => {
                Some(LOOSE * own.max(FLOOR * largest(&want.params, name)))
            }
        }
    }));
    found
}

/// The first step at which they differ.
fn scalars(check: &'static str, got: &[f64], want: &[f64]) -> Option<Difference> {
    let differ = |step: &usize| {
        let (got, want) = (got.get(*step).copied().unwrap_or(f64::NAN), want[*step]);
        let off = (got - want).abs();
        off.is_nan() || off > TIGHT * want.abs()
    };
    let text = |step: usize| format!("step {}: {:?} instead of {}", step + 1, got.get(step), want[step]);
    (0..want.len()).find(differ).map(|step| (check, text(step)))
}

/// Each tensor that is off by more than its bound; one without a bound is left out.
fn tensors(check: &'static str, got: &Tensors, want: &Tensors, bound: impl Fn(&str) -> Option<f64>) -> Vec<Difference> {
    let differ = |(name, tensor): (&String, &Vec<f64>)| {
        let (bound, found) = (bound(name)?, got.get(name).map_or(&[][..], Vec::as_slice));
        let off = norm(found.iter().zip(tensor).map(|(a, b)| a - b));
        let text = format!("`{name}` is off by {off:e}, {bound:e} is allowed");
        let same = found.len() == tensor.len() && off <= bound;
        (!same).then_some((check, text))
    };
    want.iter().filter_map(differ).collect()
}

fn norm(data: impl Iterator<Item = f64>) -> f64 {
    data.map(|x| x * x).sum::<f64>().sqrt()
}

fn norm_of(tensors: &Tensors, name: &str) -> f64 {
    norm(tensors.get(name).into_iter().flatten().copied())
}

/// The largest norm in the block of a tensor: those of the same array element, or all others.
fn largest(tensors: &Tensors, name: &str) -> f64 {
    let block = |name: &str| name.rsplit_once('.').map_or(String::new(), |(block, _)| block.to_string());
    let same = tensors.keys().filter(|other| block(other) == block(name));
    same.map(|other| norm_of(tensors, other)).fold(0.0, f64::max)
}
