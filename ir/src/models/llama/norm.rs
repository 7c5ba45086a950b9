//! The norms of a stream.

use crate::models::draft::{Body, DraftError, Weight};
use crate::ops::{LayerNorm, RmsNorm};
use serde::Serialize;

/// A kind of norm of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Norm {
    /// The root of the mean square, with gains.
    Rms,
    /// The same without gains.
    RmsPlain,
    /// Mean and variance, with gains and biases (GPT-NeoX).
    Layer,
    /// The same without biases (Cohere).
    LayerUnbiased,
    /// The same without gains and biases (OLMo).
    LayerPlain,
}

impl Norm {
    fn has_gain(self) -> bool {
        !matches!(self, Norm::RmsPlain | Norm::LayerPlain)
    }

    /// The parameters of a norm of this name, over a dim.
    pub(super) fn weights(self, gain: &str, dim: &str) -> Vec<Weight> {
        let gains = self.has_gain().then(|| Weight::constant(gain.to_string(), dim, 1.0));
        let biases = (self == Norm::Layer).then(|| Weight::constant(format!("{gain}_bias"), dim, 0.0));
        gains.into_iter().chain(biases).collect()
    }

    /// `y = norm(x)` over a dim, with the parameters of the norm of the name `gain`.
    pub(super) fn build(
        self,
        eps: f64,
        b: &mut Body<'_>,
        dim: &str,
        y: &str,
        x: &str,
        gain: &str,
    ) -> Result<(), DraftError> {
        let [mean, rstd, ones, zeros] = ["mean", "rstd", "gain", "bias"].map(|end| format!("{y}_{end}"));
        let gain = if self.has_gain() {
            gain
        } else {
            b.ones(&ones, x, dim)?;
            &ones
        };
        if matches!(self, Norm::Rms | Norm::RmsPlain) {
            return b.op(&[y, &rstd], RmsNorm { eps }, &[x, gain]);
        }
        let bias = format!("{gain}_bias");
        let bias = if self == Norm::Layer {
            &bias
        } else {
            b.zeros(&zeros, x, dim)?;
            &zeros
        };
        b.op(&[y, &mean, &rstd], LayerNorm { eps }, &[x, gain, bias])
    }
}
