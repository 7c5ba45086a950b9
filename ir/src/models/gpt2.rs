//! GPT-2: learned positions, layer norms, biases, GELU, tied embeddings. Radford et al. 2019; the original order of norms of
//! Vaswani et al. 2017 by `post_norm`.

use super::draft::{Batch, Body, Draft, DraftError, Linear, Weight};
use super::error::{ConfigError, depth, invalid, not_negative, positive};
use crate::dim_role::DimRole;
use crate::graph::{ArgKind, Model, ResultKind};
use crate::ops::{
    Attention, AttentionSettings, Binary, BinaryKind, CrossEntropy, Dropout, Einsum, Embedding, LayerNorm, UnaryKind,
};
use crate::types::DimName;
use serde::Serialize;

/// A configuration of the GPT-2 family.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Gpt2Config {
    /// Size of the vocabulary.
    pub vocabulary: u64,
    /// The number of positions of the table: the longest sequence. None: the length of the sequence.
    pub positions: Option<u64>,
    /// Size of the residual stream.
    pub hidden: u64,
    /// Size between the matrices of the feed-forward net.
    pub feed_forward: u64,
    /// Number of layers.
    pub layers: u32,
    /// Heads; they divide `hidden`.
    pub heads: u64,
    /// Added to the variance in norms.
    pub norm_eps: f64,
    /// GELU with the error function (`gelu`) instead of the tanh form (`gelu_new`).
    pub exact_gelu: bool,
    /// Post-norm: the norm follows each sum instead of preceding each branch.
    pub post_norm: bool,
    /// Probability that a weight of the attention is dropped.
    pub attention_dropout: f64,
    /// Probability that an element of a branch's result is dropped.
    pub residual_dropout: f64,
    /// Probability that an element of the embedding is dropped.
    pub embedding_dropout: f64,
    /// The head's matrix is the embedding table.
    pub tied: bool,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
}

impl Gpt2Config {
    /// Checks the sizes and probabilities.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocab_size", self.vocabulary),
            ("n_positions", self.positions.unwrap_or(1)),
            ("n_embd", self.hidden),
            ("n_inner", self.feed_forward),
            ("n_layer", u64::from(self.layers)),
            ("n_head", self.heads),
        ];
        for (field, size) in sizes {
            positive(field, size)?;
        }
        depth("n_layer", self.layers)?;
        if !self.hidden.is_multiple_of(self.heads) {
            let why = format!("`n_embd` {} is not divisible by `n_head` {}", self.hidden, self.heads);
            return Err(ConfigError::Contradiction(why));
        }
        not_negative("layer_norm_epsilon", self.norm_eps)?;
        not_negative("initializer_range", self.deviation)?;
        let probabilities = [
            ("attn_pdrop", self.attention_dropout),
            ("resid_pdrop", self.residual_dropout),
            ("embd_pdrop", self.embedding_dropout),
        ];
        for (field, p) in probabilities {
            if !(0.0..1.0).contains(&p) {
                return Err(invalid(field, format!("{p} is no probability below 1")));
            }
        }
        Ok(())
    }
}

/// The model of a configuration.
pub(super) fn build(config: &Gpt2Config, batch: &Batch) -> Result<Model, ConfigError> {
    config.check()?;
    if let Some(positions) = config.positions.filter(|&positions| batch.seq > positions) {
        return Err(ConfigError::TooLong { seq: batch.seq, positions });
    }
    blocks(config, batch).map_err(|error| ConfigError::Contradiction(error.to_string()))
}

