//! Attention of the LLaMA family: grouped queries (Ainslie et al. 2023), and keys and values from a latent vector
//! (DeepSeek-V2, section 2.1).

use super::config::{ConfigError, invalid, positive};
use super::draft::{Body, Weight};
use super::layers::{LENGTHS, LayerKind};
use super::llama::{LlamaConfig, Temperature};
use super::rotation::Rotation;
use crate::dim_role::DimRole;
use crate::ops::{
    Attention, AttentionSettings, Binary, BinaryKind, Broadcast, Concat, Einsum, Equation, Reshape, RmsNorm, Scaling,
    Unary, UnaryKind,
};
use crate::types::{DType, DimName};
use serde::Serialize;

/// Added to the mean square in the norms of latent vectors. DeepSeek's code leaves these norms at the default of their class,
/// whatever a configuration states for the others.
const LATENT_NORM: RmsNorm = RmsNorm { eps: 1e-6 };

/// The norms of queries and keys, before positions turn them unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum QkNorm {
    /// None.
    None,
    /// One of each head, with one gain for all heads (Qwen3, Gemma 3).
    Heads,
    /// One of all heads together, with a gain of each element (OLMo 2).
    Whole,
    /// One of each head without a gain, after positions turned it, and only where they do (Llama 4).
    Turned,
}

/// Multi-head latent attention: queries, keys and values grow out of small vectors, and positions turn a part of their own.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latent {
    /// Size of the vector that queries come from; none: they come from the stream.
    pub query_rank: Option<u64>,
    /// Size of the vector that keys and values come from.
    pub key_rank: u64,
    /// Size of the part of queries and keys without positions.
    pub plain: u64,
    /// Size of the part with positions; that of keys is one for all heads.
    pub turned: u64,
    /// Size of values.
    pub value: u64,
    /// A further factor of all scores, of both parts (DeepSeek's `mscale_all_dim`).
    pub score_factor: f64,
}

