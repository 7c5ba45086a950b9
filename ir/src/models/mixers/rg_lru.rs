//! Real-gated linear recurrent units behind a short convolution (De et al. 2024, Griffin, section 2.4).

use super::wide;
use crate::dim_role::DimRole;
use crate::graph::Init;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::error::{ConfigError, positive};
use crate::models::feed_forward::Activation;
use crate::ops::{
    Binary, BinaryKind, Broadcast, Einsum, Equation, Iota, Reshape, Scan, ScanKind, ScanSettings, ShortConv, UnaryKind,
};
use crate::types::{DType, DimName};
use serde::Serialize;

/// The factor of gates in the logarithm of a decay (De et al. 2024, equation 4).
const SHARPNESS: f64 = 8.0;

/// The largest slope of the root of `1 - a^2`; `_MAX_SQRT_GRADIENT` of `modeling_recurrent_gemma.py` of `transformers`.
const SLOPE: f64 = 1000.0;

/// The square roots of decays between which the first ones are drawn (De et al. 2024, section 2.4).
const FIRST_DECAYS: [f64; 2] = [0.9, 0.999];

/// Rows between saved states.
const CHUNK: u64 = 64;

/// Real-gated linear recurrent units.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RgLru {
    /// Blocks of channels; gates of a channel read those of its own block.
    pub blocks: u64,
    /// Channels of a block, each with a state of one number.
    pub width: u64,
    /// Taps of the convolution.
    pub taps: u64,
    /// The function of the branch beside the units.
    pub activation: Activation,
}

/// Channels with a number of each.
const OF_CHANNELS: &str = "b s gs rs, gs rs -> b s gs rs";

