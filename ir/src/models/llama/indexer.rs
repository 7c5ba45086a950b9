//! Sparse attention over latent vectors: a small indexer scores all keys, and a query attends to the best ones (DeepSeek-AI 2025,
//! DeepSeek-V3.2, section 2.1). Heads share one key, the latent vector itself, as the products with `wkn` and `wv` are moved to queries
//! and results: a query then gathers one row for each key that it chose, and not one for each head.

use super::latent::{Latent, Turned};
use crate::models::draft::{Body, Draft, DraftError, Weight};
use crate::models::error::{ConfigError, invalid, not_negative, positive};
use crate::models::layer_set::LayerSet;
use crate::models::rotation::Rotation;
use crate::ops::{
    Concat, Einsum, IndexLoss, IndexScores, Iota, KeyMass, LayerNorm, Reshape, SelectKeys, SparseAttention, UnaryKind,
};
use crate::types::{DType, Dim, DimName, Type};
use serde::Serialize;

/// Added to the variance in the norm of the indexer's keys, whatever a configuration states for others: `DeepseekV32Indexer` of Hugging
/// Face's `transformers`.
const KEY_NORM: LayerNorm = LayerNorm { eps: 1e-6 };

/// The choice of each query.
pub(super) const CHOICE: &str = "choice";

/// The term of the loss that trains an indexer.
pub(super) const INDEX_LOSS: &str = "index_loss";

/// The indexers of a model.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Indexer {
    /// Heads.
    pub heads: u64,
    /// Size of a head.
    pub head: u64,
    /// The most keys of a query.
    pub keys: u64,
    /// The layers without an indexer: they take the choice of the last one with one (GLM).
    pub shared: LayerSet,
    /// The factor of the loss that trains it, the mean of a layer over tokens; none: it is not trained.
    pub loss: Option<f64>,
}

impl Indexer {
    pub(super) fn check(&self, latent: Option<&Latent>) -> Result<(), ConfigError> {
        let sizes = [("index_n_heads", self.heads), ("index_head_dim", self.head), ("index_topk", self.keys)];
        sizes.into_iter().try_for_each(|(field, size)| positive(field, size))?;
        not_negative("index_loss_coef", self.loss.unwrap_or(0.0))?;
        let Some(latent) = latent.filter(|latent| latent.query_rank.is_some()) else {
            return Err(invalid("q_lora_rank", "null: an indexer reads the small vector of queries".to_string()));
        };
        if latent.turned > self.head {
            let why = format!("{} is less than `qk_rope_head_dim` {}, the part that turns", self.head, latent.turned);
            return Err(invalid("index_head_dim", why));
        }
        if self.shared.contains(0) {
            return Err(invalid("indexer_types", "the first layer has no choice to share".to_string()));
        }
        Ok(())
    }

    /// The dims that it adds.
    pub(super) fn dims(&self) -> Vec<DimName> {
        vec![DimName::new("i", self.heads, None), DimName::new("di", self.head, None)]
    }

    /// The parameters, which stay as they are where no loss trains them.
    pub(super) fn weights(&self, deviation: f64) -> Vec<Weight> {
        let weights = [
            Weight::normal("wiq", "lq i di", deviation),
            Weight::normal("wik", "h di", deviation),
            Weight::constant("ik_norm", "di", 1.0),
            Weight::constant("ik_norm_bias", "di", 0.0),
            Weight::normal("wiw", "h i", deviation),
        ];
        let is_trained = self.loss.is_some();
        weights.into_iter().map(|weight| if is_trained { weight } else { weight.frozen() }).collect()
    }

    /// True if layers pass a choice on.
    pub(super) fn passes(&self) -> bool {
        self.shared != LayerSet::None
    }

    /// The type of a choice.
    pub(super) fn choice(&self, draft: &Draft) -> Type {
        let ids = draft.ids();
        Type { dims: [ids.dims, vec![Dim::sized(self.keys)]].concat(), ..draft.ids() }
    }

