//! The block of the embedding: rows of the table, their factor, positions, norm, and a matrix to the stream's size.

use super::config::{EmbeddingNorm, EmbeddingScale, Learned, LlamaConfig, Waves};
use super::depth;
use super::dropout;
use super::indexer::CHOICE;
use super::layer_embedding::LayerEmbedding;
use crate::graph::{ArgKind, ResultKind};
use crate::models::balance;
use crate::models::draft::{Body, Draft, DraftError, Linear, Weight};
use crate::models::vision::{ROWS, put};
use crate::ops::{Binary, BinaryKind, Concat, Einsum, Embedding, Iota, Reduce, Reshape, Slice, UnaryKind};
use crate::types::{DType, PartialKind};

/// The names of the tables whose first row is added.
const KINDS: [&str; 2] = ["wte", "wke"];

/// The block, and its call, which gives `x`, and what layers pass on by the names `passed`: sums over layers, none so far, and
/// what [`carried`](super::carried) names.
pub(super) fn build(config: &LlamaConfig, draft: &mut Draft, passed: &[&str]) -> Result<(), DraftError> {
    let weights = weights(config);
    let has_positions = config.learned.is_some() || config.waves.is_some();
    let inputs = &["tok", "pos"][..1 + usize::from(has_positions)];
    draft.declare(&weights);
    let mut args: Vec<_> = inputs.iter().map(|name| (*name, ArgKind::Input, draft.ids())).collect();
    let mut operands = inputs.to_vec();
    if config.vision.is_some() {
        args.insert(0, (ROWS[0], ArgKind::Value, draft.ty("b i h")));
        args.push((ROWS[1], ArgKind::Input, draft.ids()));
        operands = [&ROWS[..1], inputs, &ROWS[1..]].concat();
    }
    let block = draft.block("embed", &args, &weights, &vec![ResultKind::Value; 1 + passed.len()], |b| {
        let mut x = rows(config, b)?;
        if config.vision.is_some() {
            x = put(b, &x)?.to_string();
        }
        if passed.contains(&balance::PASSED[0]) {
            balance::first(b)?;
        }
        if let Some(indexer) = config.indexer.filter(|_| passed.contains(&CHOICE)) {
            indexer.first(b)?;
        }
        if config.counts_layers() {
            depth::first(config, b)?;
        }
        if config.layer_embedding.is_some() {
            LayerEmbedding::first(b, &x)?;
        }
        [&*x].iter().chain(passed).map(|name| b.value(name)).collect()
    })?;
    let params: Vec<&str> = weights.iter().map(|weight| &*weight.name).collect();
    draft.call(&[&["x"], passed].concat().join(" "), block, None, &operands, &params);
    Ok(())
}

/// The parameters.
fn weights(config: &LlamaConfig) -> Vec<Weight> {
    let row = config.embedding_letter();
    let mut weights = vec![Weight::normal("emb", &format!("{} {row}", config.token_letter()), config.deviation)];
    if let Some(Learned { positions, unread }) = config.learned {
        let dims = format!("{} {row}", positions + unread);
        weights.push(match config.fixed_positions {
            Some(fall) => Weight::waves("wpe", &dims, fall),
            None => Weight::normal("wpe", &dims, config.deviation),
        });
    }
    weights.extend(config.rotary_table.map(|positions| {
        let fall = 2.0 * config.rotation.theta.ln() / config.head as f64;
        Weight::waves("rotary_table", &format!("{positions} d"), fall)
    }));
    if config.pooler {
        weights.push(Weight::normal("pooler", "h h", config.deviation).frozen());
        weights.push(Weight::constant("pooler_bias", "h", 0.0).frozen());
    }
    let tables = KINDS.iter().zip(config.kinds).filter(|(_, count)| *count > 0);
    weights.extend(tables.map(|(name, count)| Weight::normal(*name, &format!("{count} {row}"), config.deviation)));
    if config.embedding_norm != EmbeddingNorm::None {
        weights.extend(config.norm.weights("emb_norm", row));
    }
    if config.embedding_size.is_some() {
        weights.push(Weight::normal("emb_proj", "a h", config.deviation));
        weights.push(Weight::constant("emb_proj_bias", "h", 0.0));
    }
    weights.extend(config.layer_embedding.map(|_| LayerEmbedding::gain()));
    weights
}

