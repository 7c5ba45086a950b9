//! Keys and values from a latent vector (DeepSeek-V2, section 2.1).

use crate::dim_role::DimRole;
use crate::models::draft::{Body, DraftError, Weight};
use crate::models::error::{ConfigError, invalid, positive};
use crate::models::rotation::Rotation;
use crate::ops::{Binary, BinaryKind, Broadcast, Concat, Einsum, Equation, Reshape, RmsNorm};
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
    /// A further factor of all scores, of both parts (DeepSeek's `mscale_all_dim`).
    pub score_factor: f64,
    /// Queries come from their vector and its norm together, and so do gates of what heads give (A.X K2).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}

/// Names of the parts of queries and keys that turn, if there is a rotation.
pub(super) struct Turned {
    pub(super) query: &'static str,
    pub(super) key: &'static str,
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
        let both = self.query_rank.filter(|_| self.gated);
        dims.extend(both.map(|rank| DimName::new("lw", rank.saturating_mul(2), None)));
        dims
    }

    /// The parameters. With absorbed heads, each query head of the one key head has matrices of its own for keys and values.
    pub(super) fn weights(&self, deviation: f64, residual: f64, is_absorbed: bool) -> Vec<Weight> {
        let heads = if is_absorbed { "g r" } else { "g" };
        let mut weights = Vec::new();
        if self.query_rank.is_some() {
            weights.push(Weight::normal("wdq", "h lq", deviation));
            weights.push(Weight::constant("q_norm", "lq", 1.0));
        }
        let from = self.query_dims();
        if self.gated {
            weights.push(Weight::normal("wg", &format!("{from} g r dv"), deviation).part_of("q_b"));
        }
        weights.extend([
            Weight::normal("wqn", &format!("{from} g r dn"), deviation).part_of("q_b"),
            Weight::normal("wqr", &format!("{from} g r dr"), deviation).part_of("q_b"),
            Weight::normal("wdkv", "h lk", deviation).part_of("kv_a"),
            Weight::constant("kv_norm", "lk", 1.0),
            Weight::normal("wkn", &format!("lk {heads} dn"), deviation).part_of("kv_b"),
            Weight::normal("wkr", "h dr", deviation).part_of("kv_a"),
            Weight::normal("wv", &format!("lk {heads} dv"), deviation).part_of("kv_b"),
            Weight::normal("wo", "g r dv h", residual),
        ]);
        weights
    }

    /// The dim of what queries come from.
    fn query_dims(&self) -> &'static str {
        match self.query_rank {
            Some(_) if self.gated => "lw",
            Some(_) => "lq",
            None => "h",
        }
    }

    /// The name of what heads give, `o`, times their gates, if they have any.
    pub(super) fn gate(&self, b: &mut Body<'_>) -> Result<&'static str, DraftError> {
        if !self.gated {
            return Ok("o");
        }
        b.op(&["og"], Einsum::new("b s lw, lw g r dv -> b s g r dv")?, &["cqw", "wg"])?;
        b.sigmoid("ov", "og")?;
        b.op(&["ow"], Binary::of(BinaryKind::Mul), &["o", "ov"])?;
        Ok("ow")
    }

    /// `q`, `k` and `v` of `x`; without a rotation no part turns (Kimi Linear).
    pub(super) fn heads(&self, rotation: Option<&Rotation>, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        let Turned { query, key } = self.parts(rotation, b, x)?;
        for (y, w, d) in [("kn", "wkn", "dn"), ("v", "wv", "dv")] {
            b.op(&[y], Einsum::new(&format!("b s lk, lk g {d} -> b s g {d}"))?, &["ckv", w])?;
        }
        let to_heads = Broadcast { equation: Equation::parse("b s dr -> b s g dr")?, free: b.dims("g") };
        b.op(&["kr"], to_heads, &[key])?;
        b.op(&["q"], Concat { dim: 4 }, &["qn", query])?;
        b.op(&["k"], Concat { dim: 3 }, &["kn", "kr"])
    }

    /// The parts of queries, `qn` and the one that turns, the latent vector `ckv`, and the part of keys that turns.
    pub(super) fn parts(&self, rotation: Option<&Rotation>, b: &mut Body<'_>, x: &str) -> Result<Turned, DraftError> {
        let from = self.query_dims();
        let query = match self.query_rank {
            Some(_) if self.gated => "cqw",
            Some(_) => "cq",
            None => x,
        };
        if self.query_rank.is_some() {
            b.op(&["cq0"], Einsum::new("b s h, h lq -> b s lq")?, &[x, "wdq"])?;
            b.op(&["cq", "cq_rstd"], LATENT_NORM, &["cq0", "q_norm"])?;
        }
        if self.gated {
            b.op(&["cqw_parts"], Concat { dim: 2 }, &["cq", "cq0"])?;
            b.op(&["cqw"], Reshape { dims: b.dims("b s lw") }, &["cqw_parts"])?;
        }
        for (y, w, d) in [("qn", "wqn", "dn"), ("qr0", "wqr", "dr")] {
            b.op(&[y], Einsum::new(&format!("b s {from}, {from} g r {d} -> b s g r {d}"))?, &[query, w])?;
        }
        b.op(&["ckv0"], Einsum::new("b s h, h lk -> b s lk")?, &[x, "wdkv"])?;
        b.op(&["ckv", "ckv_rstd"], LATENT_NORM, &["ckv0", "kv_norm"])?;
        b.op(&["kr0"], Einsum::new("b s h, h dr -> b s dr")?, &[x, "wkr"])?;
        let Some(rotation) = rotation else { return Ok(Turned { query: "qr0", key: "kr0" }) };
        rotation.turn(b, "qr", "qr0")?;
        rotation.turn(b, "kr1", "kr0")?;
        Ok(Turned { query: "qr", key: "kr1" })
    }
}
