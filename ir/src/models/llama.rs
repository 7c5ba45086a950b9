//! The LLaMA family: pre-norm blocks of grouped-query attention with rotary positions and a gated feed-forward net.
//! Touvron et al. 2023 (LLaMA 2), Dubey et al. 2024 (Llama 3), Jiang et al. 2023 (Mistral 7B), Yang et al. 2024 (Qwen2).

use super::config::{Batch, ConfigError, Fields, invalid, only, positive};
use super::draft::{Body, Draft, Weight};
use crate::graph::{ArgKind, Model, ResultKind};
use crate::ops::{
    Attention, Binary, BinaryKind, CrossEntropy, Einsum, Embedding, RmsNorm, Rope, Scaling, Unary, UnaryKind,
};
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
    /// Number of layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: u64,
    /// Size of a head; even, since rotary positions turn pairs.
    pub head: u64,
    /// Added to the mean square in norms.
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How they are lowered for a longer context.
    pub rope_scaling: Option<Scaling>,
    /// The head's matrix is the embedding table.
    pub tied: bool,
    /// Queries, keys and values have a bias (Qwen2).
    pub qkv_bias: bool,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
}

/// Reads a `config.json` of a family; defaults are those of `LlamaConfig`, `MistralConfig` and `Qwen2Config` in
/// `transformers`.
pub(super) fn read(family: &str, fields: &Fields<'_>) -> Result<LlamaConfig, ConfigError> {
    refuse_options(family, fields)?;
    let hidden = fields.required("hidden_size")?;
    let heads = fields.required("num_attention_heads")?;
    let (rope_theta, rope_scaling) = rotary(fields)?;
    let config = LlamaConfig {
        vocabulary: fields.required("vocab_size")?,
        hidden,
        feed_forward: fields.required("intermediate_size")?,
        layers: fields.required("num_hidden_layers")?,
        heads,
        // The default of `LlamaConfig`; those of the other classes are the counts of one published model.
        kv_heads: if family == "llama" {
            fields.or("num_key_value_heads", heads)?
        } else {
            fields.required("num_key_value_heads")?
        },
        head: match fields.optional("head_dim")? {
            Some(head) => head,
            None => head_size(hidden, heads)?,
        },
        norm_eps: fields.or("rms_norm_eps", 1e-6)?,
        rope_theta,
        rope_scaling,
        tied: fields.or("tie_word_embeddings", false)?,
        qkv_bias: family == "qwen2",
        deviation: fields.or("initializer_range", 0.02)?,
    };
    check(&config)?;
    Ok(config)
}

fn refuse_options(family: &str, fields: &Fields<'_>) -> Result<(), ConfigError> {
    only("hidden_act", &fields.or("hidden_act", "silu".to_string())?, "silu".to_string())?;
    only("attention_dropout", &fields.or("attention_dropout", 0.0)?, 0.0)?;
    only("mlp_bias", &fields.or("mlp_bias", false)?, false)?;
    if family == "llama" {
        only("attention_bias", &fields.or("attention_bias", false)?, false)?;
    }
    refuse_window(family, fields)
}

/// Qwen2 states a window that counts only where `use_sliding_window` says so; `MistralConfig` has one of 4096 where the file
/// does not state it.
fn refuse_window(family: &str, fields: &Fields<'_>) -> Result<(), ConfigError> {
    if family == "qwen2" {
        return only("use_sliding_window", &fields.or("use_sliding_window", false)?, false);
    }
    let default = (family == "mistral" && !fields.states("sliding_window")).then_some(4096);
    match fields.optional("sliding_window")?.or(default) {
        None => Ok(()),
        Some::<u64>(window) => {
            let why = format!("a window of {window} is not supported; null means full attention");
            Err(ConfigError::Unsupported { field: "sliding_window", why })
        }
    }
}

fn head_size(hidden: u64, heads: u64) -> Result<u64, ConfigError> {
    positive("num_attention_heads", heads)?;
    if !hidden.is_multiple_of(heads) {
        let why = format!("`hidden_size` {hidden} is not divisible by `num_attention_heads` {heads}");
        return Err(ConfigError::Contradiction(why));
    }
    Ok(hidden / heads)
}

