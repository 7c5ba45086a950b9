//! A configuration of the LLaMA family.

use super::indexer::Indexer;
use super::latent::Latent;
use super::layer_embedding::LayerEmbedding;
use super::norm::Norm;
use super::temperature::Temperature;
use crate::models::error::{ConfigError, depth, invalid, not_negative, positive};
use crate::models::experts::Experts;
use crate::models::feed_forward::{Activation, Clamp};
use crate::models::layer_set::{LayerSet, Window};
use crate::models::mixers::{Mixer, Scanned};
use crate::models::rotation::Rotation;
use crate::models::vision::Vision;
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
    /// One of each head, with one gain for all heads, after positions turned it (Hunyuan).
    HeadsTurned,
    /// A layer norm of each head, with one gain and one bias for all heads (Phi).
    LayerHeads,
    /// A layer norm of each head, with gains of its own and without biases (StableLM, Cohere).
    LayerEach,
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
    /// Norms of the stream itself: `n + f(n)` with `n = norm(x)` (MiniMax).
    Stream,
    /// Norms of the sums, `norm(x + f(x))`, and none behind the last layer (Vaswani et al. 2017; BERT).
    Sums,
}

impl Norms {
    /// True if branches read norms.
    pub(super) fn are_before(self) -> bool {
        matches!(self, Norms::Before | Norms::Both | Norms::Stream)
    }

    /// True if branches give norms.
    pub(super) fn are_after(self) -> bool {
        matches!(self, Norms::After | Norms::Both)
    }
}

/// The norm of embeddings in front of the first layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum EmbeddingNorm {
    /// None.
    None,
    /// One of the rows of tokens, before those of positions are added (BlenderbotSmall).
    Tokens,
    /// One of all that is added up (BERT, nanochat).
    Sum,
}

/// A layer between the last norm and the head's matrix: `norm(f(x w + b))` (BERT).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct HeadLayer {
    /// The size of what it gives.
    pub size: u64,
    /// Its product has a bias.
    pub bias: bool,
    /// The function `f`.
    pub activation: Activation,
}

/// Parameters of attention to another sequence, and their norm. A decoder alone has them and reads none (BART).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Cross {
    /// Size of the other sequence's stream.
    pub hidden: u64,
}

/// Waves of positions, which are added to the embedding: `sin(p w)` for each frequency `w`, then `cos(p w)` (Vaswani et al. 2017,
/// section 3.5).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Waves {
    /// The first position.
    pub first: u64,
    /// The logarithm of the ratio of neighbouring frequencies, which fall from 1.
    pub fall: f64,
}

/// The gates of heads: what they give is multiplied by a function of a product of what attention reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum HeadGate {
    /// None.
    None,
    /// The sigmoid, for each element (AFMoE).
    Sigmoid,
    /// The same, plus a bias of each head (Beam).
    SigmoidBiased,
    /// The sigmoid of one number for each head (LFM3).
    SigmoidOfHead,
    /// `ln(1 + e^x)`, for each element (Laguna).
    Softplus,
    /// The same, of one number for each head.
    SoftplusOfHead,
}

/// The layers whose heads have a sink: one more score of every query, of no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Sinks {
    /// None.
    None,
    /// All (gpt-oss).
    All,
    /// Those with a window (MiMo-V2-Flash).
    Local,
}

/// The operands of the branches of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Branches {
    /// The feed-forward net reads the sum that attention is added to.
    InTurn,
    /// It reads the stream that attention reads, through a norm of its own (GPT-NeoX).
    Parallel,
    /// It reads the norm that attention reads (Cohere, Phi).
    Shared,
}

/// The factor of embeddings.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum EmbeddingScale {
    /// None.
    One,
    /// The root of the stream's size (Gemma).
    Root,
    /// A number (Granite).
    By(f64),
}

/// A table of positions, whose rows are added to the embedding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Learned {
    /// The positions.
    pub positions: u64,
    /// The rows in front of the first position, which are never read (OPT).
    pub unread: u64,
}

/// Factors of the stream and of what a branch adds to it (MiniMax).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SumFactors {
    /// Factors of the sum with attention.
    pub attention: [f64; 2],
    /// Factors of the sum with a mixer in the place of attention.
    pub state: [f64; 2],
    /// Factors of the sum with the feed-forward net.
    pub net: [f64; 2],
}

impl SumFactors {
    /// No factors.
    pub const NONE: SumFactors = SumFactors { attention: [1.0; 2], state: [1.0; 2], net: [1.0; 2] };

