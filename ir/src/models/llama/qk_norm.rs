//! The norms of queries and keys.

use super::attention::Side;
use super::config::{LlamaConfig, QkNorm};
use super::layers::{HeadDims, LayerKind};
use crate::models::draft::{Body, DraftError, Weight};
use crate::ops::{Binary, BinaryKind, LayerNorm, Reshape, RmsNorm};

/// The gains of queries and of keys, and their biases.
pub(super) fn weights(norm: QkNorm, heads: HeadDims) -> Vec<Weight> {
    let dims = match norm {
        QkNorm::None | QkNorm::Turned => return Vec::new(),
        QkNorm::Heads | QkNorm::HeadsTurned | QkNorm::LayerHeads => [heads.size; 2],
        QkNorm::Whole | QkNorm::LayerEach => [heads.queries, heads.keys],
    };
    let mut weights: Vec<Weight> =
        ["q_norm", "k_norm"].iter().zip(dims).map(|(name, dims)| Weight::constant(*name, dims, 1.0)).collect();
    if norm == QkNorm::LayerHeads {
        weights.extend(["q_norm_bias", "k_norm_bias"].map(|name| Weight::constant(name, heads.size, 0.0)));
    }
    weights
}

/// The norm of queries or keys.
pub(super) fn build(
    config: &LlamaConfig,
    kind: &LayerKind<'_>,
    b: &mut Body<'_>,
    side: &Side<'_>,
    plain: &str,
    normed: &str,
) -> Result<(), DraftError> {
    let eps = config.norm_eps;
    let Side { name: side, heads, .. } = side;
    let [mean, rstd, gain] = ["mean", "rstd", "norm"].map(|end| format!("{side}_{end}"));
    match config.qk_norm {
        QkNorm::None => Ok(()),
        QkNorm::Heads | QkNorm::HeadsTurned => b.op(&[normed, &rstd], RmsNorm { eps }, &[plain, &gain]),
        QkNorm::Turned => {
            // Queries come first, and keys have the same gain.
            if *side == "q" {
                b.ones("qk_norm", plain, kind.dims.size)?;
            }
            b.op(&[normed, &rstd], RmsNorm { eps }, &[plain, "qk_norm"])
        }
        QkNorm::LayerHeads => {
            b.op(&[normed, &mean, &rstd], LayerNorm { eps }, &[plain, &gain, &format!("{gain}_bias")])
        }
        QkNorm::LayerEach => {
            if *side == "q" {
                b.ones("qk_ones", plain, kind.dims.size)?;
                b.zeros("qk_zeros", plain, kind.dims.size)?;
            }
            let alike = format!("{side}_alike");
            b.op(&[&alike, &mean, &rstd], LayerNorm { eps }, &[plain, "qk_ones", "qk_zeros"])?;
            let product = Binary::spread(BinaryKind::Mul, &format!("b s {heads}, {heads} -> b s {heads}"))?;
            b.op(&[normed], product, &[&alike, &gain])
        }
        QkNorm::Whole => {
            let count = if *side == "q" { config.heads } else { kind.kv_heads };
            let all = AllHeads { dims: heads, size: count * kind.head };
            flat_norm(b, eps, &all, normed, plain, &gain)
        }
    }
}

/// Heads that are one row.
pub(in crate::models) struct AllHeads<'a> {
    /// Their dims behind `b s`.
    pub(in crate::models) dims: &'a str,
    /// The elements of all of them.
    pub(in crate::models) size: u64,
}

/// A norm of all heads together: `normed` of `plain`, with gains of each element.
pub(in crate::models) fn flat_norm(
    b: &mut Body<'_>,
    eps: f64,
    all: &AllHeads<'_>,
    normed: &str,
    plain: &str,
    gain: &str,
) -> Result<(), DraftError> {
    let AllHeads { dims, size } = *all;
    let side = gain.trim_end_matches("_norm");
    let [flat, flat_gain, flat_normed, rstd] =
        ["flat", "flat_gain", "flat_normed", "rstd"].map(|end| format!("{side}_{end}"));
    b.op(&[&flat], Reshape { dims: b.dims(&format!("b s {size}")) }, &[plain])?;
    b.op(&[&flat_gain], Reshape { dims: b.dims(&size.to_string()) }, &[gain])?;
    b.op(&[&flat_normed, &rstd], RmsNorm { eps }, &[&flat, &flat_gain])?;
    b.op(&[normed], Reshape { dims: b.dims(&format!("b s {dims}")) }, &[&flat_normed])
}
