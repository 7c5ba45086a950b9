//! Feed-forward nets: gated, and of two matrices.

use super::draft::{Body, Weight};
use super::llama::LlamaConfig;
use crate::ops::{Binary, BinaryKind, Einsum, Unary, UnaryKind};
use serde::Serialize;

/// The function between the matrices of a net.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Activation {
    /// `x / (1 + e^-x)` (SwiGLU: Shazeer 2020)
    Silu,
    /// GELU in its tanh form (GeGLU; Gemma).
    GeluTanh,
    /// GELU with the error function (GPT-NeoX).
    GeluErf,
    /// `max(x, 0)^2` (Nemotron-4)
    ReluSquared,
}

impl Activation {
    /// The op.
    pub(super) fn op(self) -> Unary {
        Unary(match self {
            Activation::Silu => UnaryKind::Silu,
            Activation::GeluTanh => UnaryKind::Gelu,
            Activation::GeluErf => UnaryKind::GeluErf,
            Activation::ReluSquared => UnaryKind::ReluSquared,
        })
    }
}

/// The parameters of a net between h and f.
pub(super) fn weights(config: &LlamaConfig, residual: f64) -> Vec<Weight> {
    let bias = |name, dims| config.net_bias.then(|| Weight::constant(name, dims, 0.0));
    let mut weights = Vec::new();
    if config.gated {
        weights.push(Weight::normal("gate", "h f", config.deviation));
        weights.extend(bias("gate_bias", "f"));
    }
    weights.push(Weight::normal("up", "h f", config.deviation));
    weights.extend(bias("up_bias", "f"));
    weights.push(Weight::normal("down", "f h", residual));
    weights.extend(bias("down_bias", "h"));
    weights
}

/// `fd = down(f(gate(x)) up(x))`, or without a gate `down(f(up(x)))`.
pub(super) fn build(config: &LlamaConfig, b: &mut Body<'_>, x: &str) -> Result<(), String> {
    let active = config.activation.op();
    if config.gated && !config.net_bias {
        let names = ["fg", "fu", "fs", "fp", "fd"];
        return gated(b, x, active, names, ["gate", "up", "down"], ["b s", ""], ["h", "f"]);
    }
    let bias = |name: &'static str| config.net_bias.then_some(name);
    if config.gated {
        b.linear(["fg", x, "gate"], bias("gate_bias"), ["h", "h f", "f"])?;
    }
    b.linear(["fu", x, "up"], bias("up_bias"), ["h", "h f", "f"])?;
    b.op(&["fs"], active, &[if config.gated { "fg" } else { "fu" }])?;
    if config.gated {
        b.op(&["fp"], Binary::of(BinaryKind::Mul), &["fs", "fu"])?;
    }
    let product = if config.gated { "fp" } else { "fs" };
    b.linear(["fd", product, "down"], bias("down_bias"), ["f", "f h", "h"])
}

/// A gated net on `x`. `rows` are the leading dims of `x`; the matrices may share leading dims with it. `between` are the dims
/// of the stream and between the matrices. The names are those of the values, in order.
pub(super) fn gated(
    b: &mut Body<'_>,
    x: &str,
    activation: Unary,
    [gate, up, active, product, down]: [&str; 5],
    [w_gate, w_up, w_down]: [&str; 3],
    [rows, shared]: [&str; 2],
    [outer, inner]: [&str; 2],
) -> Result<(), String> {
    let there = Einsum::new(&format!("{rows} {outer}, {shared} {outer} {inner} -> {rows} {inner}"))?;
    b.op(&[gate], there.clone(), &[x, w_gate])?;
    b.op(&[up], there, &[x, w_up])?;
    b.op(&[active], activation, &[gate])?;
    b.op(&[product], Binary::of(BinaryKind::Mul), &[active, up])?;
    let back = Einsum::new(&format!("{rows} {inner}, {shared} {inner} {outer} -> {rows} {outer}"))?;
    b.op(&[down], back, &[product, w_down])
}
