//! Attention of the LLaMA family: grouped queries (Ainslie et al. 2023), or keys and values from a latent vector ([`Latent`]).
//!
//! [`Latent`]: super::latent::Latent

use super::config::{LlamaConfig, QkNorm, Temperature};
use super::layers::LayerKind;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::rotation::Rotation;
use crate::ops::{Attention, AttentionSettings, Binary, BinaryKind, Reshape, RmsNorm, UnaryKind};
use crate::types::DType;

/// The parameters of attention; the matrix that writes to the residual stream has the deviation `residual`.
pub(super) fn weights(config: &LlamaConfig, residual: f64) -> Vec<Weight> {
    let deviation = config.deviation;
    if let Some(latent) = &config.latent {
        return latent.weights(deviation, residual);
    }
    let mut weights = vec![
        Weight::normal("wq", "h g r d", deviation),
        Weight::normal("wk", "h g d", deviation),
        Weight::normal("wv", "h g d", deviation),
        Weight::normal("wo", "g r d h", residual),
    ];
    if config.qkv_bias {
        weights.extend(
            [("bq", "g r d"), ("bk", "g d"), ("bv", "g d")].map(|(name, dims)| Weight::constant(name, dims, 0.0)),
        );
    }
    weights.extend(config.out_bias.then(|| Weight::constant("bo", "h", 0.0)));
    weights.extend(config.sinks.then(|| Weight::constant("sink", "g r", 0.0)));
    match config.qk_norm {
        QkNorm::None | QkNorm::Turned => {}
        QkNorm::Heads => weights.extend(["q_norm", "k_norm"].map(|name| Weight::constant(name, "d", 1.0))),
        QkNorm::Whole => weights
            .extend([("q_norm", "g r d"), ("k_norm", "g d")].map(|(name, dims)| Weight::constant(name, dims, 1.0))),
    }
    weights
}

/// `p = attention(x)`
pub(super) fn build(config: &LlamaConfig, kind: &LayerKind<'_>, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let value = match &config.latent {
        Some(latent) => {
            let rotation = kind.rotation.ok_or(DraftError::NoPositions)?;
            latent.heads(rotation, b, x).map(|()| "dv")?
        }
        None => heads(config, kind, b, x).map(|()| "d")?,
    };
    let settings = AttentionSettings {
        window: kind.window.filter(|window| !window.chunked).map(|window| window.tokens),
        chunk: kind.window.filter(|window| window.chunked).map(|window| window.tokens),
        softcap: config.softcap,
        ..AttentionSettings::new(config.score_scale(), true)
    };
    let operands = ["q", "k", "v", "pos", "pos", "seg", "seg", "sink"];
    b.op(&["o", "o_lse"], Attention(settings), &operands[..7 + usize::from(config.sinks)])?;
    let bias = config.out_bias.then_some("bo");
    b.linear(&Linear { y: "p", x: "o", w: "wo", bias, from: &format!("g r {value}"), to: "h" })
}

/// A step from the product of queries or keys to what attention reads.
#[derive(Clone, Copy)]
enum Step<'a> {
    Norm,
    Turn(&'a Rotation),
    Temper(Temperature),
}

/// The steps of queries, or of keys.
fn steps<'a>(config: &LlamaConfig, kind: &LayerKind<'a>, of_queries: bool) -> Vec<Step<'a>> {
    let turns = kind.rotation.map(Step::Turn);
    let before = matches!(config.qk_norm, QkNorm::Heads | QkNorm::Whole).then_some(Step::Norm);
    let after = (config.qk_norm == QkNorm::Turned && kind.rotation.is_some()).then_some(Step::Norm);
    let temper = config.temperature.filter(|_| kind.rotation.is_none() && of_queries).map(Step::Temper);
    [before, turns, after, temper].into_iter().flatten().collect()
}

/// Queries, keys or values.
struct Side<'a> {
    /// `q`, `k` or `v`, which also ends the names of the matrix and of the bias.
    name: &'static str,
    /// Its dims behind `b s`.
    heads: &'static str,
    /// The steps from the product to what attention reads.
    steps: Vec<Step<'a>>,
}

impl Side<'_> {
    /// The name of its value after the first steps; after the last one that of the side.
    fn value(&self, steps: usize) -> String {
        if steps == self.steps.len() { self.name.to_string() } else { format!("{}{steps}", self.name) }
    }
}

