//! Attention of the LLaMA family: grouped queries (Ainslie et al. 2023), or keys and values from a latent vector ([`Latent`]).
//!
//! [`Latent`]: super::latent::Latent

use super::alibi::Alibi;
use super::config::{HeadGate, LlamaConfig, QkNorm};
use super::differential;
use super::indexer::Indexer;
use super::latent::Latent;
use super::layers::{HeadDims, KeyChoice, LayerKind};
use super::qk_norm::{self, AllHeads, flat_norm};
use super::temperature::Temperature;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::rotation::Rotation;
use crate::ops::{Attention, AttentionSettings, Binary, BinaryKind, Dropout, RmsNorm, UnaryKind};
use crate::types::DType;

/// The parameters of attention; the matrix that writes to the residual stream has the deviation `residual`.
pub(super) fn weights(config: &LlamaConfig, kind: &LayerKind<'_>, residual: f64) -> Vec<Weight> {
    let deviation = config.deviation;
    if let Some(latent) = &config.latent {
        let mut weights = latent.weights(deviation, residual, config.indexer.is_some());
        let indexer = config.indexer.filter(|_| kind.choice == KeyChoice::Own);
        weights.extend(indexer.into_iter().flat_map(|indexer| indexer.weights(deviation)));
        weights.extend(gate_weights(config, kind));
        return weights;
    }
    if config.differential {
        return differential::weights(config, kind, residual);
    }
    let HeadDims { heads, queries, keys, values, given, .. } = kind.dims;
    let mut weights = vec![
        Weight::normal("wq", &format!("h {queries}"), deviation),
        Weight::normal("wk", &format!("h {keys}"), deviation),
    ];
    weights.extend((!kind.keys_are_values).then(|| Weight::normal("wv", &format!("h {values}"), deviation)));
    weights.push(Weight::normal("wo", &format!("{given} h"), residual));
    if config.qkv_bias {
        let biases = [("bq", queries), ("bk", keys), ("bv", values)];
        let biases = biases
            .into_iter()
            .filter(|(name, _)| !(config.plain_keys && *name == "bk" || kind.keys_are_values && *name == "bv"));
        weights.extend(biases.map(|(name, dims)| Weight::constant(name, dims, 0.0)));
    }
    weights.extend(kind.out_bias.then(|| Weight::constant("bo", "h", 0.0)));
    weights.extend(kind.sinks.then(|| Weight::constant("sink", heads, 0.0)));
    weights.extend(config.inner_norms.then(|| Weight::constant("heads_norm", given, 1.0)));
    weights.extend(gate_weights(config, kind));
    weights.extend(qk_norm::weights(config.qk_norm, kind.dims));
    weights
}

/// `y = attention(x)`
pub(super) fn build(
    config: &LlamaConfig,
    kind: &LayerKind<'_>,
    b: &mut Body<'_>,
    y: &str,
    x: &str,
) -> Result<(), DraftError> {
    if config.differential {
        return differential::build(config, kind, b, y, x);
    }
    let given = match &config.latent {
        Some(latent) => {
            if let Some(indexer) = &config.indexer {
                let rotation = kind.rotation.ok_or(DraftError::NoPositions)?;
                sparse(&Sparse { config, latent, indexer, rotation, is_own: kind.choice == KeyChoice::Own }, b, x)?;
                let x = latent.gate(b)?;
                return b.linear(&Linear { y, x, w: "wo", bias: None, from: "g r dv", to: "h" });
            }
            latent.heads(kind.rotation, b, x).map(|()| "g r dv")?
        }
        None => heads(config, kind, b, x).map(|()| kind.dims.given)?,
    };
    let (p, path) = (config.attention_dropout, "layer.o".to_string());
    let settings = AttentionSettings {
        dropout: (p != 0.0).then_some(Dropout { p, path, piece: None }),
        window: kind.window.filter(|window| !window.chunked).map(|window| window.tokens),
        chunk: kind.window.filter(|window| window.chunked).map(|window| window.tokens),
        softcap: config.softcap,
        ..AttentionSettings::new(config.score_scale(), config.causal)
    };
    let operands = ["q", "k", "v", "pos", "pos", "seg", "seg", "sink"];
    b.op(&["o", "o_lse"], Attention(settings), &operands[..7 + usize::from(kind.sinks)])?;
    let gated = gate_dims(config, kind);
    if let Some(dims) = gated {
        gate(config, b, x, given, dims)?;
    }
    let mut x = if gated.is_some() { "ow" } else { "o" };
    if config.inner_norms {
        let all = AllHeads { dims: given, size: config.heads * config.value.unwrap_or(kind.head) };
        flat_norm(b, config.norm_eps, &all, "on", x, "heads_norm")?;
        x = "on";
    }
    let bias = kind.out_bias.then_some("bo");
    b.linear(&Linear { y, x, w: "wo", bias, from: given, to: "h" })
}

