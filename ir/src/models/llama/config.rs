//! A configuration of the LLaMA family.

use super::latent::Latent;
use crate::models::error::{ConfigError, depth, invalid, not_negative, positive};
use crate::models::experts::Experts;
use crate::models::feed_forward::Activation;
use crate::models::layer_set::{LayerSet, Window};
use crate::models::rotation::Rotation;
use serde::Serialize;

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

/// The norms of the branches of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Norms {
    /// Norms of what branches read: `x + f(norm(x))`.
    Before,
    /// Norms of what branches give: `x + norm(f(x))` (OLMo 2).
    After,
    /// Norms of both (Gemma 2 and 3).
    Both,
}

/// Queries at position `pos` are multiplied by `1 + by ln(1 + floor((pos + 1) / every))` (Nakanishi 2025, Scalable-Softmax; Llama 4).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Temperature {
    /// Tokens from one factor to the next.
    pub every: u64,
    /// How strongly it grows.
    pub by: f64,
}

/// Layers that predict further tokens.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mtp {
    /// Their number.
    pub depth: u32,
    /// The factor of the mean of their losses, which is added to the loss.
    pub loss_factor: f64,
}

impl Mtp {
    fn check(&self) -> Result<(), ConfigError> {
        if self.loss_factor.is_finite() && self.loss_factor > 0.0 {
            return Ok(());
        }
        Err(invalid("mtp_loss_scaling_factor", format!("{} must be above 0", self.loss_factor)))
    }
}

/// A configuration of the LLaMA family.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LlamaConfig {
    /// Size of the vocabulary.
    pub vocabulary: u64,
    /// Size of the residual stream.
    pub hidden: u64,
    /// Size between the matrices of the feed-forward net.
    pub feed_forward: u64,
    /// The feed-forward net has a gate: `down(f(gate(x)) up(x))`. Without one it is `down(f(up(x)))`.
    pub gated: bool,
    /// The function `f` of the feed-forward net, and of experts.
    pub activation: Activation,
    /// Number of layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: u64,
    /// Size of a head. Latent attention states its own sizes.
    pub head: u64,
    /// Added to the mean square in norms, or to the variance.
    pub norm_eps: f64,
    /// Norms subtract the mean and have a bias (GPT-NeoX).
    pub layer_norm: bool,
    /// The norms of a layer's branches.
    pub norms: Norms,
    /// The feed-forward net reads what attention reads: `x + attention(norm(x)) + net(norm(x))` (GPT-NeoX).
    pub parallel: bool,
    /// How positions turn queries and keys.
    pub rotation: Rotation,
    /// The same in layers with a window, where these turn otherwise (Gemma 3).
    pub local_rotation: Option<Rotation>,
    /// The layers whose queries and keys have no positions (Kazemnejad et al. 2023, NoPE).
    pub nope: LayerSet,
    /// The temperature of attention in these layers.
    pub temperature: Option<Temperature>,
    /// Attention scores are divided by its root (Gemma); none: by that of the head size.
    pub score_size: Option<f64>,
    /// The bound of attention scores (Gemma 2).
    pub softcap: Option<f64>,
    /// The bound of logits (Gemma 2).
    pub logit_softcap: Option<f64>,
    /// The window of attention, of all layers or some.
    pub window: Option<Window>,
    /// The padding token: its positions add no gradient to the embedding.
    pub pad: Option<u64>,
    /// The head's matrix is the embedding table.
    pub tied: bool,
    /// Embeddings are multiplied by the root of the stream's size (Gemma).
    pub scaled_embeddings: bool,
    /// Queries, keys and values have a bias (Qwen2).
    pub qkv_bias: bool,
    /// The result of attention has a bias (GPT-NeoX).
    pub out_bias: bool,
    /// The products of the feed-forward net have biases (GPT-NeoX).
    pub net_bias: bool,
    /// Each head has a sink: one more score of every query, of no value (gpt-oss).
    pub sinks: bool,
    /// The norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
    /// Keys and values come from a latent vector (DeepSeek).
    pub latent: Option<Latent>,
    /// Experts instead of the feed-forward net.
    pub experts: Option<Experts>,
    /// Layers behind the others that predict further tokens.
    pub mtp: Option<Mtp>,
}

