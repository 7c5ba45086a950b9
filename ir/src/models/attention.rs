//! Attention of the LLaMA family: grouped queries (Ainslie et al. 2023), and keys and values from a latent vector
//! (DeepSeek-V2, section 2.1).

use super::config::{ConfigError, invalid, positive};
use super::draft::{Body, Weight};
use super::llama::LlamaConfig;
use crate::dim_role::DimRole;
use crate::ops::{Attention, Binary, BinaryKind, Broadcast, Concat, Einsum, Equation, RmsNorm, Rope};
use crate::types::DimName;
use serde::Serialize;

/// Added to the mean square in the norms of latent vectors. DeepSeek's code leaves these norms at the default of their class,
/// whatever a configuration states for the others.
const LATENT_NORM: RmsNorm = RmsNorm { eps: 1e-6 };

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
            Weight::normal("wqn", &format!("{from} g r dn"), deviation),
            Weight::normal("wqr", &format!("{from} g r dr"), deviation),
            Weight::normal("wdkv", "h lk", deviation),
            Weight::constant("kv_norm", "lk", 1.0),
            Weight::normal("wkn", "lk g dn", deviation),
            Weight::normal("wkr", "h dr", deviation),
            Weight::normal("wv", "lk g dv", deviation),
            Weight::normal("wo", "g r dv h", residual),
        ]);
        weights
    }

    /// `q`, `k` and `v` of `a`.
    fn heads(&self, config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), String> {
        let (query, from) = if self.query_rank.is_some() { ("cq", "lq") } else { ("a", "h") };
        if self.query_rank.is_some() {
            b.op(&["cq0"], Einsum::new("b s h, h lq -> b s lq")?, &["a", "wdq"])?;
            b.op(&["cq", "cq_rstd"], LATENT_NORM, &["cq0", "q_norm"])?;
        }
        for (y, w, d) in [("qn", "wqn", "dn"), ("qr0", "wqr", "dr")] {
            b.op(&[y], Einsum::new(&format!("b s {from}, {from} g r {d} -> b s g r {d}"))?, &[query, w])?;
        }
        b.op(&["ckv0"], Einsum::new("b s h, h lk -> b s lk")?, &["a", "wdkv"])?;
        b.op(&["ckv", "ckv_rstd"], LATENT_NORM, &["ckv0", "kv_norm"])?;
        for (y, w, d) in [("kn", "wkn", "dn"), ("v", "wv", "dv")] {
            b.op(&[y], Einsum::new(&format!("b s lk, lk g {d} -> b s g {d}"))?, &["ckv", w])?;
        }
        b.op(&["kr0"], Einsum::new("b s h, h dr -> b s dr")?, &["a", "wkr"])?;
        let scaled = config.turned_factor != 1.0;
        for (turned, plain) in [(if scaled { "qr1" } else { "qr" }, "qr0"), ("kr1", "kr0")] {
            b.op(&[turned], config.rope(), &[plain, "pos"])?;
        }
        if scaled {
            b.scale("qr", config.turned_factor, "qr1")?;
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
    if config.qk_norm {
        weights.extend(["q_norm", "k_norm"].map(|name| Weight::constant(name, "d", 1.0)));
    }
    weights
}

/// `x1 = x + attention(norm(x))`
pub(super) fn build(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), String> {
    b.op(&["a", "a_rstd"], RmsNorm { eps: config.norm_eps }, &["x", "norm1"])?;
    let value = match &config.latent {
        Some(latent) => latent.heads(config, b).map(|()| "dv")?,
        None => heads(config, b).map(|()| "d")?,
    };
    let attention = Attention { scale: config.score_scale(), causal: true, dropout: None, piece: None };
    b.op(&["o", "o_lse"], attention, &["q", "k", "v", "pos", "pos", "seg", "seg"])?;
    b.op(&["p"], Einsum::new(&format!("b s g r {value}, g r {value} h -> b s h"))?, &["o", "wo"])?;
    b.op(&["x1"], Binary::of(BinaryKind::Add), &["x", "p"])
}

/// `q`, `k` and `v` of `a`.
fn heads(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), String> {
    for (y, name, heads) in [("q0", "q", "g r d"), ("k0", "k", "g d"), ("v", "v", "g d")] {
        let (product, weight) = (Einsum::new(&format!("b s h, h {heads} -> b s {heads}"))?, format!("w{name}"));
        if config.qkv_bias {
            let unbiased = format!("{name}w");
            b.op(&[&unbiased], product, &["a", &weight])?;
            let add = Binary::spread(BinaryKind::Add, &format!("b s {heads}, {heads} -> b s {heads}"))?;
            b.op(&[y], add, &[&unbiased, &format!("b{name}")])?;
        } else {
            b.op(&[y], product, &["a", &weight])?;
        }
    }
    let mut plain = ["q0", "k0"];
    if config.qk_norm {
        for (y, rstd, x, gamma) in [("q1", "q_rstd", "q0", "q_norm"), ("k1", "k_rstd", "k0", "k_norm")] {
            b.op(&[y, rstd], RmsNorm { eps: config.norm_eps }, &[x, gamma])?;
        }
        plain = ["q1", "k1"];
    }
    let rope: Rope = config.rope();
    for (turned, plain) in ["q", "k"].into_iter().zip(plain) {
        b.op(&[turned], rope.clone(), &[plain, "pos"])?;
    }
    Ok(())
}