    fn are_none(&self) -> bool {
        *self == SumFactors::NONE
    }
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
    /// Tokens behind those of the vocabulary that are read, and never predicted (Moshi).
    pub unpredicted: u64,
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
    /// The same of layers with a window, where these have others (MiMo-V2-Flash).
    pub local_kv_heads: Option<u64>,
    /// Size of a head. Latent attention states its own sizes.
    pub head: u64,
    /// The size of a head in layers with a window, where these have another one; they state their key heads, too (Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_head: Option<u64>,
    /// In layers without a window values are the products that keys are made of (Gemma 4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keys_are_values: bool,
    /// Values of each head are normed, without a gain (Gemma 4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub value_norm: bool,
    /// The result of a layer is multiplied by a number of the layer, which is not trained (Gemma 4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub layer_scale: bool,
    /// Size of a head's values, where it is another one (MiMo-V2-Flash).
    pub value: Option<u64>,
    /// The factor of values.
    pub value_scale: f64,
    /// The factor of keys (Falcon-H1).
    pub key_scale: f64,
    /// The numbers of the net's gates whose operands are bounded; none: they are not (MiniMax-M3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_clamp: Option<Clamp>,
    /// The factors of the net's gate, and of what the net gives (Falcon-H1).
    pub net_scales: [f64; 2],
    /// The longest sequence that attention sees as a whole, where it sees parts of longer ones, which is not supported (BigBird).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<u64>,
    /// Added to the mean square in norms, or to the variance.
    pub norm_eps: f64,
    /// The kind of norms.
    pub norm: Norm,
    /// The norms of a layer's branches.
    pub norms: Norms,
    /// Size of the vector that gates of norms come from: norms of what attention and experts read are multiplied by sigmoids of a net of
    /// theirs; none: they are not (A.X K2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_gate: Option<u64>,
    /// Attention of the first layer reads the stream itself, without a norm (ModernBERT).
    pub bare_first: bool,
    /// The operands of the branches of a layer.
    pub branches: Branches,
    /// The factor of what branches add to the stream (Granite).
    pub residual_scale: f64,
    /// Factors of both sides of these sums.
    #[serde(skip_serializing_if = "SumFactors::are_none")]
    pub sum_factors: SumFactors,
    /// Sum `n` of a model, counted from 2 on, is `x sqrt((n - 1) / n) + f(x) / sqrt(n)` (Beam).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sums_by_depth: bool,
    /// Heads give differences of two attentions (Ye et al. 2024, Differential Transformer).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub differential: bool,
    /// The norm of embeddings.
    pub embedding_norm: EmbeddingNorm,
    /// Size of the rows of the embedding, where it is not the stream's: a matrix with a bias makes them as large (ELECTRA).
    pub embedding_size: Option<u64>,
    /// Rows of tables of which the first one is added to each embedding: those of kinds of tokens, and of tasks (ERNIE); 0: no table.
    pub kinds: [u64; 2],
    /// Norm of all that heads give together, and of what the second matrix of the feed-forward net reads (BitNet).
    pub inner_norms: bool,
    /// Learned positions.
    pub learned: Option<Learned>,
    /// The table of learned positions has waves instead, which fall by this and are not trained (Marian).
    pub fixed_positions: Option<f64>,
    /// Positions of a table of the waves by which queries and keys turn, which nothing reads (RoFormer).
    pub rotary_table: Option<u64>,
    /// There is a layer that makes a vector of a whole sequence, which nothing reads (BigBird).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pooler: bool,
    /// Biases of scores by distance, with the slopes of the number of heads (BLOOM, MPT).
    pub alibi: bool,
    /// Waves of positions.
    pub waves: Option<Waves>,
    /// A query sees no later keys. Encoders see them (BERT).
    pub causal: bool,
    /// How positions turn queries and keys.
    pub rotation: Rotation,
    /// The same in layers with a window, where these turn otherwise (Gemma 3).
    pub local_rotation: Option<Rotation>,
    /// The layers whose queries and keys have no positions (Kazemnejad et al. 2023, NoPE).
    pub nope: LayerSet,
    /// The temperature of attention in these layers, or in the others.
    pub temperature: Option<Temperature>,
    /// Attention scores are divided by its root (Gemma); none: by that of the head size.
    pub score_size: Option<f64>,
    /// The bound of attention scores (Gemma 2).
    pub softcap: Option<f64>,
    /// The bound of logits (Gemma 2).
    pub logit_softcap: Option<f64>,
    /// The factor of logits (Granite, Cohere).
    pub logit_scale: f64,
    /// The window of attention, of all layers or some.
    pub window: Option<Window>,
    /// The padding token: its positions add no gradient to the embedding.
    pub pad: Option<u64>,
    /// The head's matrix is the embedding table.
    pub tied: bool,
    /// Logits have a bias (Phi).
    pub head_bias: bool,
    /// A layer in front of the head's matrix.
    pub head_layer: Option<HeadLayer>,
    /// The factor of embeddings.
    pub embedding_scale: EmbeddingScale,
    /// Queries, keys and values have a bias (Qwen2).
    pub qkv_bias: bool,
    /// Keys have none all the same (Whisper).
    pub plain_keys: bool,
    /// The result of attention has a bias (GPT-NeoX).
    pub out_bias: bool,
    /// The last layer alone has that bias (GPT-NeoX Japanese).
    pub last_bias: bool,
    /// The products of the feed-forward net have biases (GPT-NeoX).
    pub net_bias: bool,
    /// The layers with sinks.
    pub sinks: Sinks,
    /// The bound of the elements of queries, keys and values (OLMo).
    pub clip: Option<f64>,
    /// The gates of heads.
    pub head_gate: HeadGate,
    /// The norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Probability that a weight of the attention is dropped.
    pub attention_dropout: f64,
    /// Probability that an element of a branch's result is dropped.
    pub residual_dropout: f64,
    /// Probability that an element of the embedding is dropped.
    pub embedding_dropout: f64,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
    /// Keys and values come from a latent vector (DeepSeek).
    pub latent: Option<Latent>,
    /// Queries attend to keys that an indexer chooses, over the latent vector (DeepSeek-V3.2). There is one key head then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indexer: Option<Indexer>,
    /// Embeddings of each layer (Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_embedding: Option<LayerEmbedding>,
    /// Attention to another sequence.
    pub cross: Option<Cross>,
    /// Layers that carry a state in place of attention.
    pub scanned: Option<Scanned>,
    /// The layers that have a feed-forward net or experts alone (Nemotron-H).
    pub still: LayerSet,
    /// The layers that have none of these (Mamba-2, Nemotron-H).
    pub netless: LayerSet,
    /// Experts instead of the feed-forward net.
    pub experts: Option<Experts>,
    /// Layers behind the others that predict further tokens.
    pub mtp: Option<Mtp>,
    /// The encoder of images in front of the embedding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<Vision>,
}

