//! The LLaMA family: pre-norm blocks of attention with rotary positions and a feed-forward net, gated or not, or experts in
//! its place. Touvron et al. 2023 (LLaMA 2), Dubey et al. 2024 (Llama 3), Jiang et al. 2023 (Mistral 7B), Yang et al. 2024
//! and 2025 (Qwen2, Qwen3), Parmar et al. 2024 (Nemotron-4), DeepSeek-AI 2024 (DeepSeek-V2, V3).

use super::attention::{self, Latent};
use super::config::{Batch, ConfigError, invalid, not_negative, positive};
use super::draft::{Draft, Weight};
use super::experts::Experts;
use super::feed_forward;
use crate::dim_role::DimRole;
use crate::graph::{ArgKind, Model, ResultKind};
use crate::ids::BlockId;
use crate::ops::{Binary, BinaryKind, CrossEntropy, Einsum, Embedding, RmsNorm, Rope, Scaling};
use crate::types::DimName;
use serde::Serialize;

/// A configuration of the LLaMA family.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LlamaConfig {
    /// Size of the vocabulary.
    pub vocabulary: u64,
    /// Size of the residual stream.
    pub hidden: u64,
    /// Size between the matrices of the feed-forward net.
    pub feed_forward: u64,
    /// The feed-forward net has a gate: `down(silu(gate(x)) up(x))`. Without one it is `down(max(up(x), 0)^2)` (Nemotron-4).
    pub gated: bool,
    /// Number of layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: u64,
    /// Size of a head; even, since rotary positions turn pairs. Latent attention states its own sizes.
    pub head: u64,
    /// Added to the mean square in norms.
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Their scaling for a longer context.
    pub rope_scaling: Option<Scaling>,
    /// The factor of attention scores in addition to the inverse root of the head size (YaRN).
    pub score_factor: f64,
    /// The factor of the scores of the rotary part of latent attention (YaRN); 1 without YaRN.
    pub turned_factor: f64,
    /// Tokens that attention looks back over in some layer; sequences must not be longer. None: all.
    pub window: Option<u64>,
    /// The padding token: its positions add no gradient to the embedding.
    pub pad: Option<u64>,
    /// The head's matrix is the embedding table.
    pub tied: bool,
    /// Queries, keys and values have a bias (Qwen2).
    pub qkv_bias: bool,
    /// Queries and keys are normed head by head (Qwen3).
    pub qk_norm: bool,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
    /// Keys and values come from a latent vector (DeepSeek).
    pub latent: Option<Latent>,
    /// Experts instead of the feed-forward net.
    pub experts: Option<Experts>,
}

impl LlamaConfig {
    /// The rotation of queries and keys.
    pub(super) fn rope(&self) -> Rope {
        Rope { theta: self.rope_theta, scaling: self.rope_scaling, inverse: false }
    }

    /// The factor of attention scores.
    pub(super) fn score_scale(&self) -> f64 {
        let head = self.latent.as_ref().map_or(self.head, |latent| latent.plain + latent.turned);
        self.score_factor / (head as f64).sqrt()
    }

    /// The number of layers with a feed-forward net, and of layers with experts.
    fn kinds(&self) -> [u32; 2] {
        let dense = self.experts.as_ref().map_or(self.layers, |experts| experts.dense_layers);
        [dense, self.layers - dense]
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocab_size", self.vocabulary),
            ("hidden_size", self.hidden),
            ("intermediate_size", self.feed_forward),
            ("num_hidden_layers", u64::from(self.layers)),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head),
        ];
        for (field, size) in sizes {
            positive(field, size)?;
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ConfigError::Contradiction(format!(
                "`num_attention_heads` {} is not a multiple of `num_key_value_heads` {}",
                self.heads, self.kv_heads
            )));
        }
        if let Some(pad) = self.pad.filter(|pad| *pad >= self.vocabulary) {
            return Err(invalid("pad_token_id", format!("{pad} is none of {} tokens", self.vocabulary)));
        }
        positive("sliding_window", self.window.unwrap_or(1))?;
        not_negative("rms_norm_eps", self.norm_eps)?;
        not_negative("initializer_range", self.deviation)?;
        if self.latent.is_none() && !self.head.is_multiple_of(2) {
            return Err(invalid("head_dim", format!("{} is odd; rotary positions turn pairs", self.head)));
        }
        self.latent.as_ref().map_or(Ok(()), Latent::check)?;
        self.experts.as_ref().map_or(Ok(()), |experts| experts.check(self.layers))?;
        self.rope_scaling.map_or(Ok(()), |scaling| scaling.check()).map_err(|why| invalid("rope_scaling", why))
    }

    /// The dims other than b and s. Shards have whole heads and experts.
    fn dims(&self, seq: u64) -> Result<Vec<DimName>, ConfigError> {
        let mut dims = vec![
            DimName::new("h", self.hidden, None),
            DimName::new("g", self.kv_heads, Some(DimRole::KvHeads)).undivided(),
            DimName::new("r", self.heads / self.kv_heads, None).undivided(),
        ];
        match &self.latent {
            Some(latent) => dims.extend(latent.dims()),
            None => dims.push(DimName::new("d", self.head, None)),
        }
        if self.kinds()[0] > 0 {
            dims.push(DimName::new("f", self.feed_forward, Some(DimRole::FeedForward)));
        }
        dims.push(DimName::new("v", self.vocabulary, Some(DimRole::Vocabulary)));
        if let Some(experts) = &self.experts {
            dims.extend(experts.dims(seq)?);
        }
        Ok(dims)
    }
}

