//! Layers that predict further tokens (DeepSeek-AI 2024, DeepSeek-V3, section 2.2): each reads what the one before it gives, and the
//! embedding of the next token, and its logits are those of a label further on. Names and the places of norms are those of
//! `modeling_layers.py` in Hugging Face's `transformers`.

use super::config::{LlamaConfig, Mtp};
use super::layers::Layers;
use crate::graph::{ArgKind, ParamIndex, ParamRef, ResultKind};
use crate::ids::BlockId;
use crate::models::draft::{Draft, DraftError, Weight};
use crate::ops::{Binary, BinaryKind, CrossEntropy, Einsum, Embedding, RmsNorm};

/// The array of the parameters in front of such a layer.
const ENTRY: &str = "mtp";

/// The array of those behind it.
const EXIT: &str = "mtp_head";

impl Mtp {
    /// Declares the inputs that such layers read: tokens and labels of the next places.
    pub(super) fn declare(&self, draft: &mut Draft) {
        for ahead in 1..=self.depth {
            draft.input(&format!("tok{ahead}"));
            draft.input(&format!("lab{ahead}"));
        }
    }
}

/// The calls of all such layers, which follow the layers of the model.
pub(super) fn further(config: &LlamaConfig, mtp: Mtp, draft: &mut Draft, layers: &Layers) -> Result<(), DraftError> {
    let entry = entry_weights(config);
    let exit = [Weight::constant("head_norm", "h", 1.0)];
    draft.declare_array(ENTRY, mtp.depth, &entry);
    draft.declare_array(EXIT, mtp.depth, &exit);
    // The first layer passes the norm and the matrix of the head, which its blocks update; the others pass what is updated before.
    let mut ends = vec![(entry_block(config, draft, ENTRY, &entry)?, exit_block(config, mtp, draft, EXIT)?)];
    if mtp.depth > 1 {
        let [entry_name, exit_name] = [ENTRY, EXIT].map(|name| format!("{name}_next"));
        ends.push((entry_block(config, draft, &entry_name, &entry)?, exit_block(config, mtp, draft, &exit_name)?));
    }
    let matrix = if config.tied { "emb" } else { "out" };
    let mut hidden = layers.last.clone();
    for number in 0..mtp.depth {
        let (enter, leave) = ends[usize::from(number > 0)];
        let [joined, given] = ["joined", "given"].map(|name| format!("{name}{number}"));
        let [token, label] = ["tok", "lab"].map(|name| format!("{name}{}", number + 1));
        let norm = if number == 0 { whole("final_norm") } else { at(EXIT, number - 1) };
        draft.call_with(&joined, enter, None, &[&hidden, &token], vec![norm, whole("emb"), at(ENTRY, number)]);
        let place = layers.count + number;
        let operands = [&[&*joined], layers.inputs].concat();
        draft.call(&given, layers.block, Some(place..place + 1), &operands, &[&layers.array]);
        draft.call_with("", leave, None, &[&given, &label], vec![at(EXIT, number), whole(matrix)]);
        hidden = given;
    }
    Ok(())
}

fn whole(name: &str) -> ParamRef {
    ParamRef { name: name.to_string(), index: ParamIndex::Whole }
}

fn at(array: &str, number: u32) -> ParamRef {
    ParamRef { name: array.to_string(), index: ParamIndex::At(number) }
}

fn entry_weights(config: &LlamaConfig) -> [Weight; 4] {
    [
        Weight::constant("enorm", "h", 1.0),
        Weight::constant("hnorm", "h", 1.0),
        Weight::normal("token_proj", "h h", config.deviation),
        Weight::normal("hidden_proj", "h h", config.deviation),
    ]
}

/// The product of the matrix of a file with the norms of the embedding and of what is given, one behind the other, by the two
/// halves of the matrix.
fn entry_block(config: &LlamaConfig, draft: &mut Draft, name: &str, entry: &[Weight]) -> Result<BlockId, DraftError> {
    let args = [("x", ArgKind::Value, draft.ty("b s h")), ("tok", ArgKind::Input, draft.ids())];
    let before = [Weight::constant("norm", "h", 1.0), Weight::normal("emb", "v h", config.deviation)];
    draft.block(name, &args, &[&before, entry].concat(), &[ResultKind::Value], |b| {
        let norm = RmsNorm { eps: config.norm_eps };
        b.op(&["t0"], Embedding { pad: config.pad }, &["tok", "emb"])?;
        b.op(&["t", "t_rstd"], norm.clone(), &["t0", "enorm"])?;
        b.op(&["n0", "n0_rstd"], norm.clone(), &["x", "norm"])?;
        b.op(&["n", "n_rstd"], norm, &["n0", "hnorm"])?;
        for (y, x, w) in [("yt", "t", "token_proj"), ("yn", "n", "hidden_proj")] {
            b.op(&[y], Einsum::new("b s h, h k -> b s k")?, &[x, w])?;
        }
        b.op(&["y"], Binary::of(BinaryKind::Add), &["yt", "yn"])?;
        Ok(vec![b.value("y")?])
    })
}

/// The loss of a layer's logits, times its factor.
fn exit_block(config: &LlamaConfig, mtp: Mtp, draft: &mut Draft, name: &str) -> Result<BlockId, DraftError> {
    let matrix_dims = if config.tied { "v h" } else { "h v" };
    let args = [("x", ArgKind::Value, draft.ty("b s h")), ("lab", ArgKind::Input, draft.ids())];
    let weights = [Weight::constant("norm", "h", 1.0), Weight::normal("matrix", matrix_dims, config.deviation)];
    draft.block(name, &args, &weights, &[ResultKind::Auxiliary], |b| {
        b.op(&["n", "n_rstd"], RmsNorm { eps: config.norm_eps }, &["x", "norm"])?;
        b.op(&["logits"], Einsum::new(&format!("b s h, {matrix_dims} -> b s v"))?, &["n", "matrix"])?;
        b.op(&["own_loss", "lse"], CrossEntropy, &["logits", "lab"])?;
        b.scale("further_loss", mtp.loss_factor / f64::from(mtp.depth), "own_loss")?;
        Ok(vec![b.value("further_loss")?])
    })
}
