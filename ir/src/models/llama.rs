//! The LLaMA family: blocks of attention with rotary positions and a feed-forward net, gated or not, or experts in its place.
//! Touvron et al. 2023 (LLaMA 2), Dubey et al. 2024 (Llama 3), Jiang et al. 2023 (Mistral 7B), Yang et al. 2024 and 2025
//! (Qwen2, Qwen3), Parmar et al. 2024 (Nemotron-4), DeepSeek-AI 2024 (DeepSeek-V2, V3), Gemma Team 2024 and 2025 (Gemma 2, 3),
//! OLMo Team 2024 (OLMo 2), Abdin et al. 2024 (Phi-3, Phi-4), Black et al. 2022 (GPT-NeoX).

use super::attention::{self, Latent, QkNorm};
use super::config::{Batch, ConfigError, depth, invalid, not_negative, positive};
use super::draft::{Body, Draft, Weight};
use super::experts::Experts;
use super::feed_forward::{self, Activation};
use super::layers::{LENGTHS, LayerKind, LayerSet, Window, kinds, runs};
use super::mtp::{self, Mtp};
use super::rotation::Rotation;
use crate::dim_role::DimRole;
use crate::graph::{ArgKind, Model, ResultKind};
use crate::ids::BlockId;
use crate::ops::{Binary, BinaryKind, CrossEntropy, Einsum, Embedding, LayerNorm, RmsNorm, Unary, UnaryKind};
use crate::types::DimName;
use serde::Serialize;

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
    /// The factor of attention scores.
    pub(super) fn score_scale(&self) -> f64 {
        let (head, factor) = match &self.latent {
            Some(latent) => (latent.plain + latent.turned, latent.score_factor),
            None => (self.head, 1.0),
        };
        factor / self.score_size.unwrap_or(head as f64).sqrt()
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

    /// The dims other than b and s. Shards have whole heads and experts.
    fn dims(&self, seq: u64) -> Result<Vec<DimName>, ConfigError> {
        let mut dims = vec![
            DimName::new("h", self.hidden, None),
            DimName::new("g", self.kv_heads, Some(DimRole::KvHeads)).undivided(),
            DimName::new("r", self.heads / self.kv_heads, Some(DimRole::QueryHeads)).undivided(),
        ];
        match &self.latent {
            Some(latent) => dims.extend(latent.dims()),
            None => dims.push(DimName::new("d", self.head, None)),
        }
        if kinds(self).any(|kind| kind.experts.is_none()) {
            dims.push(DimName::new("f", self.feed_forward, Some(DimRole::FeedForward)));
        }
        dims.push(DimName::new("v", self.vocabulary, Some(DimRole::Vocabulary)));
        if let Some(experts) = &self.experts {
            dims.extend(experts.dims(seq)?);
        }
        Ok(dims)
    }

    /// The parameters of a norm: its gain, and the bias of a layer norm.
    fn norm_weights(&self, gain: &'static str, bias: &'static str) -> Vec<Weight> {
        let bias = self.layer_norm.then(|| Weight::constant(bias, "h", 0.0));
        [Weight::constant(gain, "h", 1.0)].into_iter().chain(bias).collect()
    }

    /// `y = norm(x)`
    pub(super) fn norm(&self, b: &mut Body<'_>, [y, x, gain]: [&str; 3]) -> Result<(), String> {
        let (mean, rstd) = (format!("{y}_mean"), format!("{y}_rstd"));
        if self.layer_norm {
            let operands = [x, gain, &format!("{gain}_bias")];
            return b.op(&[y, &mean, &rstd], LayerNorm { eps: self.norm_eps }, &operands);
        }
        b.op(&[y, &rstd], RmsNorm { eps: self.norm_eps }, &[x, gain])
    }
}

/// The model of a configuration.
pub(super) fn build(config: &LlamaConfig, batch: &Batch) -> Result<Model, ConfigError> {
    config.check()?;
    let draft = Draft::new("llama", batch, config.dims(batch.seq)?);
    blocks(config, draft).map_err(ConfigError::Contradiction)
}