/// `q`, `k` and `v` of `x`.
fn heads(config: &LlamaConfig, kind: &LayerKind<'_>, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let sides = [
        Side { name: "q", heads: "g r d", steps: steps(config, kind, true) },
        Side { name: "k", heads: "g d", steps: steps(config, kind, false) },
        Side { name: "v", heads: "g d", steps: Vec::new() },
    ];
    for side in &sides {
        let (y, w, bias) = (side.value(0), format!("w{}", side.name), format!("b{}", side.name));
        let bias = config.qkv_bias.then_some(&*bias);
        b.linear(&Linear { y: &y, x, w: &w, bias, from: "h", to: side.heads })?;
    }
    let longest = sides.iter().map(|side| side.steps.len()).max().unwrap_or(0);
    for number in 0..longest {
        for side in &sides {
            let Some(step) = side.steps.get(number) else { continue };
            let (from, to) = (side.value(number), side.value(number + 1));
            match step {
                Step::Norm => qk_norm(config, b, side, &from, &to)?,
                Step::Turn(rotation) => rotation.turn(b, &to, &from)?,
                Step::Temper(temperature) => temper(b, *temperature, &to, &from)?,
            }
        }
    }
    Ok(())
}

/// `y = x (1 + by ln(1 + floor((pos + 1) / every)))`, computed in f32.
fn temper(b: &mut Body<'_>, temperature: Temperature, y: &str, x: &str) -> Result<(), DraftError> {
    let Temperature { every, by } = temperature;
    let dtype = b.dtype(x)?;
    b.unary("at", UnaryKind::Cast(DType::F32), "pos")?;
    // Half a token more keeps whole quotients whole under rounding.
    b.unary("at_next", UnaryKind::Shift(1.5), "at")?;
    b.unary("periods", UnaryKind::Scale(1.0 / every as f64), "at_next")?;
    b.unary("period", UnaryKind::Floor, "periods")?;
    b.unary("period_next", UnaryKind::Shift(1.0), "period")?;
    b.unary("period_log", UnaryKind::Log, "period_next")?;
    b.unary("growth", UnaryKind::Scale(by), "period_log")?;
    b.unary("temperature", UnaryKind::Shift(1.0), "growth")?;
    let product = Binary::spread(BinaryKind::Mul, "b s g r d, b s -> b s g r d")?;
    if dtype == DType::F32 {
        return b.op(&[y], product, &[x, "temperature"]);
    }
    b.unary("q_wide", UnaryKind::Cast(DType::F32), x)?;
    b.op(&["q_tempered"], product, &["q_wide", "temperature"])?;
    b.unary(y, UnaryKind::Cast(dtype), "q_tempered")
}

/// The norm of queries or keys.
fn qk_norm(
    config: &LlamaConfig,
    b: &mut Body<'_>,
    side: &Side<'_>,
    plain: &str,
    normed: &str,
) -> Result<(), DraftError> {
    let Side { name: side, heads, .. } = side;
    let norm = RmsNorm { eps: config.norm_eps };
    let (rstd, gain) = (format!("{side}_rstd"), format!("{side}_norm"));
    match config.qk_norm {
        QkNorm::None => Ok(()),
        QkNorm::Heads => b.op(&[normed, &rstd], norm, &[plain, &gain]),
        QkNorm::Turned => {
            // Queries come first, and keys have the same gain.
            if *side == "q" {
                b.ones("qk_norm", plain, "d")?;
            }
            b.op(&[normed, &rstd], norm, &[plain, "qk_norm"])
        }
        QkNorm::Whole => {
            let count = if *side == "q" { config.heads } else { config.kv_heads };
            let size = count * config.head;
            let (flat, flat_gain) = (format!("{side}_flat"), format!("{side}_flat_gain"));
            let flat_normed = format!("{side}_flat_normed");
            b.op(&[&flat], Reshape { dims: b.dims(&format!("b s {size}")) }, &[plain])?;
            b.op(&[&flat_gain], Reshape { dims: b.dims(&size.to_string()) }, &[&gain])?;
            b.op(&[&flat_normed, &rstd], norm, &[&flat, &flat_gain])?;
            b.op(&[normed], Reshape { dims: b.dims(&format!("b s {heads}")) }, &[&flat_normed])
        }
    }
}
