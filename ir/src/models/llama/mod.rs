//! The LLaMA family: blocks of attention with rotary positions and a feed-forward net, gated or not, or experts in its place.
//! Touvron et al. 2023 (LLaMA 2), Dubey et al. 2024 (Llama 3), Jiang et al. 2023 (Mistral 7B), Yang et al. 2024 and 2025
//! (Qwen2, Qwen3), Parmar et al. 2024 (Nemotron-4), DeepSeek-AI 2024 (DeepSeek-V2, V3), Gemma Team 2024 and 2025 (Gemma 2, 3),
//! OLMo Team 2024 (OLMo 2), Abdin et al. 2024 (Phi-3, Phi-4), Black et al. 2022 (GPT-NeoX).

mod alibi;
mod attention;
mod carried;
mod config;
mod cross;
mod depth;
mod differential;
mod dropout;
mod embedding;
mod head;
mod indexer;
mod latent;
mod layer_embedding;
mod layers;
mod mtp;
mod net;
mod norm;
mod qk_norm;
mod temperature;

pub use alibi::Alibi;
pub use config::{
    Branches, Cross, EmbeddingNorm, EmbeddingScale, HeadGate, HeadLayer, Learned, LlamaConfig, Mtp, Norms, QkNorm,
    Sinks, SumFactors, Waves,
};
pub use indexer::Indexer;
pub use latent::Latent;
pub use layer_embedding::LayerEmbedding;
pub use norm::Norm;
pub use temperature::{Growth, Temperature};

pub(super) use depth::NUMBER;
pub(super) use qk_norm::{AllHeads, flat_norm};

use self::carried::Carried;
use self::indexer::INDEX_LOSS;
use self::layers::{KeyChoice, LayerKind, Layers, cut_behind_first, kinds, runs};
use super::balance::{self, ADDED, PASSED};
use super::draft::{Batch, Body, Draft, DraftError, Weight};
use super::error::{ConfigError, unsupported};
use super::mixers::WithAttention;
use super::rotation::LENGTHS;
use super::vision::{self, Added};
use crate::dim_role::DimRole;
use crate::graph::{ArgKind, Model, ResultKind};
use crate::ids::BlockId;
use crate::ops::{Binary, BinaryKind, CrossEntropy};
use crate::types::DimName;
use std::ops::Range;

impl LlamaConfig {
    /// The dims other than b and s. Shards have whole heads and experts.
    fn dims(&self, seq: u64) -> Result<Vec<DimName>, ConfigError> {
        let mut dims = vec![DimName::new("h", self.hidden, None)];
        let heads = [("g", "r", Some(self.kv_heads)), ("gl", "rl", self.local_kv_heads)];
        let pairs = if self.differential { 2 } else { 1 };
        for (keys, queries, count) in heads {
            let begin = format!("{keys} ");
            let attends = kinds(self).any(|kind| kind.attends() && kind.dims.keys.starts_with(&begin));
            let Some(count) = count.filter(|_| attends) else { continue };
            dims.push(DimName::new(keys, count / pairs, Some(DimRole::KvHeads)).undivided());
            dims.push(DimName::new(queries, self.heads / count, Some(DimRole::QueryHeads)).undivided());
        }
        if kinds(self).any(|kind| kind.attends()) {
            match &self.latent {
                Some(latent) => dims.extend(latent.dims()),
                None => dims.push(DimName::new("d", self.head, None)),
            }
            dims.extend(self.value.map(|value| DimName::new("dv", value, None)));
            dims.extend(self.differential.then(|| DimName::new("dd", 2 * self.head, None)));
        }
        let local = self.local_head.filter(|_| kinds(self).any(|kind| kind.dims.size == "dl"));
        dims.extend(local.map(|size| DimName::new("dl", size, None)));
        dims.extend(self.scanned.iter().flat_map(|scanned| scanned.mixer.dims()));
        dims.extend(self.norm_gate.map(|rank| DimName::new("nr", rank, None)));
        dims.extend(self.indexer.iter().flat_map(Indexer::dims));
        dims.extend(self.layer_embedding.iter().flat_map(|embedding| embedding.dims()));
        if kinds(self).any(|kind| kind.has_net && kind.experts.is_none()) {
            dims.push(DimName::new("f", self.feed_forward, Some(DimRole::FeedForward)));
        }
        dims.push(DimName::new("v", self.vocabulary, Some(DimRole::Vocabulary)));
        if self.unpredicted > 0 {
            dims.push(DimName::new("w", self.vocabulary + self.unpredicted, Some(DimRole::Vocabulary)));
        }
        dims.extend(self.embedding_size.map(|size| DimName::new("a", size, None)));
        let head = self.head_layer.filter(|_| self.head_letter() == "o");
        dims.extend(head.map(|layer| DimName::new("o", layer.size, None)));
        let other = self.cross.filter(|cross| cross.hidden != self.hidden);
        dims.extend(other.map(|cross| DimName::new("x", cross.hidden, None)));
        if let Some(experts) = &self.experts {
            dims.extend(experts.dims(seq)?);
        }
        dims.extend(self.vision.iter().flat_map(|vision| vision.dims(self.hidden)));
        Ok(dims)
    }