/// The base of the frequencies and how they are scaled: `rope_theta` and `rope_scaling`, or in newer files both in
/// `rope_parameters`. Where a file has both, `rope_scaling` counts, as in `transformers`.
fn rotary(fields: &Fields<'_>) -> Result<(f64, Option<Scaling>), ConfigError> {
    let theta = fields.or("rope_theta", 10_000.0)?;
    for field in ["rope_scaling", "rope_parameters"] {
        if let Some(rope) = fields.object(field)? {
            return Ok((rope.or("rope_theta", theta)?, scaling(field, &rope)?));
        }
    }
    Ok((theta, None))
}

/// The kind stands under `rope_type`, in older files under `type`.
fn scaling(field: &'static str, rope: &Fields<'_>) -> Result<Option<Scaling>, ConfigError> {
    let kind: String = match rope.optional("rope_type")? {
        Some(kind) => kind,
        None => rope.or("type", "default".to_string())?,
    };
    match kind.as_str() {
        "default" => Ok(None),
        "linear" => Ok(Some(Scaling::Linear { factor: rope.required("factor")? })),
        "llama3" => Ok(Some(Scaling::Llama3 {
            factor: rope.required("factor")?,
            low: rope.required("low_freq_factor")?,
            high: rope.required("high_freq_factor")?,
            context: rope.required("original_max_position_embeddings")?,
        })),
        _ => {
            let why = format!("{kind} is not supported, only default, linear and llama3");
            Err(ConfigError::Unsupported { field, why })
        }
    }
}

fn check(config: &LlamaConfig) -> Result<(), ConfigError> {
    let sizes = [
        ("vocab_size", config.vocabulary),
        ("hidden_size", config.hidden),
        ("intermediate_size", config.feed_forward),
        ("num_hidden_layers", u64::from(config.layers)),
        ("num_attention_heads", config.heads),
        ("num_key_value_heads", config.kv_heads),
        ("head_dim", config.head),
    ];
    for (field, size) in sizes {
        positive(field, size)?;
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return Err(ConfigError::Contradiction(format!(
            "`num_attention_heads` {} is not a multiple of `num_key_value_heads` {}",
            config.heads, config.kv_heads
        )));
    }
    if !config.head.is_multiple_of(2) {
        return Err(invalid("head_dim", format!("{} is odd; rotary positions turn pairs", config.head)));
    }
    config.rope_scaling.map_or(Ok(()), |scaling| scaling.check()).map_err(|why| invalid("rope_scaling", why))
}

/// The model of a configuration.
pub(super) fn build(config: &LlamaConfig, batch: &Batch) -> Result<Model, ConfigError> {
    check(config)?;
    blocks(config, batch).map_err(ConfigError::Contradiction)
}

fn blocks(config: &LlamaConfig, batch: &Batch) -> Result<Model, String> {
    let dims = [
        ("h", config.hidden),
        ("g", config.kv_heads),
        ("r", config.heads / config.kv_heads),
        ("d", config.head),
        ("f", config.feed_forward),
        ("v", config.vocabulary),
    ];
    let mut draft = Draft::new("llama", batch, &dims);
    let (stream, ids) = (draft.ty("b s h"), draft.ids());

    let embedding = [Weight::normal("emb", "v h", config.deviation)];
    let layer = layer_weights(config);
    let matrix = if config.tied { "emb" } else { "out" };
    let matrix_dims = if config.tied { "v h" } else { "h v" };
    let head = [Weight::constant("final_norm", "h", 1.0), Weight::normal(matrix, matrix_dims, config.deviation)];
    draft.declare(&embedding);
    draft.declare_array("layer", config.layers, &layer);
    draft.declare(if config.tied { &head[..1] } else { &head });

    let embed =
        draft.block("embed", &[("tok", ArgKind::Input, ids.clone())], &embedding, &[ResultKind::Value], |b| {
            b.op(&["x"], Embedding, &["tok", "emb"])?;
            Ok(vec![b.value("x")?])
        })?;
    let args = [
        ("x", ArgKind::Value, stream.clone()),
        ("pos", ArgKind::Input, ids.clone()),
        ("seg", ArgKind::Input, ids.clone()),
    ];
    let block = draft.block("layer", &args, &layer, &[ResultKind::Value], |b| {
        attention(config, b)?;
        feed_forward(config, b)?;
        Ok(vec![b.value("y")?])
    })?;
    let args = [("x", ArgKind::Value, stream), ("lab", ArgKind::Input, ids)];
    let end = draft.block("head", &args, &head, &[ResultKind::Loss], |b| {
        b.op(&["n", "n_rstd"], RmsNorm { eps: config.norm_eps }, &["x", "final_norm"])?;
        let product = Einsum::new(&format!("b s h, {matrix_dims} -> b s v"))?;
        b.op(&["logits"], product, &["n", matrix])?;
        b.op(&["loss", "lse"], CrossEntropy, &["logits", "lab"])?;
        Ok(vec![b.value("loss")?])
    })?;

    draft.call("x", embed, None, &["tok"], &["emb"]);
    draft.call("y", block, Some(config.layers), &["x", "pos", "seg"], &["layer"]);
    draft.call("", end, None, &["y", "lab"], &["final_norm", matrix]);
    Ok(draft.finish())
}

