//! Encoders of images in front of a text model: their blocks, and how their rows become those of tokens.
//!
//! A sequence has a fixed number of patches, so that shapes do not depend on images. They are the patches of the sequence's images one
//! behind the other, and each patch sees those of its own image. Patches that merge into one row follow each other. The rows go to the
//! tokens that stand for images, whose own number is none of the vocabulary, so that the embedding gives nothing there.

mod blocks;
mod read;
mod turns;

pub(super) use blocks::{ROWS, build, put};
pub(in crate::models) use read::EncoderFields;
pub use read::{Encoder, PATCHES, ReadEncoder, Whole, encoder_of, read_encoder};

use super::error::{ConfigError, depth, invalid, not_negative, positive};
use super::feed_forward::Activation;
use crate::dim_role::DimRole;
use crate::types::DimName;
use serde::Serialize;

/// The array of the parameters of the encoder's layers.
pub const ENCODER_LAYERS: &str = "vision";

/// An encoder of images (Dosovitskiy et al. 2021), whose patches turn by their row and column (Agrawal et al. 2024, Pixtral 12B, section 2.2).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Vision {
    /// Patches of the images of a sequence.
    pub patches: u64,
    /// Pixels of a side of a patch.
    pub side: u64,
    /// Numbers of a pixel.
    pub channels: u64,
    /// Size of the stream of patches.
    pub hidden: u64,
    /// Size between the matrices of the feed-forward net.
    pub feed_forward: u64,
    /// The function of the feed-forward net, which has a gate.
    pub activation: Activation,
    /// Number of layers.
    pub layers: u32,
    /// Heads, each with its own keys and values.
    pub heads: u64,
    /// Base of the frequencies by which rows and columns turn.
    pub theta: f64,
    /// Added to the mean square in norms.
    pub norm_eps: f64,
    /// Standard deviation of the initial matrices.
    pub deviation: f64,
    /// The part behind the layers.
    pub projector: Projector,
    /// The token that stands for a row of an image.
    pub token: u64,
}

/// The layers that make a row of the text model's size of one patch or several: `w2 f(w1 x)`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Projector {
    /// Patches of a side of the square of which a norm, with what the text model's norms add, and a matrix make one row (Mistral Small
    /// 3.1); none: each patch is a row.
    pub merge: Option<u64>,
    /// The function `f`.
    pub activation: Activation,
    /// Both products have biases.
    pub bias: bool,
}

impl Vision {
    /// Numbers of a patch.
    pub fn pixels(&self) -> u64 {
        self.channels.saturating_mul(self.side).saturating_mul(self.side)
    }

    /// Its dims: channels, and the two sides.
    pub(super) fn pixel_dims(&self) -> String {
        format!("{} {side} {side}", self.channels, side = self.side)
    }

    /// Size of a head.
    pub fn head(&self) -> u64 {
        self.hidden / self.heads.max(1)
    }

    /// Patches that become one row.
    pub fn merged(&self) -> u64 {
        self.projector.merge.map_or(1, |side| side.saturating_mul(side))
    }

    /// Rows of the images of a sequence.
    pub fn rows(&self) -> u64 {
        self.patches / self.merged().max(1)
    }

    /// The dims of patches, rows and encoder, of a text model whose stream has the size `text`.
    pub(super) fn dims(&self, text: u64) -> Vec<DimName> {
        vec![
            DimName::new("ps", self.patches, Some(DimRole::Patches)),
            DimName::new("i", self.rows(), Some(DimRole::Patches)),
            DimName::new("he", self.hidden, None),
            DimName::new("ge", self.heads, Some(DimRole::KvHeads)).undivided(),
            DimName::new("de", self.head(), None),
            DimName::new("fe", self.feed_forward, Some(DimRole::FeedForward)),
            DimName::new("fp", text, Some(DimRole::FeedForward)),
        ]
    }

    /// Checks sizes and numbers.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("patch_size", self.side),
            ("num_channels", self.channels),
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
        let merged = self.merged();
        if self.patches == 0 || !self.patches.is_multiple_of(merged) {
            return Err(ConfigError::Patches { patches: self.patches, merged });
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
