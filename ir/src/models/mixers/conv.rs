//! Short convolutions between two gates (Liquid AI 2025, LFM2).

use crate::dim_role::DimRole;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::error::{ConfigError, positive};
use crate::ops::{Binary, BinaryKind, ShortConv};
use crate::types::DimName;
use serde::Serialize;

/// A short convolution between two gates: `(c conv(b x)) w`, where b, c and x are products of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct GatedConv {
    /// Its channels.
    pub channels: u64,
    /// Taps of the convolution.
    pub taps: u64,
    /// The products and the convolution have biases.
    pub bias: bool,
}

/// The ends of the names of the three products.
const SIDES: [&str; 3] = ["cb", "cc", "cx"];

impl GatedConv {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        positive("hidden_size", self.channels)?;
        positive("conv_L_cache", self.taps)
    }

    pub(super) fn dims(&self) -> Vec<DimName> {
        vec![DimName::new("gs", self.channels, Some(DimRole::ScanGroups)).undivided()]
    }

    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let mut weights: Vec<Weight> =
            SIDES.iter().map(|side| Weight::normal(format!("w{side}"), "h gs", deviation)).collect();
        weights.push(Weight::normal("conv", &format!("gs {}", self.taps), deviation));
        weights.push(Weight::normal("wmo", "gs h", residual));
        if self.bias {
            weights.extend(SIDES.iter().map(|side| Weight::constant(format!("{side}_bias"), "gs", 0.0)));
            weights.push(Weight::constant("conv_bias", "gs", 0.0));
            weights.push(Weight::constant("out_bias", "h", 0.0));
        }
        weights
    }

    pub(super) fn build(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        for side in SIDES {
            let (w, bias) = (format!("w{side}"), format!("{side}_bias"));
            let bias = self.bias.then_some(&*bias);
            b.linear(&Linear { y: side, x, w: &w, bias, from: "h", to: "gs" })?;
        }
        let product = Binary::of(BinaryKind::Mul);
        b.op(&["cv"], product.clone(), &["cb", "cx"])?;
        b.op(&["conv_rows"], ShortConv::default(), &["cv", "conv", "pos"])?;
        let mut rows = "conv_rows";
        if self.bias {
            b.op(&["conv_sum"], Binary::spread(BinaryKind::Add, "b s gs, gs -> b s gs")?, &[rows, "conv_bias"])?;
            rows = "conv_sum";
        }
        b.op(&["conv_gated"], product, &["cc", rows])?;
        let bias = self.bias.then_some("out_bias");
        b.linear(&Linear { y, x: "conv_gated", w: "wmo", bias, from: "gs", to: "h" })
    }
}
