//! Embeddings of each layer: besides the stream, a layer reads a row of a table of its own for each token, and a product of the model's
//! embedding (Gemma Team 2025, Gemma 3n; Gemma 4).

use super::config::LlamaConfig;
use crate::dim_role::DimRole;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::ops::{Binary, BinaryKind, Embedding, RmsNorm};
use crate::types::DimName;
use serde::Serialize;

/// The stream in front of the first layer.
pub(super) const FIRST: &str = "first_stream";

/// The gain of the norm of its products, which all layers share.
pub(super) const GAIN: &str = "layer_gain";

/// Embeddings of each layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LayerEmbedding {
    /// Rows of a table.
    pub rows: u64,
    /// Size of a row.
    pub size: u64,
}

impl LayerEmbedding {
    /// The dims that it adds.
    pub(super) fn dims(self) -> Vec<DimName> {
        vec![DimName::new("vp", self.rows, Some(DimRole::Vocabulary)), DimName::new("dp", self.size, None)]
    }

    /// The shared gain, which the embedding passes on.
    pub(super) fn gain() -> Weight {
        Weight::constant("layer_emb_norm", "dp", 1.0)
    }

    /// The parameters of a layer; the matrix that writes to the stream has the deviation `residual`.
    pub(super) fn weights(deviation: f64, residual: f64) -> Vec<Weight> {
        vec![
            Weight::normal("layer_emb", "vp dp", deviation),
            Weight::normal("layer_proj", "h dp", deviation),
            Weight::normal("layer_gate", "h dp", deviation),
            Weight::normal("layer_out", "dp h", residual),
            Weight::constant("post_norm3", "h", 1.0),
        ]
    }

    /// The values in front of the first layer, of the embedding `x`.
    pub(super) fn first(b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        b.scale(FIRST, 1.0, x)?;
        b.scale(GAIN, 1.0, "layer_emb_norm")
    }

    /// `y = x + norm(out(f(gate(x)) row))`, where the row is half of the sum of the token's and of the product, by their variance.
    pub(super) fn build(self, config: &LlamaConfig, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        let norm = RmsNorm { eps: config.norm_eps };
        let (add, product) = (Binary::of(BinaryKind::Add), Binary::of(BinaryKind::Mul));
        b.op(&["le_row"], Embedding { pad: config.pad }, &["tok", "layer_emb"])?;
        b.scale("le_token", (self.size as f64).sqrt(), "le_row")?;
        b.linear(&Linear { y: "le_product", x: FIRST, w: "layer_proj", bias: None, from: "h", to: "dp" })?;
        b.scale("le_scaled", (config.hidden as f64).sqrt().recip(), "le_product")?;
        b.op(&["le_normed", "le_rstd"], norm.clone(), &["le_scaled", GAIN])?;
        b.op(&["le_sum"], add.clone(), &["le_normed", "le_token"])?;
        b.scale("le", std::f64::consts::FRAC_1_SQRT_2, "le_sum")?;
        b.linear(&Linear { y: "lg", x, w: "layer_gate", bias: None, from: "h", to: "dp" })?;
        config.activation.build(b, "lg_active", "lg", "b s dp")?;
        b.op(&["lg_row"], product, &["lg_active", "le"])?;
        b.linear(&Linear { y: "lo", x: "lg_row", w: "layer_out", bias: None, from: "dp", to: "h" })?;
        b.op(&["lo_normed", "lo_rstd"], norm, &["lo", "post_norm3"])?;
        b.op(&[y], add, &[x, "lo_normed"])
    }
}