impl LlamaConfig {
    /// The window of a layer, if it has one.
    pub(super) fn window_of(&self, layer: u32) -> Option<Window> {
        self.window.filter(|window| !window.full.contains(layer))
    }

    /// True if a layer has attention.
    pub(super) fn attends(&self, layer: u32) -> bool {
        !self.still.contains(layer) && self.scanned_of(layer).is_none_or(|scanned| scanned.with_attention.is_some())
    }

    /// The state that a layer carries in place of attention or together with it, if any.
    pub(super) fn scanned_of(&self, layer: u32) -> Option<&Scanned> {
        self.scanned.as_ref().filter(|scanned| scanned.layers.contains(layer))
    }

    /// The factor of a loss of balance that spans layers, and the number of layers with experts.
    pub(super) fn balance_over_layers(&self) -> Option<(f64, u32)> {
        let experts = self.experts.as_ref()?;
        let factor = experts.balance.loss.filter(|_| experts.balance.spans_layers())?.factor;
        Some((factor, self.layers - experts.dense.count(self.layers)))
    }

    /// True if layers count themselves.
    pub(super) fn counts_layers(&self) -> bool {
        let fades = matches!(self.scanned, Some(Scanned { mixer: Mixer::Lightning(_), .. }));
        self.sums_by_depth || self.differential || fades
    }

    /// True if layers pass a choice of keys on.
    pub(super) fn passes_choice(&self) -> bool {
        self.indexer.is_some_and(|indexer| indexer.passes())
    }