/// Matrices that write to the residual stream start smaller by `sqrt(2 layers)`: 2 layers of them add up there, and so its
/// variance does not grow with depth (Radford et al. 2019, section 2.3).
fn layer_weights(config: &LlamaConfig) -> Vec<Weight> {
    let residual = config.deviation / (2.0 * f64::from(config.layers)).sqrt();
    let mut weights = vec![
        Weight::constant("norm1", "h", 1.0),
        Weight::normal("wq", "h g r d", config.deviation),
        Weight::normal("wk", "h g d", config.deviation),
        Weight::normal("wv", "h g d", config.deviation),
        Weight::normal("wo", "g r d h", residual),
        Weight::constant("norm2", "h", 1.0),
        Weight::normal("gate", "h f", config.deviation),
        Weight::normal("up", "h f", config.deviation),
        Weight::normal("down", "f h", residual),
    ];
    if config.qkv_bias {
        weights.extend(
            [("bq", "g r d"), ("bk", "g d"), ("bv", "g d")].map(|(name, dims)| Weight::constant(name, dims, 0.0)),
        );
    }
    weights
}

/// `x1 = x + attention(norm(x))`
fn attention(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), String> {
    b.op(&["a", "a_rstd"], RmsNorm { eps: config.norm_eps }, &["x", "norm1"])?;
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
    let rope = Rope { theta: config.rope_theta, scaling: config.rope_scaling, inverse: false };
    for (turned, plain) in [("q", "q0"), ("k", "k0")] {
        b.op(&[turned], rope.clone(), &[plain, "pos"])?;
    }
    let attention = Attention { scale: 1.0 / (config.head as f64).sqrt(), causal: true, dropout: None, piece: None };
    b.op(&["o", "o_lse"], attention, &["q", "k", "v", "pos", "pos", "seg", "seg"])?;
    b.op(&["p"], Einsum::new("b s g r d, g r d h -> b s h")?, &["o", "wo"])?;
    b.op(&["x1"], Binary::of(BinaryKind::Add), &["x", "p"])
}

/// `y = x1 + down(silu(gate(n)) up(n))` of `n = norm(x1)`
fn feed_forward(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), String> {
    b.op(&["n", "n_rstd"], RmsNorm { eps: config.norm_eps }, &["x1", "norm2"])?;
    b.op(&["fg"], Einsum::new("b s h, h f -> b s f")?, &["n", "gate"])?;
    b.op(&["fu"], Einsum::new("b s h, h f -> b s f")?, &["n", "up"])?;
    b.op(&["fs"], Unary(UnaryKind::Silu), &["fg"])?;
    b.op(&["fp"], Binary::of(BinaryKind::Mul), &["fs", "fu"])?;
    b.op(&["fd"], Einsum::new("b s f, f h -> b s h")?, &["fp", "down"])?;
    b.op(&["y"], Binary::of(BinaryKind::Add), &["x1", "fd"])
}
