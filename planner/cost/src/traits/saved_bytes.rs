//! Values and bytes that a stack saves for the backward.

use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// Bytes that a stack saves per element besides the values that the graph reads, and rules for what it saves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SavedBytes {
    /// Bytes of an element that dropout sees: its mask.
    pub dropout: f64,
    /// Bytes of an element that an RMS norm reads.
    pub norm: f64,
    /// Bytes of an element that is rotated.
    pub rope: f64,
    /// Bytes of an element that an activation or a product of two activations reads.
    pub activation: f64,
    /// Bytes of an element that a gated unit's activation and product read, in its place, where the backward of the unit computes
    /// their results again. If left out, the product's result is saved too.
    pub gated: Option<f64>,
    /// Bytes of a logit, in its place. If left out, 4 where the loss is not fused: its softmax in f32.
    pub loss: Option<f64>,
    /// Bytes of a logit while the loss or its gradient is computed. If left out, 4 where the loss is not fused: a copy in f32.
    pub loss_within: Option<f64>,
    /// Bytes of a logit while the loss or its gradient is computed, in addition, if the vocabulary is sharded over tp.
    pub loss_split: f64,
    /// Bytes of an element that only products read where these have 8 or 4 bits. If left out, those of their format.
    pub operand: Option<f64>,
    /// True if `selective:op` saves attention: its list of ops names the kernel.
    pub selective_attention: bool,
    /// True if `selective:op` saves the values that it does not recompute even if nothing reads them.
    pub unread: bool,
    /// True if gathered inputs of products are saved gathered.
    pub gathered_inputs: bool,
    /// True if the inputs of recomputed layers are sharded over tp.
    pub partitioned_inputs: bool,
    /// True if recomputation of a layer stops at the last value that the layer's backward reads.
    pub stops_early: bool,
    /// True if gathered parameters, and gradients before they are scattered, are held for the running block alone, and the values that
    /// a block has saved until its backward ends.
    pub block_by_block: bool,
}

impl Default for SavedBytes {
    fn default() -> SavedBytes {
        SavedBytes {
            dropout: 1.0,
            norm: 0.0,
            rope: 0.0,
            activation: 0.0,
            gated: None,
            loss: None,
            loss_within: None,
            loss_split: 0.0,
            operand: None,
            selective_attention: true,
            unread: false,
            gathered_inputs: false,
            partitioned_inputs: false,
            stops_early: false,
            block_by_block: false,
        }
    }
}

impl SavedBytes {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let SavedBytes {
            dropout,
            norm,
            rope,
            activation,
            gated,
            loss,
            loss_within,
            loss_split,
            operand,
            selective_attention: _,
            unread: _,
            gathered_inputs: _,
            partitioned_inputs: _,
            stops_early: _,
            block_by_block: _,
        } = *self;
        let figures = [
            ("saved.dropout", Some(dropout)),
            ("saved.norm", Some(norm)),
            ("saved.rope", Some(rope)),
            ("saved.activation", Some(activation)),
            ("saved.gated", gated),
            ("saved.loss", loss),
            ("saved.loss_within", loss_within),
            ("saved.loss_split", Some(loss_split)),
            ("saved.operand", operand),
        ];
        figures.into_iter().filter_map(|(path, bytes)| Some(Range::SAVED.of(path, bytes?))).collect()
    }
}