impl RgLru {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        positive("num_attention_heads", self.blocks)?;
        positive("lru_width", self.width)?;
        positive("conv1d_width", self.taps)
    }

    pub(super) fn dims(&self) -> Vec<DimName> {
        vec![
            DimName::new("gs", self.blocks, Some(DimRole::ScanGroups)).undivided(),
            DimName::new("rs", self.width, None),
            DimName::new("js", self.width, None),
        ]
    }

    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let mut weights = Vec::new();
        for side in ["my", "mx"] {
            weights.push(Weight::normal(format!("w{side}"), "h gs rs", deviation));
            weights.push(Weight::constant(format!("{side}_bias"), "gs rs", 0.0));
        }
        weights.push(Weight::normal("conv", &format!("gs rs {}", self.taps), deviation));
        weights.push(Weight::constant("conv_bias", "gs rs", 0.0));
        for gate in ["input", "decay"] {
            weights.push(Weight::normal(format!("w{gate}"), "gs rs js", deviation));
            weights.push(Weight::constant(format!("{gate}_bias"), "gs js", 0.0));
        }
        // A gate of 1 leaves the state times one of these: the sharpness times softplus of the number is minus its logarithm.
        let [low, high] = FIRST_DECAYS.map(|decay| -decay.ln() / SHARPNESS);
        weights.push(Weight::new("rate", "gs rs", Init::InverseSoftplus(high, low)));
        weights.push(Weight::normal("wmo", "gs rs h", residual));
        weights.push(Weight::constant("out_bias", "h", 0.0));
        weights
    }

    pub(super) fn build(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        b.linear(&Linear { y: "my_product", x, w: "wmy", bias: Some("my_bias"), from: "h", to: "gs rs" })?;
        self.activation.build(b, "my", "my_product", "b s gs rs")?;
        b.linear(&Linear { y: "mx_product", x, w: "wmx", bias: Some("mx_bias"), from: "h", to: "gs rs" })?;
        b.op(&["mx_rows"], ShortConv::default(), &["mx_product", "conv", "pos"])?;
        b.op(&["mx"], Binary::spread(BinaryKind::Add, OF_CHANNELS)?, &["mx_rows", "conv_bias"])?;
        for gate in ["input", "decay"] {
            self.gate(b, gate)?;
        }
        self.paces(b)?;
        self.reads(b)?;
        self.scan(b)?;
        b.op(&["mo_gated"], Binary::of(BinaryKind::Mul), &["mo", "my"])?;
        b.linear(&Linear { y, x: "mo_gated", w: "wmo", bias: Some("out_bias"), from: "gs rs", to: "h" })
    }

    /// `{gate}_gate`, a sigmoid for each channel of a product of its block.
    fn gate(&self, b: &mut Body<'_>, gate: &str) -> Result<(), DraftError> {
        let [product, sum, own, share] = ["product", "sum", "own", "gate"].map(|end| format!("{gate}_{end}"));
        b.op(&[&product], Einsum::new("b s gs rs, gs rs js -> b s gs js")?, &["mx", &format!("w{gate}")])?;
        let add = Binary::spread(BinaryKind::Add, "b s gs js, gs js -> b s gs js")?;
        b.op(&[&sum], add, &[&product, &format!("{gate}_bias")])?;
        b.op(&[&own], Reshape { dims: b.dims("b s gs rs") }, &[&sum])?;
        b.sigmoid(&share, &own)
    }

    /// `pace`, minus the logarithms of the factors of decay, in f32.
    fn paces(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        wide(b, "rate_wide", "rate")?;
        b.unary("rate_soft", UnaryKind::Softplus, "rate_wide")?;
        b.scale("rate_sharp", SHARPNESS, "rate_soft")?;
        wide(b, "decay_wide", "decay_gate")?;
        b.op(&["pace"], Binary::spread(BinaryKind::Mul, OF_CHANNELS)?, &["decay_wide", "rate_sharp"])
    }

    /// `read`, what the state reads: channels times their gates, times `sqrt(1 - a^2)` of the factor of decay but in the first row.
    fn reads(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        let dtype = b.dtype("mx")?;
        b.scale("pace_twice", -2.0, "pace")?;
        b.unary("decay_square", UnaryKind::Exp, "pace_twice")?;
        b.scale("decay_less", -1.0, "decay_square")?;
        b.unary("open", UnaryKind::Shift(1.0), "decay_less")?;
        // The root has no slope above the bound: below the number where it reaches it, a line goes on.
        let bent = (2.0 * SLOPE).powi(-2);
        b.unary("open_above", UnaryKind::AtLeast(bent), "open")?;
        b.unary("open_root", UnaryKind::Sqrt, "open_above")?;
        b.unary("open_below", UnaryKind::AtMost(bent), "open")?;
        b.scale("open_line", SLOPE, "open_below")?;
        b.op(&["open_sum"], Binary::of(BinaryKind::Add), &["open_root", "open_line"])?;
        // Less 1, times 0 in the first row of a document and times 1 in others, plus 1.
        b.unary("open_less", UnaryKind::Shift(-SLOPE * bent - 1.0), "open_sum")?;
        wide(b, "at", "pos")?;
        b.unary("is_later", UnaryKind::AtMost(1.0), "at")?;
        let later = Binary::spread(BinaryKind::Mul, "b s gs rs, b s -> b s gs rs")?;
        b.op(&["open_later"], later, &["open_less", "is_later"])?;
        b.unary("open_factor", UnaryKind::Shift(1.0), "open_later")?;
        b.op(&["mx_open"], Binary::of(BinaryKind::Mul), &["mx", "input_gate"])?;
        b.unary("open_narrow", UnaryKind::Cast(dtype), "open_factor")?;
        b.op(&["read"], Binary::of(BinaryKind::Mul), &["mx_open", "open_narrow"])
    }

    /// `mo`, the states: those of a scan of one number for each channel, whose keys and queries are 1.
    fn scan(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        b.ones("one", "mx", "gs 1")?;
        let to_all = Broadcast { equation: Equation::parse("gs i -> b s gs i")?, free: b.dims("b s") };
        b.op(&["ones"], to_all, &["one"])?;
        b.op(&["v"], Reshape { dims: b.dims("b s gs rs 1") }, &["read"])?;
        b.op(&["rates_place"], Iota { dim: 2, dims: b.dims("gs rs 1"), dtype: DType::F32 }, &[])?;
        b.unary("rates", UnaryKind::Shift(-1.0), "rates_place")?;
        let settings = ScanSettings { kind: ScanKind::Selective, scale: 1.0, chunk: CHUNK, block: None };
        b.op(&["mo_heads"], Scan(settings), &["ones", "ones", "v", "pace", "rates", "pos"])?;
        b.op(&["mo"], Reshape { dims: b.dims("b s gs rs") }, &["mo_heads"])
    }
}
