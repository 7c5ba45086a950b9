//! Encoders of images in front of a text model: their blocks, and how their rows become those of tokens.
//!
//! A sequence has a fixed number of patches, so that shapes do not depend on images. They are the patches of the sequence's images one
//! behind the other, and each patch sees those of its own image. Patches that merge into one row follow each other. The rows go to the
//! tokens that stand for images, whose own number is none of the vocabulary, so that the embedding gives nothing there. Rows of inner
//! layers go behind the first layers of the text model.

mod blocks;
mod deep;
mod project;
mod read;
mod turns;

pub(super) use blocks::{ROWS, build, put};
pub(super) use deep::Added;
pub(in crate::models) use read::EncoderFields;
pub use read::{Encoder, PATCHES, ReadEncoder, Whole, encoder_of, read_encoder};
pub use turns::Frequencies;

use super::error::{ConfigError, depth, invalid, not_negative, positive};
use super::feed_forward::Activation;
use super::llama::Norm;
use crate::dim_role::DimRole;
use crate::types::DimName;
use serde::Serialize;

/// The array of the parameters of the encoder's layers.
const LAYERS: &str = "vision";

/// The arrays of the encoder's parameters: those of its layers, and those of the projectors of inner layers.
pub const ENCODER_ARRAYS: [&str; 2] = [LAYERS, deep::ARRAY];

/// An encoder of images (Dosovitskiy et al. 2021), whose patches turn by their row and column (Agrawal et al. 2024, Pixtral 12B, section
/// 2.2; Wang et al. 2024, Qwen2-VL, section 2.1).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Vision {
    /// Patches of the images of a sequence.
    pub patches: u64,
    /// Pixels of a side of a patch.
    pub side: u64,
    /// Numbers of a pixel.
    pub channels: u64,
    /// Frames of a patch, in each of which an image stands; none: patches have one, and no dim for it.
    pub frames: Option<u64>,
    /// Size of the stream of patches.
    pub hidden: u64,
    /// Size between the matrices of the feed-forward net.
    pub feed_forward: u64,
    /// The function of the feed-forward net.
    pub activation: Activation,
    /// The net has a gate.
    pub gated: bool,
    /// All products of a layer have biases.
    pub biased: bool,
    /// Number of layers.
    pub layers: u32,
    /// Heads, each with its own keys and values.
    pub heads: u64,
    /// The block in front of the layers.
    pub stem: Stem,
    /// Base of the frequencies by which rows and columns turn.
    pub theta: f64,
    /// The frequencies that both have.
    pub frequencies: Frequencies,
    /// The norms of layers.
    pub norm: Norm,
    /// Added to the mean square in norms, or to the variance.
    pub norm_eps: f64,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
    /// The part behind the layers.
    pub projector: Projector,
    /// The layers behind which projectors of their own give rows, each for a layer of the text model from the first one on (Meng et al.
    /// 2024, DeepStack). Layers count from 0.
    pub deep: Vec<u32>,
    /// Numbers of pairs of a head of the text model that turn by the time, the row and the column of a token; none: all by its place in
    /// the text.
    pub sections: Option<[u64; 3]>,
    /// The token that stands for a row of an image.
    pub token: u64,
}

/// The block that makes the stream of the numbers of patches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Stem {
    /// A matrix, and a root-mean-square norm (Pixtral).
    Norm,
    /// A matrix with a bias, and the positions of a learned square table, between which those of an image are interpolated (Qwen3-VL).
    Positions {
        /// Positions of a side of the table.
        side: u64,
    },
}

/// The layers that make a row of the text model's size of one patch or several: `w2 f(w1 x)`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Projector {
    /// Patches of a side of the square that becomes a row; none: each patch is a row.
    pub merge: Option<u64>,
    /// The way from a square to one operand.
    pub square: Square,
    /// The function `f`.
    pub activation: Activation,
    /// Both products have biases.
    pub bias: bool,
}

/// The way from the patches of a square to one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Square {
    /// A norm, with what the text model's norms add, and a matrix (Mistral Small 3.1).
    Matrix,
    /// A norm as in the layers; all its numbers are the operand, and as many are between both products (Qwen3-VL).
    Joined,
}

