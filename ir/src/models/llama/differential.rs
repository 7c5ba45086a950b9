//! Differences of two attentions (Ye et al. 2024, Differential Transformer): the heads of the first half give, less a factor times those
//! of the second half, what a norm of each head reads. Both halves read the same values, one behind the other.

use super::config::LlamaConfig;
use super::depth::NUMBER;
use super::layers::LayerKind;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::ops::{Attention, AttentionSettings, Binary, BinaryKind, Concat, Reduce, RmsNorm, UnaryKind};
use crate::types::{DType, PartialKind};

/// Queries, keys and values: the ends of their names, and their dims.
const SIDES: [(&str, &str); 3] = [("q", "g r d"), ("k", "g d"), ("v", "g d")];

/// Dims of what heads give.
const GIVEN: &str = "g r dd";

/// The standard deviation of the first vectors of factors; `lambda_std_dev` states it, and no result but the first ones hangs on it.
const FACTORS: f64 = 0.1;

/// The parameters; the matrix that writes to the stream has the deviation `residual`.
pub(super) fn weights(config: &LlamaConfig, kind: &LayerKind<'_>, residual: f64) -> Vec<Weight> {
    let mut weights = Vec::new();
    for (side, dims) in SIDES {
        for half in 1..=2 {
            weights.push(Weight::normal(format!("w{side}{half}"), &format!("h {dims}"), config.deviation));
            weights.extend(config.qkv_bias.then(|| Weight::constant(format!("b{side}{half}"), dims, 0.0)));
        }
    }
    for half in 1..=2 {
        weights.extend(["q", "k"].map(|side| Weight::normal(format!("lambda_{side}{half}"), "d", FACTORS).undecayed()));
    }
    weights.push(Weight::normal("wo", &format!("{GIVEN} h"), residual));
    weights.extend(kind.out_bias.then(|| Weight::constant("bo", "h", 0.0)));
    weights
}

/// `y = attention(x)`
pub(super) fn build(
    config: &LlamaConfig,
    kind: &LayerKind<'_>,
    b: &mut Body<'_>,
    y: &str,
    x: &str,
) -> Result<(), DraftError> {
    for (side, dims) in SIDES {
        for half in 1..=2 {
            let [product, w, bias] = ["p", "w", "b"].map(|part| format!("{part}{side}{half}"));
            let bias = config.qkv_bias.then_some(&*bias);
            b.linear(&Linear { y: &product, x, w: &w, bias, from: "h", to: dims })?;
        }
    }
    b.op(&["v"], Concat { dim: 3 }, &["pv1", "pv2"])?;
    for half in 1..=2 {
        let [query, key, given, lse] = ["q", "k", "o", "o_lse"].map(|name| format!("{name}{half}"));
        for side in [&query, &key] {
            match kind.rotation {
                Some(rotation) => rotation.turn(b, side, &format!("p{side}"))?,
                None => b.unary(side, UnaryKind::Scale(1.0), &format!("p{side}"))?,
            }
        }
        let settings = AttentionSettings::new(config.score_scale(), config.causal);
        b.op(&[&given, &lse], Attention(settings), &[&query, &key, "v", "pos", "pos", "seg", "seg"])?;
    }
    factors(b)?;
    let product = Binary::spread(BinaryKind::Mul, &format!("b s {GIVEN}, () -> b s {GIVEN}"))?;
    let dtype = b.dtype("o1")?;
    for number in ["lambda", "rest"] {
        b.unary(&format!("{number}_narrow"), UnaryKind::Cast(dtype), number)?;
    }
    b.op(&["o2_scaled"], product.clone(), &["o2", "lambda_narrow"])?;
    b.op(&["o"], Binary::of(BinaryKind::Sub), &["o1", "o2_scaled"])?;
    b.ones("o_gain", "o", "dd")?;
    b.op(&["o_normed", "o_rstd"], RmsNorm { eps: config.norm_eps }, &["o", "o_gain"])?;
    b.op(&["o_last"], product, &["o_normed", "rest_narrow"])?;
    b.linear(&Linear { y, x: "o_last", w: "wo", bias: kind.out_bias.then_some("bo"), from: GIVEN, to: "h" })
}

/// `lambda`, the factor of the second half, and `rest`, that of the norm: `0.2 + 0.6 e^(-0.3 l)` of the number `l` of the layer.
fn factors(b: &mut Body<'_>) -> Result<(), DraftError> {
    b.scale("fall", -0.3, NUMBER)?;
    b.unary("power", UnaryKind::Exp, "fall")?;
    b.scale("first_less", -0.6, "power")?;
    b.unary("first", UnaryKind::Shift(0.8), "first_less")?;
    b.scale("first_minus", -1.0, "first")?;
    b.unary("rest", UnaryKind::Shift(1.0), "first_minus")?;
    for half in 1..=2 {
        let [product, wide, sum, power] =
            ["product", "wide", "sum", "power"].map(|name| format!("lambda{half}_{name}"));
        let [query, key] = ["q", "k"].map(|side| format!("lambda_{side}{half}"));
        b.op(&[&product], Binary::of(BinaryKind::Mul), &[&query, &key])?;
        b.unary(&wide, UnaryKind::Cast(DType::F32), &product)?;
        b.op(&[&sum], Reduce::new(PartialKind::Sum, "d -> ()")?, &[&wide])?;
        b.unary(&power, UnaryKind::Exp, &sum)?;
    }
    b.op(&["lambda_less"], Binary::of(BinaryKind::Sub), &["lambda1_power", "lambda2_power"])?;
    b.op(&["lambda"], Binary::of(BinaryKind::Add), &["lambda_less", "first"])
}