/// The operand of the first layer, by the name that it gives.
fn rows(config: &LlamaConfig, b: &mut Body<'_>) -> Result<String, DraftError> {
    let row = config.embedding_letter();
    let is_alone = config.learned.is_none() && config.waves.is_none() && config.kinds == [0; 2];
    let sum = if config.embedding_size.is_some() { "x1" } else { "x" };
    let mut last = if is_alone { sum } else { "token" }.to_string();
    tokens(config, b, &last)?;
    if config.embedding_norm == EmbeddingNorm::Tokens {
        config.norm.build(config.norm_eps, b, row, "tn", &last, "emb_norm")?;
        last = "tn".to_string();
    }
    let mut further: Vec<&str> = Vec::new();
    for (name, count) in KINDS.into_iter().zip(config.kinds) {
        if count > 0 {
            last = first_row(b, name, &last, row)?;
        }
    }
    if let Some(learned) = config.learned {
        positions(learned, b)?;
        further.push("place");
    }
    if let Some(waves) = config.waves {
        waved(config, waves, b)?;
        further.push("wave");
    }
    for added in further {
        b.op(&[sum], Binary::of(BinaryKind::Add), &[&last, added])?;
        last = sum.to_string();
    }
    if config.embedding_norm == EmbeddingNorm::Sum {
        config.norm.build(config.norm_eps, b, row, "xn", &last, "emb_norm")?;
        last = "xn".to_string();
    }
    last = dropout::build(b, config.embedding_dropout, &last, "embed")?;
    if config.embedding_size.is_some() {
        let bias = Some("emb_proj_bias");
        b.linear(&Linear { y: "x", x: &last, w: "emb_proj", bias, from: "a", to: "h" })?;
        last = "x".to_string();
    }
    Ok(last)
}

/// `y`, the rows of the tokens times their factor.
fn tokens(config: &LlamaConfig, b: &mut Body<'_>, y: &str) -> Result<(), DraftError> {
    let factor = match config.embedding_scale {
        EmbeddingScale::One => return b.op(&[y], Embedding { pad: config.pad }, &["tok", "emb"]),
        EmbeddingScale::Root => (config.hidden as f64).sqrt(),
        EmbeddingScale::By(factor) => factor,
    };
    b.op(&["x0"], Embedding { pad: config.pad }, &["tok", "emb"])?;
    b.scale(y, factor, "x0")
}

/// The sum of a value and of the first row of a table, by the name that it gives.
fn first_row(b: &mut Body<'_>, table: &str, x: &str, row: &str) -> Result<String, DraftError> {
    let [one, flat, sum] = ["row", "first", "sum"].map(|end| format!("{table}_{end}"));
    b.op(&[&one], Slice { dim: 0, start: 0, length: 1 }, &[table])?;
    b.op(&[&flat], Reduce::new(PartialKind::Sum, &format!("i {row} -> {row}"))?, &[&one])?;
    b.op(&[&sum], Binary::spread(BinaryKind::Add, &format!("b s {row}, {row} -> b s {row}"))?, &[x, &flat])?;
    Ok(sum)
}

/// `place`, the rows of the positions.
fn positions(Learned { positions, unread }: Learned, b: &mut Body<'_>) -> Result<(), DraftError> {
    if unread == 0 {
        return b.op(&["place"], Embedding::default(), &["pos", "wpe"]);
    }
    b.op(&["wpe_read"], Slice { dim: 0, start: unread, length: positions }, &["wpe"])?;
    b.op(&["place"], Embedding::default(), &["pos", "wpe_read"])
}

/// `wave`, the waves of the positions, computed in f32.
fn waved(config: &LlamaConfig, Waves { first, fall }: Waves, b: &mut Body<'_>) -> Result<(), DraftError> {
    let half = (config.hidden / 2).to_string();
    b.unary("at", UnaryKind::Cast(DType::F32), "pos")?;
    b.unary("at_first", UnaryKind::Shift(first as f64), "at")?;
    b.op(&["wave_number"], Iota { dim: 0, dims: b.dims(&half), dtype: DType::F32 }, &[])?;
    b.scale("wave_fall", -fall, "wave_number")?;
    b.unary("frequency", UnaryKind::Exp, "wave_fall")?;
    b.op(&["angle"], Einsum::new("b s, i -> b s i")?, &["at_first", "frequency"])?;
    b.unary("sine", UnaryKind::Sin, "angle")?;
    b.unary("cosine", UnaryKind::Cos, "angle")?;
    b.op(&["both"], Concat { dim: 2 }, &["sine", "cosine"])?;
    b.op(&["wave_wide"], Reshape { dims: b.dims("b s h") }, &["both"])?;
    let dtype = b.dtype("emb")?;
    b.unary("wave", UnaryKind::Cast(dtype), "wave_wide")
}
