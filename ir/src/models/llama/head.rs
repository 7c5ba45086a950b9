//! The end of a model: the last norm, a layer in front of the head's matrix, and logits.

use super::config::{HeadLayer, LlamaConfig, Norms};
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::ops::{Binary, BinaryKind, Einsum, UnaryKind};

/// The name and the dims of the head's matrix.
fn matrix(config: &LlamaConfig) -> (&'static str, String) {
    let letter = config.head_letter();
    if config.tied { ("emb", format!("v {letter}")) } else { ("out", format!("{letter} v")) }
}

/// The parameters; the matrix is the last one.
pub(super) fn weights(config: &LlamaConfig) -> Vec<Weight> {
    let mut weights = Vec::new();
    if config.norms != Norms::Sums {
        weights.extend(config.norm.weights("final_norm", "h"));
    }
    if let Some(layer) = config.head_layer {
        let letter = config.head_letter();
        weights.push(Weight::normal("head_proj", &format!("h {letter}"), config.deviation));
        weights.extend(layer.bias.then(|| Weight::constant("head_proj_bias", letter, 0.0)));
        weights.extend(config.norm.weights("head_norm", letter));
    }
    weights.extend(config.head_bias.then(|| Weight::constant("out_bias", "v", 0.0)));
    let (name, dims) = matrix(config);
    weights.push(Weight::normal(name, &dims, config.deviation));
    weights
}

/// `logits = bounded(scale (n matrix + bias))` of `x`.
pub(super) fn logits(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), DraftError> {
    let mut read = "x";
    if config.norms != Norms::Sums {
        config.norm(b, "n", "x", "final_norm")?;
        read = "n";
    }
    if let Some(layer) = config.head_layer {
        head_layer(config, layer, b, read)?;
        read = "hn";
    }
    let scaled = if config.logit_softcap.is_some() { "unbounded" } else { "logits" };
    let biased = if config.logit_scale == 1.0 { scaled } else { "unscaled" };
    let product = if config.head_bias { "unbiased" } else { biased };
    let (name, dims) = matrix(config);
    b.op(&[product], Einsum::new(&format!("b s {}, {dims} -> b s v", config.head_letter()))?, &[read, name])?;
    if config.head_bias {
        b.op(&[biased], Binary::spread(BinaryKind::Add, "b s v, v -> b s v")?, &[product, "out_bias"])?;
    }
    if config.logit_scale != 1.0 {
        b.scale(scaled, config.logit_scale, biased)?;
    }
    if let Some(softcap) = config.logit_softcap {
        b.scale("share", 1.0 / softcap, scaled)?;
        b.unary("bounded", UnaryKind::Tanh, "share")?;
        b.scale("logits", softcap, "bounded")?;
    }
    Ok(())
}

/// `hn = norm(f(x w + b))`
fn head_layer(config: &LlamaConfig, layer: HeadLayer, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let letter = config.head_letter();
    let bias = layer.bias.then_some("head_proj_bias");
    b.linear(&Linear { y: "hp", x, w: "head_proj", bias, from: "h", to: "k" })?;
    layer.activation.build(b, "ha", "hp", &format!("b s {letter}"))?;
    config.norm.build(config.norm_eps, b, letter, "hn", "ha", "head_norm")
}