    /// The dim of the tokens that are read.
    pub(super) fn token_letter(&self) -> &'static str {
        if self.unpredicted > 0 { "w" } else { "v" }
    }

    /// The dim of the rows of the embedding.
    pub(super) fn embedding_letter(&self) -> &'static str {
        if self.embedding_size.is_some() { "a" } else { "h" }
    }

    /// The dim of what the head's matrix reads.
    pub(super) fn head_letter(&self) -> &'static str {
        match self.head_layer {
            None => "h",
            Some(layer) if layer.size == self.hidden => "h",
            Some(layer) if Some(layer.size) == self.embedding_size => "a",
            Some(_) => "o",
        }
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
            ("v_head_dim", self.value.unwrap_or(1)),
            ("head_dim", self.head),
            ("head_dim", self.local_head.unwrap_or(1)),
            ("embedding_size", self.embedding_size.unwrap_or(1)),
            ("gated_norm_rank", self.norm_gate.unwrap_or(1)),
            ("output_embedding_size", self.head_layer.map_or(1, |layer| layer.size)),
            ("cross_attention_hidden_size", self.cross.map_or(1, |cross| cross.hidden)),
        ];
        for (field, size) in sizes {
            positive(field, size)?;
        }
        depth("num_hidden_layers", self.layers)?;
        let local = self.local_kv_heads.unwrap_or(self.kv_heads);
        for (kv_heads, of) in [(self.kv_heads, "`num_key_value_heads`"), (local, "those of layers with a window,")] {
            if !self.heads.is_multiple_of(kv_heads) {
                let heads = self.heads;
                let why = format!("`num_attention_heads` {heads} is not a multiple of {of} {kv_heads}");
                return Err(ConfigError::Contradiction(why));
            }
        }
        let read = self.vocabulary.saturating_add(self.unpredicted);
        if let Some(pad) = self.pad.filter(|pad| *pad >= read) {
            return Err(invalid("pad_token_id", format!("{pad} is none of {read} tokens")));
        }
        self.window.map_or(Ok(()), |window| window.check())?;
        self.scanned.map_or(Ok(()), |scanned| scanned.mixer.check())?;
        if self.window.is_some() && !self.causal {
            return Err(invalid("is_decoder", "a window needs queries that see no later keys".to_string()));
        }
        if self.tied && (self.head_letter() != self.embedding_letter() || self.unpredicted > 0) {
            let why = "a head of another size than the embedding cannot be tied to it".to_string();
            return Err(ConfigError::Contradiction(why));
        }
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
        self.check_factors()?;
        if let Some(Temperature { every, by, .. }) = self.temperature {
            positive("floor_scale", every)?;
            if !by.is_finite() {
                return Err(invalid("attn_scale", format!("{by} must be finite")));
            }
        }
        self.latent.as_ref().map_or(Ok(()), Latent::check)?;
        self.indexer.map_or(Ok(()), |indexer| indexer.check(self.latent.as_ref()))?;
        self.experts.as_ref().map_or(Ok(()), |experts| experts.check(self.layers))?;
        if self.mtp.is_some() && self.balance_over_layers().is_some() {
            let why = "layers that predict further tokens are no part of a loss over all layers".to_string();
            return Err(invalid("router_balance", why));
        }
        if self.mtp.is_some() && self.passes_choice() {
            let why =
                "layers that predict further tokens are not known where layers share a choice of keys; set it to 0";
            return Err(invalid("mtp_loss_scaling_factor", why.to_string()));
        }
        if self.differential && !self.kv_heads.is_multiple_of(2) {
            return Err(invalid("num_key_value_heads", format!("{} is odd; heads come in pairs", self.kv_heads)));
        }
        self.vision.as_ref().map_or(Ok(()), |vision| vision.check(self.layers))?;
        self.mtp.as_ref().map_or(Ok(()), Mtp::check)
    }

    /// Checks factors, bounds and probabilities.
    fn check_factors(&self) -> Result<(), ConfigError> {
        let factors = [
            ("residual_multiplier", self.residual_scale),
            ("logit_scale", self.logit_scale),
            ("attention_value_scale", self.value_scale),
        ];
        let embedding = if let EmbeddingScale::By(by) = self.embedding_scale { by } else { 1.0 };
        for (field, factor) in factors.into_iter().chain([("embedding_multiplier", embedding)]) {
            if !factor.is_finite() || factor == 0.0 {
                return Err(invalid(field, format!("{factor} must be finite, and not 0")));
            }
        }
        if let Some(bound) = self.clip.filter(|bound| !bound.is_finite() || *bound <= 0.0) {
            return Err(invalid("clip_qkv", format!("{bound} must be above 0")));
        }
        let probabilities = [
            ("attention_dropout", self.attention_dropout),
            ("hidden_dropout", self.residual_dropout),
            ("embedding_dropout", self.embedding_dropout),
        ];
        match probabilities.into_iter().find(|(_, p)| !(0.0..1.0).contains(p)) {
            Some((field, p)) => Err(invalid(field, format!("{p} is no probability below 1"))),
            None => Ok(()),
        }
    }

    /// Checks what rotary positions turn, and how.
    fn check_rotary(&self) -> Result<(), ConfigError> {
        let head = self.latent.as_ref().map_or(self.head, |latent| latent.turned);
        self.rotation.check("rope_theta", head)?;
        self.local_rotation.as_ref().map_or(Ok(()), |local| local.check("rope_local_base_freq", head))?;
        let turns_all = self.rotation.turned.is_none();
        let has_rotation = !(0..self.layers).all(|layer| self.nope.contains(layer));
        if self.latent.is_none() && turns_all && has_rotation && !self.head.is_multiple_of(2) {
            return Err(invalid("head_dim", format!("{} is odd; rotary positions turn pairs", self.head)));
        }
        Ok(())
    }
}