impl LlamaConfig {
    /// The window of a layer, if it has one.
    pub(super) fn window_of(&self, layer: u32) -> Option<Window> {
        self.window.filter(|window| !window.full.contains(layer))
    }

    /// The factor of a loss of balance that spans layers, and the number of layers with experts.
    pub(super) fn balance_over_layers(&self) -> Option<(f64, u32)> {
        let experts = self.experts.as_ref()?;
        let factor = experts.balance.loss.filter(|_| experts.balance.spans_layers())?.factor;
        Some((factor, self.layers - experts.dense.count(self.layers)))
    }

    /// The factor of attention scores.
    pub(super) fn score_scale(&self) -> f64 {
        let (head, factor) = match &self.latent {
            Some(latent) => (latent.plain + latent.turned, latent.score_factor),
            None => (self.head, 1.0),
        };
        factor / self.score_size.unwrap_or(head as f64).sqrt()
    }

    pub(in crate::models) fn check(&self) -> Result<(), ConfigError> {
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
        depth("num_hidden_layers", self.layers)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ConfigError::Contradiction(format!(
                "`num_attention_heads` {} is not a multiple of `num_key_value_heads` {}",
                self.heads, self.kv_heads
            )));
        }
        if let Some(pad) = self.pad.filter(|pad| *pad >= self.vocabulary) {
            return Err(invalid("pad_token_id", format!("{pad} is none of {} tokens", self.vocabulary)));
        }
        self.window.map_or(Ok(()), |window| window.check())?;
        not_negative("rms_norm_eps", self.norm_eps)?;
        not_negative("initializer_range", self.deviation)?;
        for (field, softcap) in
            [("attn_logit_softcapping", self.softcap), ("final_logit_softcapping", self.logit_softcap)]
        {
            if let Some(softcap) = softcap.filter(|softcap| !softcap.is_finite() || *softcap <= 0.0) {
                return Err(invalid(field, format!("{softcap} must be above 0")));
            }
        }
        if let Some(size) = self.score_size.filter(|size| !size.is_finite() || *size <= 0.0) {
            return Err(invalid("query_pre_attn_scalar", format!("{size} must be above 0")));
        }
        self.check_rotary()?;
        if let Some(Temperature { every, by }) = self.temperature {
            positive("floor_scale", every)?;
            if !by.is_finite() {
                return Err(invalid("attn_scale", format!("{by} must be finite")));
            }
        }
        self.latent.as_ref().map_or(Ok(()), Latent::check)?;
        self.experts.as_ref().map_or(Ok(()), |experts| experts.check(self.layers))?;
        if self.mtp.is_some() && self.balance_over_layers().is_some() {
            let why = "layers that predict further tokens are no part of a loss over all layers".to_string();
            return Err(invalid("router_balance", why));
        }
        self.mtp.as_ref().map_or(Ok(()), Mtp::check)
    }

    /// Checks what rotary positions turn, and how.
    fn check_rotary(&self) -> Result<(), ConfigError> {
        let head = self.latent.as_ref().map_or(self.head, |latent| latent.turned);
        self.rotation.check("rope_theta", head)?;
        self.local_rotation.as_ref().map_or(Ok(()), |local| local.check("rope_local_base_freq", head))?;
        let turns_all = self.rotation.turned.is_none();
        if self.latent.is_none() && turns_all && !self.head.is_multiple_of(2) {
            return Err(invalid("head_dim", format!("{} is odd; rotary positions turn pairs", self.head)));
        }
        Ok(())
    }
}
