//! The feed-forward net of the LLaMA family: gated, or of two matrices.

use super::config::LlamaConfig;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::feed_forward::Gated;
use crate::ops::{Binary, BinaryKind};

/// The parameters of a net between h and f.
pub(super) fn weights(config: &LlamaConfig, residual: f64) -> Vec<Weight> {
    let mut weights = Vec::new();
    if config.gated {
        weights.push(Weight::normal("gate", "h f", config.deviation));
        weights.push(Weight::constant("gate_bias", "f", 0.0));
    }
    weights.push(Weight::normal("up", "h f", config.deviation));
    weights.push(Weight::constant("up_bias", "f", 0.0));
    weights.push(Weight::normal("down", "f h", residual));
    weights.push(Weight::constant("down_bias", "h", 0.0));
    weights.retain(|weight| config.net_bias || !weight.name.ends_with("_bias"));
    weights
}

/// `fd = down(f(gate(x)) up(x))`, or without a gate `down(f(up(x)))`.
pub(super) fn build(config: &LlamaConfig, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let active = config.activation.op();
    if config.gated && !config.net_bias {
        let net = Gated { values: "f", matrices: "", rows: "b s", shared: "", outer: "h", inner: "f" };
        return net.build(b, x, active);
    }
    if config.gated {
        let bias = config.net_bias.then_some("gate_bias");
        b.linear(&Linear { y: "fg", x, w: "gate", bias, from: "h", to: "f" })?;
    }
    let bias = config.net_bias.then_some("up_bias");
    b.linear(&Linear { y: "fu", x, w: "up", bias, from: "h", to: "f" })?;
    b.op(&["fs"], active, &[if config.gated { "fg" } else { "fu" }])?;
    if config.gated {
        b.op(&["fp"], Binary::of(BinaryKind::Mul), &["fs", "fu"])?;
    }
    let product = if config.gated { "fp" } else { "fs" };
    let bias = config.net_bias.then_some("down_bias");
    b.linear(&Linear { y: "fd", x: product, w: "down", bias, from: "f", to: "h" })
}