/// Attention to the keys that an indexer chooses.
struct Sparse<'a> {
    config: &'a LlamaConfig,
    latent: &'a Latent,
    indexer: &'a Indexer,
    rotation: &'a Rotation,
    /// The layer has the indexer.
    is_own: bool,
}

/// `o`, what heads give at chosen keys, and what trains the indexer.
fn sparse(sparse: &Sparse<'_>, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let Sparse { config, latent, indexer, rotation, is_own } = *sparse;
    latent.absorbed(rotation, b, x)?;
    if is_own {
        indexer.choose(latent, rotation, b, x)?;
    }
    latent.attend_to_choice(config.score_scale(), b)?;
    match indexer.loss.filter(|_| is_own) {
        Some(factor) => indexer.loss(config.score_scale(), factor, b),
        None => Ok(()),
    }
}

/// The dims of what heads give.
fn given(config: &LlamaConfig, kind: &LayerKind<'_>) -> &'static str {
    if config.latent.is_some() { "g r dv" } else { kind.dims.given }
}

/// The dims of the gates of heads, if there are any.
fn gate_dims(config: &LlamaConfig, kind: &LayerKind<'_>) -> Option<&'static str> {
    match config.head_gate {
        HeadGate::None => None,
        HeadGate::Sigmoid | HeadGate::SigmoidBiased | HeadGate::Softplus => Some(given(config, kind)),
        HeadGate::SigmoidOfHead | HeadGate::SoftplusOfHead => Some(kind.dims.heads),
    }
}

/// The parameters of these gates.
fn gate_weights(config: &LlamaConfig, kind: &LayerKind<'_>) -> Vec<Weight> {
    let matrix = gate_dims(config, kind).map(|dims| Weight::normal("wg", &format!("h {dims}"), config.deviation));
    let is_biased = config.head_gate == HeadGate::SigmoidBiased;
    let bias = is_biased.then(|| Weight::constant("wg_bias", kind.dims.heads, 0.0));
    matrix.into_iter().chain(bias).collect()
}

/// `ow`, what heads give times their gates of these dims.
fn gate(config: &LlamaConfig, b: &mut Body<'_>, x: &str, given: &str, dims: &str) -> Result<(), DraftError> {
    b.linear(&Linear { y: "og", x, w: "wg", bias: None, from: "h", to: dims })?;
    match config.head_gate {
        HeadGate::None | HeadGate::Sigmoid | HeadGate::SigmoidOfHead => b.sigmoid("ov", "og")?,
        HeadGate::SigmoidBiased => {
            let heads = dims.rsplit_once(' ').map_or(dims, |(heads, _)| heads);
            let add = Binary::spread(BinaryKind::Add, &format!("b s {dims}, {heads} -> b s {dims}"))?;
            b.op(&["og_sum"], add, &["og", "wg_bias"])?;
            b.sigmoid("ov", "og_sum")?;
        }
        HeadGate::Softplus | HeadGate::SoftplusOfHead => softplus(b, "ov", "og")?,
    }
    let product = Binary::spread(BinaryKind::Mul, &format!("b s {given}, b s {dims} -> b s {given}"))?;
    b.op(&["ow"], product, &["o", "ov"])
}

/// `y = ln(1 + e^x)`, computed in f32.
fn softplus(b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
    let dtype = b.dtype(x)?;
    let [wide, sum] = ["wide", "sum"].map(|end| format!("{y}_{end}"));
    b.unary(&wide, UnaryKind::Cast(DType::F32), x)?;
    b.unary(&sum, UnaryKind::Softplus, &wide)?;
    b.unary(y, UnaryKind::Cast(dtype), &sum)
}

/// A step from the product of queries or keys to what attention reads.
#[derive(Clone, Copy)]
enum Step<'a> {
    Norm,
    /// A norm of each head without a gain.
    PlainNorm,
    Clip(f64),
    Turn(&'a Rotation),
    Temper(Temperature),
    /// Elements that bias scores by distance.
    Lean(Alibi),
    Scale(f64),
}

/// The steps of queries, or of keys.
fn steps<'a>(config: &LlamaConfig, kind: &LayerKind<'a>, of_queries: bool) -> Vec<Step<'a>> {
    let turns = kind.rotation.map(Step::Turn);
    let norm = (config.qk_norm != QkNorm::None).then_some(Step::Norm);
    let is_last = matches!(config.qk_norm, QkNorm::Turned | QkNorm::HeadsTurned);
    let before = norm.filter(|_| !is_last);
    let after = norm.filter(|_| is_last && (kind.rotation.is_some() || config.qk_norm == QkNorm::HeadsTurned));
    let clip = config.clip.map(Step::Clip);
    let has_positions = kind.rotation.is_some();
    let temper = config.temperature.filter(|temperature| of_queries && temperature.turned == has_positions);
    let temper = temper.map(Step::Temper);
    let alibi = Alibi { heads: config.heads, kv_heads: config.kv_heads, scale: config.score_scale() };
    let lean = config.alibi.then_some(Step::Lean(alibi));
    let scale = (config.key_scale != 1.0 && !of_queries).then_some(Step::Scale(config.key_scale));
    [before, clip, turns, after, temper, scale, lean].into_iter().flatten().collect()
}