impl Latent {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("q_lora_rank", self.query_rank.unwrap_or(1)),
            ("kv_lora_rank", self.key_rank),
            ("qk_nope_head_dim", self.plain),
            ("qk_rope_head_dim", self.turned),
            ("v_head_dim", self.value),
        ];
        sizes.into_iter().try_for_each(|(field, size)| positive(field, size))?;
        if self.turned.is_multiple_of(2) {
            return Ok(());
        }
        Err(invalid("qk_rope_head_dim", format!("{} is odd; rotary positions turn pairs", self.turned)))
    }

    /// The dims that it adds.
    pub(super) fn dims(&self) -> Vec<DimName> {
        let mut dims = vec![
            DimName::new("lk", self.key_rank, Some(DimRole::KvLatent)),
            DimName::new("dn", self.plain, None),
            DimName::new("dr", self.turned, Some(DimRole::RotaryHead)),
            DimName::new("dv", self.value, None),
        ];
        dims.extend(self.query_rank.map(|rank| DimName::new("lq", rank, None)));
        dims
    }

    fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let mut weights = Vec::new();
        if self.query_rank.is_some() {
            weights.push(Weight::normal("wdq", "h lq", deviation));
            weights.push(Weight::constant("q_norm", "lq", 1.0));
        }
        let from = if self.query_rank.is_some() { "lq" } else { "h" };
        weights.extend([
            Weight::normal("wqn", &format!("{from} g r dn"), deviation).part_of("q_b"),
            Weight::normal("wqr", &format!("{from} g r dr"), deviation).part_of("q_b"),
            Weight::normal("wdkv", "h lk", deviation).part_of("kv_a"),
            Weight::constant("kv_norm", "lk", 1.0),
            Weight::normal("wkn", "lk g dn", deviation).part_of("kv_b"),
            Weight::normal("wkr", "h dr", deviation).part_of("kv_a"),
            Weight::normal("wv", "lk g dv", deviation).part_of("kv_b"),
            Weight::normal("wo", "g r dv h", residual),
        ]);
        weights
    }

    /// `q`, `k` and `v` of `x`.
    fn heads(&self, rotation: &Rotation, b: &mut Body<'_>, x: &str) -> Result<(), String> {
        let (query, from) = if self.query_rank.is_some() { ("cq", "lq") } else { (x, "h") };
        if self.query_rank.is_some() {
            b.op(&["cq0"], Einsum::new("b s h, h lq -> b s lq")?, &[x, "wdq"])?;
            b.op(&["cq", "cq_rstd"], LATENT_NORM, &["cq0", "q_norm"])?;
        }
        for (y, w, d) in [("qn", "wqn", "dn"), ("qr0", "wqr", "dr")] {
            b.op(&[y], Einsum::new(&format!("b s {from}, {from} g r {d} -> b s g r {d}"))?, &[query, w])?;
        }
        b.op(&["ckv0"], Einsum::new("b s h, h lk -> b s lk")?, &[x, "wdkv"])?;
        b.op(&["ckv", "ckv_rstd"], LATENT_NORM, &["ckv0", "kv_norm"])?;
        for (y, w, d) in [("kn", "wkn", "dn"), ("v", "wv", "dv")] {
            b.op(&[y], Einsum::new(&format!("b s lk, lk g {d} -> b s g {d}"))?, &["ckv", w])?;
        }
        b.op(&["kr0"], Einsum::new("b s h, h dr -> b s dr")?, &[x, "wkr"])?;
        for (turned, plain) in [("qr", "qr0"), ("kr1", "kr0")] {
            turn(rotation, b, [turned, plain])?;
        }
        let to_heads = Broadcast { equation: Equation::parse("b s dr -> b s g dr")?, free: b.dims("g") };
        b.op(&["kr"], to_heads, &["kr1"])?;
        b.op(&["q"], Concat { dim: 4 }, &["qn", "qr"])?;
        b.op(&["k"], Concat { dim: 3 }, &["kn", "kr"])
    }
}

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
pub(super) fn build(config: &LlamaConfig, kind: &LayerKind<'_>, b: &mut Body<'_>, x: &str) -> Result<(), String> {
    let value = match &config.latent {
        Some(latent) => {
            let rotation = kind.rotation.ok_or("latent attention has positions in each layer")?;
            latent.heads(rotation, b, x).map(|()| "dv")?
        }
        None => heads(config, kind, b, x).map(|()| "d")?,
    };
    let tokens = |chunked| kind.window.filter(|window| window.chunked == chunked).map(|window| window.tokens);
    let settings = AttentionSettings {
        window: tokens(false),
        chunk: tokens(true),
        softcap: config.softcap,
        ..AttentionSettings::new(config.score_scale(), true)
    };
    let operands = ["q", "k", "v", "pos", "pos", "seg", "seg", "sink"];
    b.op(&["o", "o_lse"], Attention(settings), &operands[..7 + usize::from(config.sinks)])?;
    let bias = config.out_bias.then_some("bo");
    b.linear(["p", "o", "wo"], bias, [&format!("g r {value}"), &format!("g r {value} h"), "h"])
}

/// `y` is `x`, turned by its positions.
fn turn(rotation: &Rotation, b: &mut Body<'_>, [y, x]: [&str; 2]) -> Result<(), String> {
    let by_length = rotation.scaling.as_ref().is_some_and(Scaling::reads_lengths);
    b.op(&[y], rotation.op(), &[x, "pos", LENGTHS][..2 + usize::from(by_length)])
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
    let norm = |has: bool| has.then_some(Step::Norm);
    let before = norm(matches!(config.qk_norm, QkNorm::Heads | QkNorm::Whole));
    let after = norm(config.qk_norm == QkNorm::Turned && kind.rotation.is_some());
    let temper = config.temperature.filter(|_| kind.rotation.is_none() && of_queries).map(Step::Temper);
    [before, turns, after, temper].into_iter().flatten().collect()
}