fn blocks(config: &LlamaConfig, mut draft: Draft) -> Result<Model, String> {
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let embedding = [Weight::normal("emb", "v h", config.deviation)];
    draft.declare(&embedding);
    let args = [("tok", ArgKind::Input, ids.clone())];
    let embed = draft.block("embed", &args, &embedding, &[ResultKind::Value], |b| {
        b.op(&[if config.scaled_embeddings { "x0" } else { "x" }], Embedding { pad: config.pad }, &["tok", "emb"])?;
        if config.scaled_embeddings {
            b.scale("x", (config.hidden as f64).sqrt(), "x0")?;
        }
        Ok(vec![b.value("x")?])
    })?;
    draft.call("x", embed, None, &["tok"], &["emb"]);
    if kinds(config).any(|kind| kind.inputs().contains(&LENGTHS)) {
        draft.input(LENGTHS);
    }
    config.mtp.iter().for_each(|mtp| mtp.declare(&mut draft));
    let layers = layers(config, &mut draft)?;
    let matrix = if config.tied { "emb" } else { "out" };
    let matrix_dims = if config.tied { "v h" } else { "h v" };
    let mut head = config.norm_weights("final_norm", "final_norm_bias");
    head.push(Weight::normal(matrix, matrix_dims, config.deviation));
    draft.declare(&head[..head.len() - usize::from(config.tied)]);
    // The head comes last, so that a model without those layers ends alike.
    config.mtp.map_or(Ok(()), |mtp| mtp::further(config, mtp, &mut draft, &layers))?;
    let args = [("x", ArgKind::Value, stream), ("lab", ArgKind::Input, ids)];
    let end = draft.block("head", &args, &head, &[ResultKind::Loss], |b| {
        config.norm(b, ["n", "x", "final_norm"])?;
        let product = Einsum::new(&format!("b s h, {matrix_dims} -> b s v"))?;
        b.op(&[if config.logit_softcap.is_some() { "unbounded" } else { "logits" }], product, &["n", matrix])?;
        if let Some(softcap) = config.logit_softcap {
            b.scale("share", 1.0 / softcap, "unbounded")?;
            b.op(&["bounded"], Unary(UnaryKind::Tanh), &["share"])?;
            b.scale("logits", softcap, "bounded")?;
        }
        b.op(&["loss", "lse"], CrossEntropy, &["logits", "lab"])?;
        Ok(vec![b.value("loss")?])
    })?;
    let params: Vec<&str> = head.iter().map(|weight| &*weight.name).collect();
    draft.call("", end, None, &[&layers.last, "lab"], &params);
    Ok(draft.finish())
}

/// The layers of a model under construction.
pub(super) struct Layers {
    /// The name of the last one's result.
    pub(super) last: String,
    /// The block of the last one, and the array of its parameters.
    pub(super) block: BlockId,
    pub(super) array: &'static str,
    /// The inputs of that block.
    pub(super) inputs: &'static [&'static str],
    /// The layers of that block.
    pub(super) count: u32,
}