/// Queries, keys or values.
pub(super) struct Side<'a> {
    /// `q`, `k` or `v`, which also ends the names of the matrix and of the bias.
    pub(super) name: &'static str,
    /// Its dims behind `b s`.
    pub(super) heads: &'static str,
    /// The steps from the product to what attention reads.
    steps: Vec<Step<'a>>,
}

impl Side<'_> {
    /// The name of its value after the first steps; after the last one that of the side.
    fn value(&self, steps: usize) -> String {
        if steps == self.steps.len() { self.name.to_string() } else { format!("{}{steps}", self.name) }
    }
}

/// `q`, `k` and `v` of `x`.
fn heads(config: &LlamaConfig, kind: &LayerKind<'_>, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    let scale = (config.value_scale != 1.0).then_some(Step::Scale(config.value_scale));
    let sides = [
        Side { name: "q", heads: kind.dims.queries, steps: steps(config, kind, true) },
        Side { name: "k", heads: kind.dims.keys, steps: steps(config, kind, false) },
        Side {
            name: "v",
            heads: kind.dims.values,
            steps: [config.value_norm.then_some(Step::PlainNorm), config.clip.map(Step::Clip), scale]
                .into_iter()
                .flatten()
                .collect(),
        },
    ];
    for side in sides.iter().filter(|side| !(kind.keys_are_values && side.name == "v")) {
        let (y, w, bias) = (side.value(0), format!("w{}", side.name), format!("b{}", side.name));
        let has_bias = config.qkv_bias && !(config.plain_keys && side.name == "k");
        let bias = has_bias.then_some(&*bias);
        b.linear(&Linear { y: &y, x, w: &w, bias, from: "h", to: side.heads })?;
    }
    let longest = sides.iter().map(|side| side.steps.len()).max().unwrap_or(0);
    for number in 0..longest {
        for side in &sides {
            let Some(step) = side.steps.get(number) else { continue };
            let (mut from, to) = (side.value(number), side.value(number + 1));
            if kind.keys_are_values && side.name == "v" && number == 0 {
                from = sides[1].value(0);
            }
            match step {
                Step::Norm => qk_norm::build(config, kind, b, side, &from, &to)?,
                Step::PlainNorm => {
                    b.ones("v_gain", &from, kind.dims.size)?;
                    b.op(&[&to, "v_rstd"], RmsNorm { eps: config.norm_eps }, &[&from, "v_gain"])?;
                }
                Step::Clip(bound) => clip(b, *bound, &to, &from)?,
                Step::Turn(rotation) => rotation.turn(b, &to, &from)?,
                Step::Temper(temperature) => temperature.build(b, side.heads, &to, &from)?,
                Step::Scale(by) => b.scale(&to, *by, &from)?,
                Step::Lean(alibi) if side.name == "q" => alibi.queries(b, &to, &from)?,
                Step::Lean(alibi) => alibi.keys(b, &to, &from)?,
            }
        }
    }
    Ok(())
}

/// `y = min(max(x, -bound), bound)`
fn clip(b: &mut Body<'_>, bound: f64, y: &str, x: &str) -> Result<(), DraftError> {
    let above = format!("{y}_above");
    b.unary(&above, UnaryKind::AtLeast(-bound), x)?;
    b.unary(y, UnaryKind::AtMost(bound), &above)
}