    /// `y = norm(x)`
    fn norm(&self, b: &mut Body<'_>, y: &str, x: &str, gain: &str) -> Result<(), DraftError> {
        self.norm.build(self.norm_eps, b, "h", y, x, gain)
    }
}

/// The model of a configuration.
pub(super) fn build(config: &LlamaConfig, batch: &Batch) -> Result<Model, ConfigError> {
    config.check()?;
    if let Some(learned) = config.learned.filter(|learned| batch.seq > learned.positions) {
        return Err(ConfigError::TooLong { seq: batch.seq, positions: learned.positions });
    }
    if let Some(longest) = config.longest.filter(|longest| batch.seq > *longest) {
        let why =
            format!("block_sparse attends to parts of sequences above {longest} tokens; shorten {} to it", batch.seq);
        return Err(unsupported("attention_type", why));
    }
    let draft = Draft::new("llama", batch, config.dims(batch.seq)?);
    blocks(config, draft).map_err(|error| ConfigError::Contradiction(error.to_string()))
}

fn blocks(config: &LlamaConfig, mut draft: Draft) -> Result<Model, DraftError> {
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let over_layers = config.balance_over_layers();
    let passed = if over_layers.is_some() { &PASSED[..] } else { &[] };
    let names = [passed, &carried::names(config), carried::constants(config)].concat();
    config.vision.as_ref().map_or(Ok(()), |vision| vision::build(vision, config.norm_eps, &mut draft))?;
    embedding::build(config, &mut draft, &names)?;
    if kinds(config).any(|kind| kind.inputs().contains(&LENGTHS)) {
        draft.input(LENGTHS);
    }
    config.mtp.iter().for_each(|mtp| mtp.declare(&mut draft));
    let layers = layers(config, &mut draft)?;
    let head = head::weights(config);
    draft.declare(&head[..head.len() - usize::from(config.tied)]);
    // The head comes last, so that a model without those layers ends alike.
    config.mtp.map_or(Ok(()), |mtp| mtp::further(config, mtp, &mut draft, &layers))?;
    let mut args = vec![("x", ArgKind::Value, stream)];
    args.extend(passed.iter().map(|name| (*name, ArgKind::Value, draft.wide("n"))));
    args.push(("lab", ArgKind::Input, ids));
    let results: &[ResultKind] =
        if over_layers.is_some() { &[ResultKind::Loss, ResultKind::Regulariser] } else { &[ResultKind::Loss] };
    let end = draft.block("head", &args, &head, results, |b| {
        head::logits(config, b)?;
        b.op(&["loss", "lse"], CrossEntropy, &["logits", "lab"])?;
        let Some((factor, layers)) = over_layers else { return Ok(vec![b.value("loss")?]) };
        balance::last(b, factor, layers)?;
        Ok(vec![b.value("loss")?, b.value("balance_loss")?])
    })?;
    let params: Vec<&str> = head.iter().map(|weight| &*weight.name).collect();
    let operands: Vec<&str> =
        [&*layers.last].into_iter().chain(layers.passed.iter().map(|name| &**name)).chain(["lab"]).collect();
    draft.call("", end, None, &operands, &params);
    Ok(draft.finish())
}