fn blocks(config: &Gpt2Config, batch: &Batch) -> Result<Model, DraftError> {
    let dims = vec![
        DimName::new("h", config.hidden, None),
        DimName::new("g", config.heads, Some(DimRole::KvHeads)).undivided(),
        DimName::new("r", 1, Some(DimRole::QueryHeads)).undivided(),
        DimName::new("d", config.hidden / config.heads, None),
        DimName::new("f", config.feed_forward, Some(DimRole::FeedForward)),
        DimName::new("v", config.vocabulary, Some(DimRole::Vocabulary)),
    ];
    let mut draft = Draft::new("gpt2", batch, dims);
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let embedding = [
        Weight::normal("wte", "v h", config.deviation),
        Weight::normal("wpe", &format!("{} h", config.positions.unwrap_or(batch.seq)), config.deviation),
    ];
    let layer = layer_weights(config);
    let head = head_weights(config);
    draft.declare(&embedding);
    draft.declare_array("layer", config.layers, &layer);
    draft.declare(if config.tied { &head[..head.len() - 1] } else { &head });

    let args = [("tok", ArgKind::Input, ids.clone()), ("pos", ArgKind::Input, ids.clone())];
    let embed = draft.block("embed", &args, &embedding, &[ResultKind::Value], |b| {
        b.op(&["tok_emb"], Embedding::default(), &["tok", "wte"])?;
        b.op(&["pos_emb"], Embedding::default(), &["pos", "wpe"])?;
        b.op(&["x"], Binary::of(BinaryKind::Add), &["tok_emb", "pos_emb"])?;
        let x = dropped(b, config.embedding_dropout, "x", "embed")?;
        Ok(vec![b.value(&x)?])
    })?;
    let args = [
        ("x", ArgKind::Value, stream.clone()),
        ("pos", ArgKind::Input, ids.clone()),
        ("seg", ArgKind::Input, ids.clone()),
    ];
    let block = draft.block("layer", &args, &layer, &[ResultKind::Value], |b| {
        let first = Branch { number: 1, x: "x", normed: "a", sum: "x1" };
        first.build(config, b, |b, input| attention(config, b, input))?;
        let second = Branch { number: 2, x: "x1", normed: "n", sum: "y" };
        second.build(config, b, |b, input| feed_forward(config, b, input))?;
        Ok(vec![b.value("y")?])
    })?;
    let args = [("x", ArgKind::Value, stream), ("lab", ArgKind::Input, ids)];
    let end = draft.block("head", &args, &head, &[ResultKind::Loss], |b| {
        if !config.post_norm {
            b.op(&["n", "n_mean", "n_rstd"], norm(config), &["x", "final_norm", "final_bias"])?;
        }
        let input = if config.post_norm { "x" } else { "n" };
        let (matrix, dims) = matrix(config);
        b.op(&["logits"], Einsum::new(&format!("b s h, {dims} -> b s v"))?, &[input, matrix])?;
        b.op(&["loss", "lse"], CrossEntropy, &["logits", "lab"])?;
        Ok(vec![b.value("loss")?])
    })?;

    draft.call("x", embed, None, &["tok", "pos"], &["wte", "wpe"]);
    draft.call("y", block, Some(0..config.layers), &["x", "pos", "seg"], &["layer"]);
    let params: Vec<&str> = head.iter().map(|weight| &*weight.name).collect();
    draft.call("", end, None, &["y", "lab"], &params);
    Ok(draft.finish())
}

/// Matrices that write to the residual stream start smaller by `sqrt(2 layers)`: 2 layers of them add up there, and so its
/// variance does not grow with depth (Radford et al. 2019, section 2.3). A norm after each sum makes this unnecessary.
fn layer_weights(config: &Gpt2Config) -> Vec<Weight> {
    let sums = if config.post_norm { 1.0 } else { 2.0 * f64::from(config.layers) };
    let residual = config.deviation / sums.sqrt();
    vec![
        Weight::constant("norm1", "h", 1.0),
        Weight::constant("norm1_bias", "h", 0.0),
        Weight::normal("wq", "h g r d", config.deviation),
        Weight::normal("wk", "h g d", config.deviation),
        Weight::normal("wv", "h g d", config.deviation),
        Weight::constant("bq", "g r d", 0.0),
        Weight::constant("bk", "g d", 0.0),
        Weight::constant("bv", "g d", 0.0),
        Weight::normal("wo", "g r d h", residual),
        Weight::constant("bo", "h", 0.0),
        Weight::constant("norm2", "h", 1.0),
        Weight::constant("norm2_bias", "h", 0.0),
        Weight::normal("up", "h f", config.deviation),
        Weight::constant("up_bias", "f", 0.0),
        Weight::normal("down", "f h", residual),
        Weight::constant("down_bias", "h", 0.0),
    ]
}

