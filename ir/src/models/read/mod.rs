//! Parts of a `config.json` that families of Llama's kind share. The file of each family puts them together.

pub(super) mod experts;
pub(super) mod mixers;
pub(super) mod positions;
mod rope;
pub(super) mod windows;

pub(super) use rope::{Head, Kinds, Rope, Rotary};

use super::error::{ConfigError, depth, invalid, positive, unsupported};
use super::feed_forward::Activation;
use super::fields::Fields;
use super::layer_set::LayerSet;
use super::llama::{
    Branches, EmbeddingNorm, EmbeddingScale, HeadGate, LlamaConfig, Mtp, Norm, Norms, QkNorm, Sinks, SumFactors,
};

/// The names under which a family has what all families have, and how it states rotary positions.
#[derive(Clone, Copy)]
pub(super) struct Base {
    /// The key of the size of the feed-forward net.
    pub(super) feed_forward: &'static str,
    /// The key of what norms add.
    pub(super) norm_eps: &'static str,
    /// Rotary positions.
    pub(super) rope: Rope,
}

/// The heads of a model.
pub(super) struct Heads {
    /// The size of a head.
    pub(super) size: u64,
    /// Key and value heads.
    pub(super) kv_heads: u64,
    /// How positions turn them.
    pub(super) rotary: Rotary,
}

/// Sizes that all families have.
#[derive(Clone, Copy)]
pub(super) struct ModelSizes {
    /// Size of the stream.
    pub(super) hidden: u64,
    /// Query heads.
    pub(super) heads: u64,
    /// Number of layers.
    pub(super) layers: u32,
}

impl Base {
    /// The names that most families have.
    pub(super) const USUAL: Base =
        Base { feed_forward: "intermediate_size", norm_eps: "rms_norm_eps", rope: Rope::USUAL };

    /// Reads what all families have, as a model with norms of what branches read, a gated net of SiLU and no biases. Keys that
    /// the family lacks have no effect.
    pub(super) fn read(self, fields: &Fields) -> Result<LlamaConfig, ConfigError> {
        let sizes = ModelSizes::read(fields)?;
        let size = match fields.optional("head_dim")? {
            Some(size) => size,
            None => sizes.head()?,
        };
        let rotary = self.rope.read(fields, Head { size, is_latent: false })?;
        let kv_heads = fields.optional("num_key_value_heads")?.unwrap_or(sizes.heads);
        self.read_with(fields, sizes, Heads { size, kv_heads, rotary })
    }

    /// The fields of a model whose heads have been read.
    pub(super) fn read_with(
        self,
        fields: &Fields,
        sizes: ModelSizes,
        heads: Heads,
    ) -> Result<LlamaConfig, ConfigError> {
        Ok(LlamaConfig {
            vocabulary: fields.get("vocab_size")?,
            unpredicted: 0,
            hidden: sizes.hidden,
            feed_forward: fields.get(self.feed_forward)?,
            gated: true,
            activation: Activation::Silu,
            layers: sizes.layers,
            heads: sizes.heads,
            kv_heads: heads.kv_heads,
            local_kv_heads: None,
            local_head: None,
            keys_are_values: false,
            value_norm: false,
            layer_scale: false,
            sum_factors: SumFactors::NONE,
            sums_by_depth: false,
            differential: false,
            pooler: false,
            norm_gate: None,
            net_clamp: None,
            layer_embedding: None,
            longest: None,
            head: heads.size,
            value: None,
            value_scale: 1.0,
            key_scale: 1.0,
            net_scales: [1.0; 2],
            norm_eps: fields.get(self.norm_eps)?,
            norm: Norm::Rms,
            norms: Norms::Before,
            bare_first: false,
            branches: Branches::InTurn,
            residual_scale: 1.0,
            embedding_norm: EmbeddingNorm::None,
            embedding_size: None,
            kinds: [0; 2],
            inner_norms: false,
            learned: None,
            fixed_positions: None,
            rotary_table: None,
            alibi: false,
            waves: None,
            causal: true,
            rotation: heads.rotary.rotation,
            local_rotation: heads.rotary.local,
            nope: LayerSet::None,
            temperature: None,
            score_size: None,
            softcap: None,
            logit_softcap: None,
            logit_scale: 1.0,
            window: None,
            pad: pad(fields)?,
            tied: fields.get("tie_word_embeddings")?,
            head_bias: false,
            head_layer: None,
            embedding_scale: EmbeddingScale::One,
            qkv_bias: false,
            plain_keys: false,
            out_bias: false,
            last_bias: false,
            net_bias: false,
            clip: None,
            head_gate: HeadGate::None,
            qk_norm: QkNorm::None,
            sinks: Sinks::None,
            attention_dropout: fields.optional("attention_dropout")?.unwrap_or(0.0),
            residual_dropout: 0.0,
            embedding_dropout: 0.0,
            // Where the class has none, it takes this one (Youtu).
            deviation: fields.optional("initializer_range")?.unwrap_or(2.0 / (5.0 * sizes.hidden as f64).sqrt()),
            latent: None,
            indexer: None,
            cross: None,
            scanned: None,
            still: LayerSet::None,
            netless: LayerSet::None,
            experts: None,
            mtp: None,
            vision: None,
        })
    }
}