    /// `%choice` in front of the first layer, which makes its own.
    pub(super) fn first(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        let dims = [b.dims("b s"), vec![Dim::sized(self.keys)]].concat();
        b.op(&[CHOICE], Iota { dim: 2, dims, dtype: DType::I32 }, &[])
    }

    /// `%choice`, of the stream `x` and the small vector of queries.
    pub(super) fn choose(
        &self,
        latent: &Latent,
        rotation: &Rotation,
        b: &mut Body<'_>,
        x: &str,
    ) -> Result<(), DraftError> {
        let (mut stream, mut queries) = (x, "cq");
        if self.loss.is_some() {
            // The indexer learns from attention, and changes nothing of what it reads.
            b.unary("ix", UnaryKind::Stop, x)?;
            b.unary("icq", UnaryKind::Stop, "cq")?;
            (stream, queries) = ("ix", "icq");
        }
        b.op(&["iq0"], Einsum::new("b s lq, lq i di -> b s i di")?, &[queries, "wiq"])?;
        b.op(&["ik0"], Einsum::new("b s h, h di -> b s di")?, &[stream, "wik"])?;
        b.op(&["ik1", "ik_mean", "ik_rstd"], KEY_NORM, &["ik0", "ik_norm", "ik_norm_bias"])?;
        let part = Rotation { turned: Some(latent.turned), ..rotation.clone() };
        part.turn(b, "iq", "iq0")?;
        part.turn(b, "ik", "ik1")?;
        b.op(&["iw0"], Einsum::new("b s h, h i -> b s i")?, &[stream, "wiw"])?;
        b.scale("iw", ((self.heads * self.head) as f64).sqrt().recip(), "iw0")?;
        let operands = ["iq", "ik", "iw", "pos", "pos", "seg", "seg"];
        b.op(&[CHOICE], SelectKeys { keys: self.keys }, &operands)
    }

    /// `%index_loss` of what attention did.
    pub(super) fn loss(&self, scale: f64, factor: f64, b: &mut Body<'_>) -> Result<(), DraftError> {
        b.op(&["is"], IndexScores, &["iq", "ik", "iw", CHOICE])?;
        b.op(&["im"], KeyMass { scale }, &["q", "k", "o_lse", CHOICE])?;
        b.op(&["index_divergence"], IndexLoss, &["is", "im", CHOICE])?;
        let tokens: f64 = b.dims("b s").iter().map(|dim| dim.size as f64).product();
        b.scale(INDEX_LOSS, factor / tokens, "index_divergence")
    }
}

impl Latent {
    /// `q`, `k` and `v` of `x`, with one key for all heads: the latent vector, and the part that turns.
    pub(super) fn absorbed(&self, rotation: &Rotation, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        let Turned { query, key } = self.parts(Some(rotation), b, x)?;
        b.op(&["ql"], Einsum::new("b s g r dn, lk g r dn -> b s g r lk")?, &["qn", "wkn"])?;
        b.op(&["q"], Concat { dim: 4 }, &["ql", query])?;
        b.op(&["v"], Reshape { dims: b.dims("b s g lk") }, &["ckv"])?;
        b.op(&["kr"], Reshape { dims: b.dims("b s g dr") }, &[key])?;
        b.op(&["k"], Concat { dim: 3 }, &["v", "kr"])
    }

    /// `o`, what heads give of `q`, `k` and `v`, at the keys of `%choice`.
    pub(super) fn attend_to_choice(&self, scale: f64, b: &mut Body<'_>) -> Result<(), DraftError> {
        b.op(&["ol", "o_lse"], SparseAttention { scale }, &["q", "k", "v", CHOICE])?;
        b.op(&["o"], Einsum::new("b s g r lk, lk g r dv -> b s g r dv")?, &["ol", "wv"])
    }
}
