//! The feed-forward net of the LLaMA family: gated, or of two matrices.

use super::config::LlamaConfig;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::feed_forward::Gated;
use crate::ops::{Binary, BinaryKind, RmsNorm};

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
    weights.extend(config.inner_norms.then(|| Weight::constant("net_norm", "f", 1.0)));
    weights.extend(config.activation.weights());
    weights.retain(|weight| config.net_bias || !weight.name.ends_with("_bias"));
    weights
}

/// `fd = down(f(gate(x)) up(x))`, or without a gate `down(f(up(x)))`.
pub(super) fn build(config: &LlamaConfig, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let [of_gate, of_result] = config.net_scales;
    if config.gated && !config.net_bias && !config.inner_norms && config.net_scales == [1.0; 2] {
        let clamp = config.net_clamp;
        let net = Gated { values: "f", matrices: "", rows: "b s", shared: "", outer: "h", inner: "f", clamp };
        return net.build(b, x, config.activation);
    }
    if config.gated {
        let bias = config.net_bias.then_some("gate_bias");
        b.linear(&Linear { y: "fg", x, w: "gate", bias, from: "h", to: "f" })?;
    }
    let bias = config.net_bias.then_some("up_bias");
    b.linear(&Linear { y: "fu", x, w: "up", bias, from: "h", to: "f" })?;
    let mut read = if config.gated { "fg" } else { "fu" };
    if of_gate != 1.0 {
        b.scale("fg_scaled", of_gate, read)?;
        read = "fg_scaled";
    }
    config.activation.build(b, "fs", read, "b s f")?;
    if config.gated {
        b.op(&["fp"], Binary::of(BinaryKind::Mul), &["fs", "fu"])?;
    }
    let mut product = if config.gated { "fp" } else { "fs" };
    if config.inner_norms {
        b.op(&["fn", "fn_rstd"], RmsNorm { eps: config.norm_eps }, &[product, "net_norm"])?;
        product = "fn";
    }
    let bias = config.net_bias.then_some("down_bias");
    if of_result == 1.0 {
        return b.linear(&Linear { y: "fd", x: product, w: "down", bias, from: "f", to: "h" });
    }
    b.linear(&Linear { y: "fd_whole", x: product, w: "down", bias, from: "f", to: "h" })?;
    b.scale("fd", of_result, "fd_whole")
}
