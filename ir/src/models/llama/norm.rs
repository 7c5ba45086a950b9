//! The norms of a stream.

use super::config::LlamaConfig;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::ops::{Binary, BinaryKind, LayerNorm, RmsNorm, UnaryKind};
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
    pub(in crate::models) fn weights(self, gain: &str, dim: &str) -> Vec<Weight> {
        let gains = self.has_gain().then(|| Weight::constant(gain.to_string(), dim, 1.0));
        let biases = (self == Norm::Layer).then(|| Weight::constant(format!("{gain}_bias"), dim, 0.0));
        gains.into_iter().chain(biases).collect()
    }

    /// `y = norm(x)` over a dim, with the parameters of the norm of the name `gain`.
    pub(in crate::models) fn build(
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

/// The parameters of the gate of a norm, a net between h and a small vector.
pub(super) fn gate_weights(gain: &str, deviation: f64) -> [Weight; 2] {
    [Weight::normal(format!("{gain}_down"), "h nr", deviation), Weight::normal(format!("{gain}_up"), "nr h", deviation)]
}

/// `y = n sigmoid(up(silu(down(n))))` with `n = norm(x)`.
pub(super) fn gated(config: &LlamaConfig, b: &mut Body<'_>, y: &str, x: &str, gain: &str) -> Result<(), DraftError> {
    let [plain, low, active, high, share] = ["plain", "low", "active", "high", "share"].map(|end| format!("{y}_{end}"));
    config.norm(b, &plain, x, gain)?;
    b.linear(&Linear { y: &low, x: &plain, w: &format!("{gain}_down"), bias: None, from: "h", to: "nr" })?;
    b.unary(&active, UnaryKind::Silu, &low)?;
    b.linear(&Linear { y: &high, x: &active, w: &format!("{gain}_up"), bias: None, from: "nr", to: "h" })?;
    b.sigmoid(&share, &high)?;
    b.op(&[y], Binary::of(BinaryKind::Mul), &[&plain, &share])
}