/// The blocks of all layers, and their calls in order.
fn layers(config: &LlamaConfig, draft: &mut Draft) -> Result<Layers, DraftError> {
    let added = Added::of(config.vision.as_ref(), draft)?;
    let runs = cut_behind_first(runs(config), added.layers);
    let mut blocks: Vec<(String, BlockId)> = Vec::new();
    let mut done = 0;
    let mut last = "x".to_string();
    let passed = if config.balance_over_layers().is_some() { &PASSED[..] } else { &[] };
    let mut passed: Vec<String> = passed.iter().map(|name| name.to_string()).collect();
    let names = carried::names(config);
    let mut carried: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let array = runs.last().map_or("layer".to_string(), |(kind, _)| kind.name.clone());
    for (at, (kind, range)) in runs.iter().enumerate() {
        let known = blocks.iter().find(|(name, _)| *name == kind.name).map(|(_, block)| *block);
        let block = match known {
            Some(block) => block,
            None => {
                // Layers that predict further tokens are like the last one.
                let further = config.mtp.filter(|_| kind.name == array).map_or(0, |mtp| mtp.depth);
                let made = layer(config, kind, draft, layers_of(&runs, &kind.name) + further)?;
                blocks.push((kind.name.clone(), made));
                made
            }
        };
        let result = match runs.len() - at {
            1 => "y".to_string(),
            2 if runs.len() == 2 => "z".to_string(),
            _ => format!("z{at}"),
        };
        let taken: Vec<&str> = passed.iter().filter(|_| kind.experts.is_some()).map(|name| &**name).collect();
        let given: Vec<String> = taken.iter().zip(ADDED).map(|(_, name)| format!("{name}{at}")).collect();
        let next: Vec<String> = names.iter().map(|name| format!("{name}{at}")).collect();
        let before: Vec<&str> = carried.iter().map(|name| &**name).collect();
        let constants = carried::constants(config);
        let operands = [&[&*last], &*taken, &before, constants, kind.inputs(), tokens(config)].concat();
        let results = [std::slice::from_ref(&result), &given, &next].concat().join(" ");
        draft.call(&results, block, Some(range.clone()), &operands, &[&kind.name]);
        done += range.len() as u32;
        last = added.call(draft, result, done);
        passed = if given.is_empty() { passed } else { given };
        carried = next;
    }
    let block = blocks.iter().find(|(name, _)| *name == array).map(|(_, block)| *block);
    let inputs = runs.last().map_or(&[][..], |(kind, _)| kind.inputs());
    let (block, count) = (block.ok_or(DraftError::NoLayers)?, layers_of(&runs, &array));
    Ok(Layers { last, passed, block, array, inputs, count })
}

/// The input of tokens, if layers read it.
fn tokens(config: &LlamaConfig) -> &'static [&'static str] {
    if config.layer_embedding.is_some() { &["tok"] } else { &[] }
}