/// The final norm of pre-norm models, and the matrix.
fn head_weights(config: &Gpt2Config) -> Vec<Weight> {
    let mut weights = Vec::new();
    if !config.post_norm {
        weights.push(Weight::constant("final_norm", "h", 1.0));
        weights.push(Weight::constant("final_bias", "h", 0.0));
    }
    let (matrix, dims) = matrix(config);
    weights.push(Weight::normal(matrix, dims, config.deviation));
    weights
}

fn matrix(config: &Gpt2Config) -> (&'static str, &'static str) {
    if config.tied { ("wte", "v h") } else { ("out", "h v") }
}

fn norm(config: &Gpt2Config) -> LayerNorm {
    LayerNorm { eps: config.norm_eps }
}

/// A branch of a layer: `sum = x + f(norm(x))`, or with `post_norm` `sum = norm(x + f(x))`.
struct Branch<'a> {
    /// The number of its norm.
    number: u32,
    x: &'a str,
    /// The operand of `f`; with `post_norm` that of the norm.
    normed: &'a str,
    sum: &'a str,
}

impl Branch<'_> {
    /// Adds its statements. `f` gets the name of its operand and gives its result's.
    fn build(
        &self,
        config: &Gpt2Config,
        b: &mut Body<'_>,
        f: impl FnOnce(&mut Body<'_>, &str) -> Result<&'static str, DraftError>,
    ) -> Result<(), DraftError> {
        let Branch { number, x, normed, sum } = *self;
        let (gain, bias) = (format!("norm{number}"), format!("norm{number}_bias"));
        let (mean, rstd) = (format!("{normed}_mean"), format!("{normed}_rstd"));
        if config.post_norm {
            let result = f(b, x)?;
            let result = dropped(b, config.residual_dropout, result, &format!("layer.{result}"))?;
            b.op(&[normed], Binary::of(BinaryKind::Add), &[x, &result])?;
            return b.op(&[sum, &mean, &rstd], norm(config), &[normed, &gain, &bias]);
        }
        b.op(&[normed, &mean, &rstd], norm(config), &[x, &gain, &bias])?;
        let result = f(b, normed)?;
        let result = dropped(b, config.residual_dropout, result, &format!("layer.{result}"))?;
        b.op(&[sum], Binary::of(BinaryKind::Add), &[x, &result])
    }
}

/// Drops elements of a value, if any; gives the name of what comes out.
fn dropped(b: &mut Body<'_>, p: f64, value: &str, path: &str) -> Result<String, DraftError> {
    if p == 0.0 {
        return Ok(value.to_string());
    }
    let name = format!("{value}_dropped");
    b.op(&[&name], Dropout { p, path: path.to_string(), piece: None }, &[value])?;
    Ok(name)
}

fn attention(config: &Gpt2Config, b: &mut Body<'_>, x: &str) -> Result<&'static str, DraftError> {
    b.linear(&Linear { y: "q", x, w: "wq", bias: Some("bq"), from: "h", to: "g r d" })?;
    b.linear(&Linear { y: "k", x, w: "wk", bias: Some("bk"), from: "h", to: "g d" })?;
    b.linear(&Linear { y: "v", x, w: "wv", bias: Some("bv"), from: "h", to: "g d" })?;
    let scale = 1.0 / ((config.hidden / config.heads) as f64).sqrt();
    let (p, path) = (config.attention_dropout, "layer.o".to_string());
    let dropout = (p != 0.0).then_some(Dropout { p, path, piece: None });
    let op = Attention(AttentionSettings { dropout, ..AttentionSettings::new(scale, true) });
    b.op(&["o", "o_lse"], op, &["q", "k", "v", "pos", "pos", "seg", "seg"])?;
    b.linear(&Linear { y: "p", x: "o", w: "wo", bias: Some("bo"), from: "g r d", to: "h" })?;
    Ok("p")
}

fn feed_forward(config: &Gpt2Config, b: &mut Body<'_>, x: &str) -> Result<&'static str, DraftError> {
    b.linear(&Linear { y: "fu", x, w: "up", bias: Some("up_bias"), from: "h", to: "f" })?;
    let gelu = if config.exact_gelu { UnaryKind::GeluErf } else { UnaryKind::Gelu };
    b.unary("fa", gelu, "fu")?;
    b.linear(&Linear { y: "fd", x: "fa", w: "down", bias: Some("down_bias"), from: "f", to: "h" })?;
    Ok("fd")
}