/// The blocks of all layers, and their calls in order.
fn layers(config: &LlamaConfig, draft: &mut Draft) -> Result<Layers, String> {
    let runs = runs(config);
    let mut blocks: Vec<(&str, BlockId)> = Vec::new();
    let mut last = "x".to_string();
    let of_kind = |name: &str| -> u32 {
        runs.iter().filter(|(other, _)| other.name == name).map(|(_, range)| range.len() as u32).sum()
    };
    let array = runs.last().map_or("layer", |(kind, _)| kind.name);
    for (at, (kind, range)) in runs.iter().enumerate() {
        let known = blocks.iter().find(|(name, _)| *name == kind.name).map(|(_, block)| *block);
        let block = match known {
            Some(block) => block,
            None => {
                // Layers that predict further tokens are like the last one.
                let further = config.mtp.filter(|_| kind.name == array).map_or(0, |mtp| mtp.depth);
                let made = layer(config, kind, draft, of_kind(kind.name) + further)?;
                blocks.push((kind.name, made));
                made
            }
        };
        let result = match runs.len() - at {
            1 => "y".to_string(),
            2 if runs.len() == 2 => "z".to_string(),
            _ => format!("z{at}"),
        };
        draft.call(&result, block, Some(range.clone()), &[&[&*last], kind.inputs()].concat(), &[kind.name]);
        last = result;
    }
    let block = blocks.iter().find(|(name, _)| *name == array).map(|(_, block)| *block);
    let (block, inputs) = (block.ok_or("there are no layers")?, runs.last().map_or(&[][..], |(kind, _)| kind.inputs()));
    Ok(Layers { last, block, array, inputs, count: of_kind(array) })
}

/// The block of `count` layers of a kind, and their parameters.
fn layer(config: &LlamaConfig, kind: &LayerKind<'_>, draft: &mut Draft, count: u32) -> Result<BlockId, String> {
    let weights = layer_weights(config, kind);
    draft.declare_array(kind.name, count, &weights);
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let mut args = vec![("x", ArgKind::Value, stream)];
    args.extend(kind.inputs().iter().map(|name| (*name, ArgKind::Input, ids.clone())));
    draft.block(kind.name, &args, &weights, &[ResultKind::Value], |b| {
        branch(config, b, ["x", "x", "x1"], ["a", "norm1", "p", "post_norm1"], |b, x| {
            attention::build(config, kind, b, x)
        })?;
        let read = if config.parallel { "x" } else { "x1" };
        branch(config, b, [read, "x1", "y"], ["n", "norm2", "fd", "post_norm2"], |b, x| match kind.experts {
            Some(experts) => experts.build(config.activation, b, x),
            None => feed_forward::build(config, b, x),
        })?;
        Ok(vec![b.value("y")?])
    })
}

/// `sum = stream + norm(f(norm(read)))`, with the norms of the configuration. `f` computes `result` from the value that it is
/// given the name of.
fn branch(
    config: &LlamaConfig,
    b: &mut Body<'_>,
    [read, stream, sum]: [&str; 3],
    [normed, gain, result, post_gain]: [&str; 4],
    f: impl FnOnce(&mut Body<'_>, &str) -> Result<(), String>,
) -> Result<(), String> {
    if config.norms == Norms::After {
        f(b, read)?;
    } else {
        config.norm(b, [normed, read, gain])?;
        f(b, normed)?;
    }
    let add = Binary::of(BinaryKind::Add);
    if config.norms == Norms::Before {
        return b.op(&[sum], add, &[stream, result]);
    }
    let post = format!("{result}_normed");
    config.norm(b, [&post, result, post_gain])?;
    b.op(&[sum], add, &[stream, &post])
}

/// Matrices that write to the residual stream start smaller by `sqrt(2 layers)`: 2 layers of them add up there, and so its
/// variance does not grow with depth (Radford et al. 2019, section 2.3).
fn layer_weights(config: &LlamaConfig, kind: &LayerKind<'_>) -> Vec<Weight> {
    let residual = config.deviation / (2.0 * f64::from(config.layers)).sqrt();
    let (before, after) = (config.norms != Norms::After, config.norms != Norms::Before);
    let norm = |has: bool, gain, bias| if has { config.norm_weights(gain, bias) } else { Vec::new() };
    let net = match kind.experts {
        Some(experts) => experts.weights(config.deviation, residual),
        None => feed_forward::weights(config, residual),
    };
    [
        norm(before, "norm1", "norm1_bias"),
        attention::weights(config, residual),
        norm(after, "post_norm1", "post_norm1_bias"),
        norm(before, "norm2", "norm2_bias"),
        net,
        norm(after, "post_norm2", "post_norm2_bias"),
    ]
    .concat()
}