/// The number of layers of the kind of a name.
fn layers_of(runs: &[(LayerKind<'_>, Range<u32>)], name: &str) -> u32 {
    runs.iter().filter(|(kind, _)| kind.name == name).map(|(_, range)| range.len() as u32).sum()
}

/// The block of `count` layers of a kind, and their parameters.
fn layer(config: &LlamaConfig, kind: &LayerKind<'_>, draft: &mut Draft, count: u32) -> Result<BlockId, DraftError> {
    let weights = layer_weights(config, kind);
    draft.declare_array(&kind.name, count, &weights);
    let (stream, ids) = (draft.ty("b s h"), draft.ids());
    let mut args = vec![("x", ArgKind::Value, stream)];
    let mut further = kind.experts.map_or(Vec::new(), |experts| experts.balance.results());
    let mut results = vec![ResultKind::Value];
    let mut given = vec!["y"];
    if let Some(indexer) = config.indexer {
        further.extend((kind.choice == KeyChoice::Own && indexer.loss.is_some()).then_some(INDEX_LOSS));
    }
    if kind.experts.is_some() && config.balance_over_layers().is_some() {
        args.extend(PASSED.map(|name| (name, ArgKind::Value, draft.wide("n"))));
        given.extend(ADDED);
        results.extend([ResultKind::Value; 2]);
    }
    for Carried { taken, given: name, ty } in carried::of_layer(config, kind, draft) {
        args.push((taken, ArgKind::Value, ty));
        given.push(name);
        results.push(ResultKind::Value);
    }
    for (name, dims) in carried::constants(config).iter().zip(["b s h", "dp"]) {
        args.push((name, ArgKind::Value, draft.ty(dims)));
    }
    args.extend(kind.inputs().iter().chain(tokens(config)).map(|name| (*name, ArgKind::Input, ids.clone())));
    results.extend(further.iter().map(|_| ResultKind::Regulariser));
    given.extend(further);
    draft.block(&kind.name, &args, &weights, &results, |b| {
        if config.counts_layers() {
            depth::count(config, b)?;
        }
        if kind.mixes {
            mixing(config, kind).build(config, b, |b, x| mix(config, kind, b, x))?;
        }
        if kind.has_net {
            net_branch(config, kind).build(config, b, |b, x| match kind.experts {
                Some(experts) => {
                    experts.build(config.activation, b, x)?;
                    if experts.normed { config.norm(b, "fn", "fd", "experts_norm") } else { Ok(()) }
                }
                None => net::build(config, b, x),
            })?;
            if let Some(embedding) = config.layer_embedding {
                embedding.build(config, b, if config.layer_scale { "unscaled" } else { "y" }, "y_net")?;
            }
            if config.layer_scale {
                let product = Binary::spread(BinaryKind::Mul, "b s h, () -> b s h")?;
                b.op(&["y"], product, &["unscaled", "layer_scale"])?;
            }
        }
        given.iter().map(|name| b.value(name)).collect()
    })
}

/// `p`: attention of `x`, or what a state gives, or the sum of both.
fn mix(config: &LlamaConfig, kind: &LayerKind<'_>, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let Some(scanned) = kind.scanned else { return attention::build(config, kind, b, "p", x) };
    let Some(WithAttention { read, attention, state }) = scanned.with_attention else {
        return scanned.mixer.build(b, config.norm_eps, "p", x);
    };
    scanned.mixer.build(b, config.norm_eps, "scan_given", x)?;
    b.scale("scan_scaled", state, "scan_given")?;
    b.scale("attention_read", read, x)?;
    attention::build(config, kind, b, "attention_given", "attention_read")?;
    b.scale("attention_scaled", attention, "attention_given")?;
    b.op(&["p"], Binary::of(BinaryKind::Add), &["scan_scaled", "attention_scaled"])
}

/// The branch of attention, or of what is in its place.
fn mixing<'a>(config: &LlamaConfig, kind: &LayerKind<'_>) -> Branch<'a> {
    let normed = if kind.bare { "x" } else { "a" };
    // Layers of one branch have nothing else to add.
    let sum = if kind.has_net { "x1" } else { "y" };
    let SumFactors { attention, state, .. } = config.sum_factors;
    let factors = if kind.attends() { attention } else { state };
    Branch { norms: kind.norms, number: 1, read: "x", stream: "x", sum, normed, result: "p", factors, has_gate: true }
}

/// The branch of the feed-forward net, or of the experts in its place.
fn net_branch<'a>(config: &LlamaConfig, kind: &LayerKind<'_>) -> Branch<'a> {
    let stream = if kind.mixes { "x1" } else { "x" };
    let read = if config.branches == Branches::InTurn { stream } else { "x" };
    let normed = if config.branches == Branches::Shared { "a" } else { "n" };
    let result = if kind.experts.is_some_and(|experts| experts.normed) { "fn" } else { "fd" };
    let sum = match config.layer_embedding {
        Some(_) => "y_net",
        None if config.layer_scale => "unscaled",
        None => "y",
    };
    let factors = config.sum_factors.net;
    let has_gate = kind.experts.is_some();
    Branch { norms: kind.norms, number: 2, read, stream, sum, normed, result, factors, has_gate }
}

/// A branch of a layer, `sum = stream + norm(f(norm(read)))` or `sum = norm(stream + f(read))`, with the norms of the configuration.
struct Branch<'a> {
    norms: Norms,
    /// The number of its norms.
    number: u32,
    read: &'a str,
    stream: &'a str,
    sum: &'a str,
    /// The value of the first norm, or that of which a norm of the sum is.
    normed: &'a str,
    /// The value that `f` computes.
    result: &'a str,
    /// Factors of the stream and of what `f` adds to it.
    factors: [f64; 2],
    /// The norm has a gate, where the model has such.
    has_gate: bool,
}

