//! The block of the embedding: rows of the table, their factor, and learned positions.

use super::config::{EmbeddingScale, Learned, LlamaConfig};
use super::dropout;
use crate::graph::{ArgKind, ResultKind};
use crate::models::balance;
use crate::models::draft::{Body, Draft, DraftError, Weight};
use crate::ops::{Binary, BinaryKind, Embedding, Slice};

/// The block, and its call, which gives `x`, and the sums over layers of names `passed`, none so far.
pub(super) fn build(config: &LlamaConfig, draft: &mut Draft, passed: &[&str]) -> Result<(), DraftError> {
    let mut weights = vec![Weight::normal("emb", "v h", config.deviation)];
    let mut inputs = vec!["tok"];
    if let Some(Learned { positions, unread }) = config.learned {
        weights.push(Weight::normal("wpe", &format!("{} h", positions + unread), config.deviation));
        inputs.push("pos");
    }
    if config.embedding_norm {
        weights.extend(config.norm.weights("emb_norm"));
    }
    draft.declare(&weights);
    let args: Vec<_> = inputs.iter().map(|name| (*name, ArgKind::Input, draft.ids())).collect();
    let block = draft.block("embed", &args, &weights, &vec![ResultKind::Value; 1 + passed.len()], |b| {
        tokens(config, b, if config.learned.is_some() { "token" } else { "x" })?;
        if let Some(learned) = config.learned {
            positions(learned, b)?;
            b.op(&["x"], Binary::of(BinaryKind::Add), &["token", "place"])?;
        }
        let mut x = dropout::build(b, config.embedding_dropout, "x", "embed")?;
        if config.embedding_norm {
            config.norm.build(config.norm_eps, b, "xn", &x, "emb_norm")?;
            x = "xn".to_string();
        }
        if !passed.is_empty() {
            balance::first(b)?;
        }
        [&*x].iter().chain(passed).map(|name| b.value(name)).collect()
    })?;
    let params: Vec<&str> = weights.iter().map(|weight| &*weight.name).collect();
    draft.call(&[&["x"], passed].concat().join(" "), block, None, &inputs, &params);
    Ok(())
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

/// `place`, the rows of the positions.
fn positions(Learned { positions, unread }: Learned, b: &mut Body<'_>) -> Result<(), DraftError> {
    if unread == 0 {
        return b.op(&["place"], Embedding::default(), &["pos", "wpe"]);
    }
    b.op(&["wpe_read"], Slice { dim: 0, start: unread, length: positions }, &["wpe"])?;
    b.op(&["place"], Embedding::default(), &["pos", "wpe_read"])
}