/// `q`, `k` and `v` of `x`.
fn heads(config: &LlamaConfig, kind: &LayerKind<'_>, b: &mut Body<'_>, x: &str) -> Result<(), String> {
    let sides = [("q", "wq", "bq", "g r d"), ("k", "wk", "bk", "g d"), ("v", "wv", "bv", "g d")];
    let steps_of = |side: &str| if side == "v" { Vec::new() } else { steps(config, kind, side == "q") };
    // The last step has the name of its side.
    let name = |side: &str, step: usize| {
        if step == steps_of(side).len() { side.to_string() } else { format!("{side}{step}") }
    };
    for (side, weight, bias, heads) in sides {
        let bias = config.qkv_bias.then_some(bias);
        b.linear([&name(side, 0), x, weight], bias, ["h", &format!("h {heads}"), heads])?;
    }
    let longest = steps_of("q").len().max(steps_of("k").len());
    for number in 0..longest {
        for (side, _, _, heads) in &sides[..2] {
            let Some(step) = steps_of(side).get(number).copied() else { continue };
            let [from, to] = [number, number + 1].map(|step| name(side, step));
            match step {
                Step::Norm => qk_norm(config, b, side, heads, [&from, &to])?,
                Step::Turn(rotation) => turn(rotation, b, [&to, &from])?,
                Step::Temper(temperature) => temper(b, temperature, [&to, &from])?,
            }
        }
    }
    Ok(())
}

/// `y = x (1 + by ln(1 + floor((pos + 1) / every)))`, computed in f32.
fn temper(b: &mut Body<'_>, Temperature { every, by }: Temperature, [y, x]: [&str; 2]) -> Result<(), String> {
    let dtype = b.dtype(x)?;
    let mut unary = |y: &str, kind: UnaryKind, x: &str| b.op(&[y], Unary(kind), &[x]);
    unary("at", UnaryKind::Cast(DType::F32), "pos")?;
    // Half a token more keeps whole quotients whole under rounding.
    unary("at_next", UnaryKind::Shift(1.5), "at")?;
    unary("periods", UnaryKind::Scale(1.0 / every as f64), "at_next")?;
    unary("period", UnaryKind::Floor, "periods")?;
    unary("period_next", UnaryKind::Shift(1.0), "period")?;
    unary("period_log", UnaryKind::Log, "period_next")?;
    unary("growth", UnaryKind::Scale(by), "period_log")?;
    unary("temperature", UnaryKind::Shift(1.0), "growth")?;
    let product = Binary::spread(BinaryKind::Mul, "b s g r d, b s -> b s g r d")?;
    if dtype == DType::F32 {
        return b.op(&[y], product, &[x, "temperature"]);
    }
    b.op(&["q_wide"], Unary(UnaryKind::Cast(DType::F32)), &[x])?;
    b.op(&["q_tempered"], product, &["q_wide", "temperature"])?;
    b.op(&[y], Unary(UnaryKind::Cast(dtype)), &["q_tempered"])
}

/// The norm of queries or keys.
fn qk_norm(
    config: &LlamaConfig,
    b: &mut Body<'_>,
    side: &str,
    heads: &str,
    [plain, normed]: [&str; 2],
) -> Result<(), String> {
    let norm = RmsNorm { eps: config.norm_eps };
    let [rstd, gain] = ["_rstd", "_norm"].map(|suffix| format!("{side}{suffix}"));
    match config.qk_norm {
        QkNorm::None => Ok(()),
        QkNorm::Heads => b.op(&[normed, &rstd], norm, &[plain, &gain]),
        QkNorm::Turned => {
            // Queries come first, and keys have the same gain.
            if side == "q" {
                b.ones("qk_norm", plain, "d")?;
            }
            b.op(&[normed, &rstd], norm, &[plain, "qk_norm"])
        }
        QkNorm::Whole => {
            let count = if side == "q" { config.heads } else { config.kv_heads };
            let size = count * config.head;
            let [flat, flat_gain, flat_normed] =
                ["flat", "flat_gain", "flat_normed"].map(|suffix| format!("{side}_{suffix}"));
            b.op(&[&flat], Reshape { dims: b.dims(&format!("b s {size}")) }, &[plain])?;
            b.op(&[&flat_gain], Reshape { dims: b.dims(&size.to_string()) }, &[&gain])?;
            b.op(&[&flat_normed, &rstd], norm, &[&flat, &flat_gain])?;
            b.op(&[normed], Reshape { dims: b.dims(&format!("b s {heads}")) }, &[&flat_normed])
        }
    }
}
