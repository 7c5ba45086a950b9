//! Linear attention with a fixed decay for each head (Qin et al. 2024, Lightning Attention; MiniMax 2025, MiniMax-01, section 2.2).

use super::{ScanHeads, wide};
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::error::ConfigError;
use crate::models::llama::{AllHeads, NUMBER, flat_norm};
use crate::ops::{Binary, BinaryKind, Broadcast, Equation, Iota, Scan, ScanKind, ScanSettings, UnaryKind};
use crate::types::{DType, DimName};
use serde::Serialize;

/// Added to the mean square in the norm of results; the class has this number, whatever other norms add.
const EPS: f64 = 1e-6;

/// The exponent of the smallest rate of decay of the first layer: rates are `2^(-8 h / heads)` for h from 1 on.
const LEAST_RATE: f64 = 8.0;

/// Added to both numbers of a quotient of layers, so that the last one decays, too, and one layer has a quotient.
const LAYER_EPS: f64 = 1e-5;

/// Linear attention with a fixed decay for each head, which is less in later layers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Lightning {
    /// Its heads.
    pub heads: u64,
    /// Size of a key, a query and a value.
    pub head: u64,
    /// Rows of a chunk.
    pub chunk: u64,
    /// The layers of the model.
    pub layers: u32,
}

/// Queries, keys and values: the end of the name and the dims of each.
const SIDES: [(&str, &str); 3] = [("mq", "gs ks"), ("mk", "gs ks"), ("mv", "gs rs cs")];

impl Lightning {
    fn scan_heads(&self) -> ScanHeads {
        ScanHeads { groups: self.heads, heads: 1, key: self.head, value: self.head, taps: 1 }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.scan_heads().check()
    }

    pub(super) fn dims(&self) -> Vec<DimName> {
        self.scan_heads().dims()
    }

    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let mut weights: Vec<Weight> = SIDES
            .iter()
            .map(|(name, dims)| Weight::normal(format!("w{name}"), &format!("h {dims}"), deviation))
            .collect();
        weights.push(Weight::normal("wgate", "h gs rs cs", deviation));
        weights.push(Weight::constant("scan_norm", "gs rs cs", 1.0));
        weights.push(Weight::normal("wmo", "gs rs cs h", residual));
        weights
    }

    pub(super) fn build(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        for (name, dims) in SIDES {
            let (product, w) = (format!("{name}_product"), format!("w{name}"));
            b.linear(&Linear { y: &product, x, w: &w, bias: None, from: "h", to: dims })?;
            b.unary(name, UnaryKind::Silu, &product)?;
        }
        self.decay(b)?;
        let settings = ScanSettings { kind: ScanKind::Linear, scale: 1.0, chunk: self.chunk, block: None };
        b.op(&["mo"], Scan(settings), &["mq", "mk", "mv", "decay", "pos"])?;
        let all = AllHeads { dims: "gs rs cs", size: self.heads * self.head };
        flat_norm(b, EPS, &all, "mo_normed", "mo", "scan_norm")?;
        b.linear(&Linear { y: "mg", x, w: "wgate", bias: None, from: "h", to: "gs rs cs" })?;
        b.sigmoid("mg_active", "mg")?;
        b.op(&["mo_gated"], Binary::of(BinaryKind::Mul), &["mo_normed", "mg_active"])?;
        b.linear(&Linear { y, x: "mo_gated", w: "wmo", bias: None, from: "gs rs cs", to: "h" })
    }

    /// `decay`, the logarithms of the factors of decay, in f32: `-2^(-8 h / heads) (1 - l / (layers - 1))` of head h, from 1, and layer l,
    /// from 0.
    fn decay(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        b.op(&["decay_place"], Iota { dim: 0, dims: b.dims("gs rs"), dtype: DType::F32 }, &[])?;
        b.unary("decay_head", UnaryKind::Shift(1.0), "decay_place")?;
        b.scale("decay_log", -LEAST_RATE * std::f64::consts::LN_2 / self.heads as f64, "decay_head")?;
        b.unary("decay_first", UnaryKind::Exp, "decay_log")?;
        wide(b, "decay_layer", NUMBER)?;
        b.scale("decay_fall", -1.0 / (f64::from(self.layers - 1) + LAYER_EPS), "decay_layer")?;
        b.unary("decay_part", UnaryKind::Shift(1.0 + LAYER_EPS), "decay_fall")?;
        b.op(&["decay_rate"], Binary::spread(BinaryKind::Mul, "gs rs, () -> gs rs")?, &["decay_first", "decay_part"])?;
        b.scale("decay_minus", -1.0, "decay_rate")?;
        let to_all = Broadcast { equation: Equation::parse("gs rs -> b s gs rs")?, free: b.dims("b s") };
        b.op(&["decay"], to_all, &["decay_minus"])
    }
}