impl Branch<'_> {
    /// Adds its statements; `f` computes the result from the value that it is given the name of.
    fn build(
        &self,
        config: &LlamaConfig,
        b: &mut Body<'_>,
        f: impl FnOnce(&mut Body<'_>, &str) -> Result<(), DraftError>,
    ) -> Result<(), DraftError> {
        let Branch { norms, number, read, stream, sum, normed, result, factors, .. } = *self;
        let is_normed = number == 2 && config.branches == Branches::Shared || normed == read;
        let (before, after) = (norms.are_before(), norms.are_after());
        if before && !is_normed {
            let gain = format!("norm{number}");
            match config.norm_gate.filter(|_| self.has_gate) {
                Some(_) => norm::gated(config, b, normed, read, &gain)?,
                None => config.norm(b, normed, read, &gain)?,
            }
        }
        f(b, if before { normed } else { read })?;
        let mut added = result.to_string();
        if after {
            added = format!("{result}_normed");
            config.norm(b, &added, result, &format!("post_norm{number}"))?;
        }
        added = dropout::build(b, config.residual_dropout, &added, &format!("layer.{result}"))?;
        if config.residual_scale != 1.0 {
            let whole = std::mem::replace(&mut added, format!("{result}_scaled"));
            b.scale(&added, config.residual_scale, &whole)?;
        }
        let mut stream = if norms == Norms::Stream { normed } else { stream }.to_string();
        if config.sums_by_depth {
            // Sums are counted over the model from 2 on.
            [stream, added] = depth::sides(b, number + 1, &stream, &added)?;
        }
        for (side, factor) in [&mut stream, &mut added].into_iter().zip(factors) {
            if factor != 1.0 {
                let whole = std::mem::replace(side, format!("{side}_by_factor"));
                b.scale(side, factor, &whole)?;
            }
        }
        if norms != Norms::Sums {
            return b.op(&[sum], Binary::of(BinaryKind::Add), &[&stream, &added]);
        }
        b.op(&[normed], Binary::of(BinaryKind::Add), &[&stream, &added])?;
        config.norm(b, sum, normed, &format!("norm{number}"))
    }
}

/// Matrices that write to the residual stream start smaller by `sqrt(2 layers)`: 2 layers of them add up there, and so its
/// variance does not grow with depth (Radford et al. 2019, section 2.3).
fn layer_weights(config: &LlamaConfig, kind: &LayerKind<'_>) -> Vec<Weight> {
    // A norm of each sum makes this unnecessary.
    let sums = if config.norms == Norms::Sums { 1.0 } else { 2.0 * f64::from(config.layers) };
    let residual = config.deviation / sums.sqrt();
    let after = kind.norms.are_after();
    let first = kind.norms.are_before() || kind.norms == Norms::Sums;
    let mut weights = Vec::new();
    if kind.mixes {
        weights.extend((first && !kind.bare).then(|| config.norm.weights("norm1", "h")).into_iter().flatten());
        weights.extend(config.norm_gate.iter().flat_map(|_| norm::gate_weights("norm1", config.deviation)));
        let state = kind.scanned.map(|scanned| scanned.mixer.weights(config.deviation, residual));
        weights.extend(state.into_iter().flatten());
        weights.extend(kind.attends().then(|| attention::weights(config, kind, residual)).into_iter().flatten());
        weights.extend(after.then(|| config.norm.weights("post_norm1", "h")).into_iter().flatten());
    }
    weights.extend(config.cross.into_iter().flat_map(|cross| cross::weights(config, cross)));
    if !kind.has_net {
        return weights;
    }
    if first && config.branches != Branches::Shared {
        weights.extend(config.norm.weights("norm2", "h"));
        let gate = config.norm_gate.filter(|_| kind.experts.is_some());
        weights.extend(gate.iter().flat_map(|_| norm::gate_weights("norm2", config.deviation)));
    }
    weights.extend(match kind.experts {
        Some(experts) => {
            let mut weights = experts.weights(config.deviation, residual);
            let norm = experts.normed.then(|| config.norm.weights("experts_norm", "h"));
            weights.extend(norm.into_iter().flatten());
            weights
        }
        None => net::weights(config, residual),
    });
    weights.extend(after.then(|| config.norm.weights("post_norm2", "h")).into_iter().flatten());
    weights.extend(config.layer_embedding.iter().flat_map(|_| LayerEmbedding::weights(config.deviation, residual)));
    weights.extend(config.layer_scale.then(|| Weight::constant("layer_scale", "", 1.0).frozen()));
    weights
}