impl ModelSizes {
    /// Reads them.
    pub(super) fn read(fields: &Fields) -> Result<ModelSizes, ConfigError> {
        Ok(ModelSizes {
            hidden: fields.get("hidden_size")?,
            heads: fields.get("num_attention_heads")?,
            layers: fields.layers("num_hidden_layers")?,
        })
    }

    /// The size of a head that no key states.
    pub(super) fn head(self) -> Result<u64, ConfigError> {
        let ModelSizes { hidden, heads, .. } = self;
        positive("num_attention_heads", heads)?;
        if !hidden.is_multiple_of(heads) {
            let why = format!("`hidden_size` {hidden} is not divisible by `num_attention_heads` {heads}");
            return Err(ConfigError::Contradiction(why));
        }
        Ok(hidden / heads)
    }
}

/// The same model, whose products of attention have biases if the file says so.
pub(super) fn biased(fields: &Fields, base: LlamaConfig) -> Result<LlamaConfig, ConfigError> {
    let has_bias = fields.get("attention_bias")?;
    Ok(LlamaConfig { qkv_bias: has_bias, out_bias: has_bias, ..base })
}

/// The function of the feed-forward net, under a key.
pub(super) fn activation(fields: &Fields, key: &'static str) -> Result<Activation, ConfigError> {
    let named: String = fields.get(key)?;
    match named.as_str() {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::GeluErf),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Activation::GeluTanh),
        "quick_gelu" => Ok(Activation::GeluSigmoid),
        "relu" => Ok(Activation::Relu),
        "relu2" => Ok(Activation::ReluSquared),
        _ => {
            let why =
                format!("{named} is not supported, only silu, gelu, gelu_pytorch_tanh, quick_gelu, relu and relu2");
            Err(unsupported(key, why))
        }
    }
}

/// Layers that predict further tokens, where the file states their number.
pub(super) fn further(fields: &Fields) -> Result<Option<Mtp>, ConfigError> {
    let key = "num_nextn_predict_layers";
    let depth = depth(key, fields.optional(key)?.unwrap_or(0))?;
    if depth == 0 {
        return Ok(None);
    }
    let loss_factor: f64 = fields.get("mtp_loss_scaling_factor")?;
    Ok((loss_factor != 0.0).then_some(Mtp { depth, loss_factor }))
}

/// The padding token; a negative one counts from the end of the vocabulary.
fn pad(fields: &Fields) -> Result<Option<u64>, ConfigError> {
    let Some(stated) = fields.optional::<i64>("pad_token_id")? else { return Ok(None) };
    let vocabulary: u64 = fields.get("vocab_size")?;
    let pad = if stated < 0 { vocabulary.checked_sub(stated.unsigned_abs()) } else { Some(stated.unsigned_abs()) };
    pad.map(Some).ok_or_else(|| invalid("pad_token_id", format!("{stated} is none of {vocabulary} tokens")))
}