/// The model of a configuration.
pub(super) fn build(config: &LlamaConfig, batch: &Batch) -> Result<Model, ConfigError> {
    config.check()?;
    if let Some(window) = config.window.filter(|&window| batch.seq > window) {
        return Err(ConfigError::BeyondWindow { seq: batch.seq, window });
    }
    let draft = Draft::new("llama", batch, config.dims(batch.seq)?);
    blocks(config, draft).map_err(ConfigError::Contradiction)
}

fn blocks(config: &LlamaConfig, mut draft: Draft) -> Result<Model, String> {
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let embedding = [Weight::normal("emb", "v h", config.deviation)];
    draft.declare(&embedding);
    let args = [("tok", ArgKind::Input, ids.clone())];
    let embed = draft.block("embed", &args, &embedding, &[ResultKind::Value], |b| {
        b.op(&["x"], Embedding { pad: config.pad }, &["tok", "emb"])?;
        Ok(vec![b.value("x")?])
    })?;
    draft.call("x", embed, None, &["tok"], &["emb"]);
    let mut last = "x";
    let [dense, sparse] = config.kinds();
    // Without experts, the dense block is named `layer`.
    let (first, middle) = if config.experts.is_some() { ("dense", "z") } else { ("layer", "y") };
    let kinds = [(first, middle, dense, None), ("layer", "y", sparse, config.experts.as_ref())];
    for (name, result, count, experts) in kinds {
        if count > 0 {
            let block = layer(config, experts, &mut draft, name, count)?;
            draft.call(result, block, Some(count), &[last, "pos", "seg"], &[name]);
            last = result;
        }
    }
    let matrix = if config.tied { "emb" } else { "out" };
    let matrix_dims = if config.tied { "v h" } else { "h v" };
    let head = [Weight::constant("final_norm", "h", 1.0), Weight::normal(matrix, matrix_dims, config.deviation)];
    draft.declare(if config.tied { &head[..1] } else { &head });
    let args = [("x", ArgKind::Value, stream), ("lab", ArgKind::Input, ids)];
    let end = draft.block("head", &args, &head, &[ResultKind::Loss], |b| {
        b.op(&["n", "n_rstd"], RmsNorm { eps: config.norm_eps }, &["x", "final_norm"])?;
        let product = Einsum::new(&format!("b s h, {matrix_dims} -> b s v"))?;
        b.op(&["logits"], product, &["n", matrix])?;
        b.op(&["loss", "lse"], CrossEntropy, &["logits", "lab"])?;
        Ok(vec![b.value("loss")?])
    })?;
    draft.call("", end, None, &[last, "lab"], &["final_norm", matrix]);
    Ok(draft.finish())
}

/// The block of `count` layers and their parameters.
fn layer(
    config: &LlamaConfig,
    experts: Option<&Experts>,
    draft: &mut Draft,
    name: &str,
    count: u32,
) -> Result<BlockId, String> {
    let weights = layer_weights(config, experts);
    draft.declare_array(name, count, &weights);
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let args = [("x", ArgKind::Value, stream), ("pos", ArgKind::Input, ids.clone()), ("seg", ArgKind::Input, ids)];
    draft.block(name, &args, &weights, &[ResultKind::Value], |b| {
        attention::build(config, b)?;
        b.op(&["n", "n_rstd"], RmsNorm { eps: config.norm_eps }, &["x1", "norm2"])?;
        match experts {
            Some(experts) => experts.build(b)?,
            None => feed_forward::build(config.gated, b)?,
        }
        b.op(&["y"], Binary::of(BinaryKind::Add), &["x1", "fd"])?;
        Ok(vec![b.value("y")?])
    })
}

/// Matrices that write to the residual stream start smaller by `sqrt(2 layers)`: 2 layers of them add up there, and so its
/// variance does not grow with depth (Radford et al. 2019, section 2.3).
fn layer_weights(config: &LlamaConfig, experts: Option<&Experts>) -> Vec<Weight> {
    let residual = config.deviation / (2.0 * f64::from(config.layers)).sqrt();
    let mut weights = vec![Weight::constant("norm1", "h", 1.0)];
    weights.extend(attention::weights(config, residual));
    weights.push(Weight::constant("norm2", "h", 1.0));
    weights.extend(match experts {
        Some(experts) => experts.weights(config.deviation, residual),
        None => feed_forward::weights(config.gated, config.deviation, residual),
    });
    weights
}