impl Vision {
    /// Numbers of a patch.
    pub fn pixels(&self) -> u64 {
        let sizes = [self.channels, self.frames.unwrap_or(1), self.side, self.side];
        sizes.into_iter().fold(1, u64::saturating_mul)
    }

    /// Its dims: channels, frames if it has them, and the two sides.
    pub(super) fn pixel_dims(&self) -> String {
        let frames = self.frames.map_or(String::new(), |frames| format!("{frames} "));
        format!("{} {frames}{side} {side}", self.channels, side = self.side)
    }

    /// Size of a head.
    pub fn head(&self) -> u64 {
        self.hidden / self.heads.max(1)
    }

    /// Patches that become one row.
    pub fn merged(&self) -> u64 {
        self.projector.merge.map_or(1, |side| side.saturating_mul(side))
    }

    /// Numbers of a square of patches.
    pub(super) fn square(&self) -> u64 {
        self.merged().saturating_mul(self.hidden)
    }

    /// Rows of the images of a sequence.
    pub fn rows(&self) -> u64 {
        self.patches / self.merged().max(1)
    }

    /// The dims of patches, rows and encoder, of a text model whose stream has the size `text`.
    pub(super) fn dims(&self, text: u64) -> Vec<DimName> {
        let between = if self.projector.square == Square::Joined { self.square() } else { text };
        vec![
            DimName::new("ps", self.patches, Some(DimRole::Patches)),
            DimName::new("i", self.rows(), Some(DimRole::Patches)),
            DimName::new("he", self.hidden, None),
            DimName::new("ge", self.heads, Some(DimRole::KvHeads)).undivided(),
            DimName::new("de", self.head(), None),
            DimName::new("fe", self.feed_forward, Some(DimRole::FeedForward)),
            DimName::new("fp", between, Some(DimRole::FeedForward)),
        ]
    }

    /// Checks sizes and numbers; `depth_of_text` is the number of layers of the text model.
    pub(super) fn check(&self, depth_of_text: u32) -> Result<(), ConfigError> {
        let sizes = [
            ("patch_size", self.side),
            ("num_channels", self.channels),
            ("temporal_patch_size", self.frames.unwrap_or(1)),
            ("hidden_size", self.hidden),
            ("intermediate_size", self.feed_forward),
            ("num_attention_heads", self.heads),
            ("num_hidden_layers", u64::from(self.layers)),
            ("spatial_merge_size", self.merged()),
        ];
        sizes.into_iter().try_for_each(|(field, size)| positive(&within(field), size))?;
        depth("num_hidden_layers", self.layers)?;
        if !self.hidden.is_multiple_of(self.heads) || !self.head().is_multiple_of(4) {
            let why = format!(
                "{} heads of {} elements: the size of a head must be a multiple of 4: one half turns by rows, the other by columns",
                self.heads, self.hidden
            );
            return Err(invalid(&within("num_attention_heads"), why));
        }
        if !self.theta.is_finite() || self.theta <= 0.0 {
            return Err(invalid(&within("rope_theta"), format!("{} must be above 0", self.theta)));
        }
        not_negative(&within("initializer_range"), self.deviation)?;
        if let Stem::Positions { side } = self.stem {
            positive(&within("num_position_embeddings"), side)?;
        }
        self.check_deep(depth_of_text)?;
        let merged = self.merged();
        if self.patches == 0 || !self.patches.is_multiple_of(merged) {
            return Err(ConfigError::Patches { patches: self.patches, merged });
        }
        Ok(())
    }

    /// Checks the layers whose rows go to the first layers of the text model.
    fn check_deep(&self, depth_of_text: u32) -> Result<(), ConfigError> {
        let field = within("deepstack_visual_indexes");
        if let Some(layer) = self.deep.iter().find(|layer| **layer >= self.layers) {
            return Err(invalid(&field, format!("{layer} is no layer of {}, which count from 0", self.layers)));
        }
        if !self.deep.is_sorted_by(|first, next| first < next) {
            return Err(invalid(&field, format!("{:?} must ascend", self.deep)));
        }
        if self.deep.len() > depth_of_text as usize {
            let why = format!("{} layers give rows to a text model of {depth_of_text} layers", self.deep.len());
            return Err(invalid(&field, why));
        }
        Ok(())
    }
}

/// A key of the encoder in messages.
fn within(field: &str) -> String {
    format!("vision_config.{field}")
}

#[cfg(test)]
mod tests;
