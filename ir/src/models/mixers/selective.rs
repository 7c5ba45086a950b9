//! State spaces whose rows decay at rates of their own (Gu and Dao 2023, Mamba).

use super::wide;
use crate::dim_role::DimRole;
use crate::graph::Init;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::error::{ConfigError, positive};
use crate::ops::{Binary, BinaryKind, Einsum, Reshape, RmsNorm, Scan, ScanKind, ScanSettings, ShortConv, UnaryKind};
use crate::types::{DType, DimName};
use serde::Serialize;

/// Rows between saved states.
const CHUNK: u64 = 64;

/// The norms of steps, keys and queries.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum SelectiveNorms {
    /// None.
    None,
    /// The root of the mean square and this number, without gains (Falcon-Mamba).
    Plain(f64),
    /// The same with gains (Jamba).
    Gains(f64),
}

/// A state space whose rows decay at rates of their own.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Selective {
    /// Its channels, each with a state.
    pub channels: u64,
    /// Rows of a state: the size of keys and queries, which all channels share.
    pub state: u64,
    /// Size of the vector that steps come from.
    pub rank: u64,
    /// Taps of the convolution.
    pub taps: u64,
    /// The products of the stream, and the last one, have biases.
    pub bias: bool,
    /// The convolution has a bias.
    pub conv_bias: bool,
    /// The norms of steps, keys and queries.
    pub norms: SelectiveNorms,
    /// Numbers between which the first steps are drawn.
    pub first_steps: [f64; 2],
}

/// Channels with a number of each.
const OF_CHANNELS: &str = "b s rs, rs -> b s rs";

/// Results of the channels: the end of its name, its matrix and its dim.
const SIDES: [(&str, &str, &str); 3] = [("dt", "wdecay_a", "ls"), ("mk", "wmk", "ks"), ("mq", "wmq", "ks")];

impl Selective {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("number of channels", self.channels),
            ("state_size", self.state),
            ("time_step_rank", self.rank),
            ("conv_kernel", self.taps),
        ];
        sizes.into_iter().try_for_each(|(field, size)| positive(field, size))
    }

    pub(super) fn dims(&self) -> Vec<DimName> {
        vec![
            DimName::new("gs", 1, Some(DimRole::ScanGroups)).undivided(),
            DimName::new("rs", self.channels, Some(DimRole::ScanHeads)).undivided(),
            DimName::new("ks", self.state, None),
            DimName::new("ls", self.rank, None),
        ]
    }

    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let mut weights = vec![Weight::normal("wmx", "h rs", deviation), Weight::normal("wgate", "h rs", deviation)];
        weights.push(Weight::normal("conv", &format!("rs {}", self.taps), deviation));
        weights.extend(SIDES.map(|(_, w, dim)| Weight::normal(w, &format!("rs {dim}"), deviation)));
        weights.push(Weight::normal("wdecay_b", "ls rs", deviation));
        let [low, high] = self.first_steps;
        weights.push(Weight::new("dt_bias", "rs", Init::InverseSoftplus(low, high)));
        weights.push(Weight::new("a_log", "rs ks", Init::LogCount(self.state as f64)));
        weights.push(Weight::constant("skip", "rs", 1.0));
        if let SelectiveNorms::Gains(_) = self.norms {
            weights.extend(SIDES.map(|(name, _, dim)| Weight::constant(format!("{name}_norm"), dim, 1.0)));
        }
        weights.push(Weight::normal("wmo", "rs h", residual));
        if self.bias {
            weights.extend(["mx_bias", "mg_bias"].map(|name| Weight::constant(name, "rs", 0.0)));
            weights.push(Weight::constant("out_bias", "h", 0.0));
        }
        weights.extend(self.conv_bias.then(|| Weight::constant("conv_bias", "rs", 0.0)));
        weights
    }

    pub(super) fn build(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        b.linear(&Linear { y: "mx_product", x, w: "wmx", bias: self.bias.then_some("mx_bias"), from: "h", to: "rs" })?;
        b.op(&["mx_rows"], ShortConv::default(), &["mx_product", "conv", "pos"])?;
        let mut rows = "mx_rows";
        if self.conv_bias {
            b.op(&["mx_sum"], Binary::spread(BinaryKind::Add, OF_CHANNELS)?, &[rows, "conv_bias"])?;
            rows = "mx_sum";
        }
        b.unary("mx", UnaryKind::Silu, rows)?;
        for (name, w, dim) in SIDES {
            self.side(b, name, w, dim)?;
        }
        self.scan(b)?;
        b.linear(&Linear { y: "mg", x, w: "wgate", bias: self.bias.then_some("mg_bias"), from: "h", to: "rs" })?;
        b.unary("mg_silu", UnaryKind::Silu, "mg")?;
        b.op(&["mo_gated"], Binary::of(BinaryKind::Mul), &["mo_sum", "mg_silu"])?;
        b.linear(&Linear { y, x: "mo_gated", w: "wmo", bias: self.bias.then_some("out_bias"), from: "rs", to: "h" })
    }

    /// A product of the channels, normed.
    fn side(&self, b: &mut Body<'_>, name: &str, w: &str, dim: &str) -> Result<(), DraftError> {
        let product = Einsum::new(&format!("b s rs, rs {dim} -> b s {dim}"))?;
        let [flat, gain, rstd] = ["flat", "gain", "rstd"].map(|end| format!("{name}_{end}"));
        match self.norms {
            SelectiveNorms::None => b.op(&[name], product, &["mx", w]),
            SelectiveNorms::Plain(eps) => {
                b.op(&[&flat], product, &["mx", w])?;
                b.ones(&gain, &flat, dim)?;
                b.op(&[name, &rstd], RmsNorm { eps }, &[&flat, &gain])
            }
            SelectiveNorms::Gains(eps) => {
                b.op(&[&flat], product, &["mx", w])?;
                b.op(&[name, &rstd], RmsNorm { eps }, &[&flat, &format!("{name}_norm")])
            }
        }
    }

    /// `so_sum`, the results of the scan of channels times their steps, and channels times a number of each.
    fn scan(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        let dtype = b.dtype("mx")?;
        b.op(&["step_product"], Einsum::new("b s ls, ls rs -> b s rs")?, &["dt", "wdecay_b"])?;
        wide(b, "step_wide", "step_product")?;
        wide(b, "step_bias", "dt_bias")?;
        b.op(&["step_sum"], Binary::spread(BinaryKind::Add, OF_CHANNELS)?, &["step_wide", "step_bias"])?;
        b.unary("pace", UnaryKind::Softplus, "step_sum")?;
        wide(b, "mx_wide", "mx")?;
        b.op(&["mx_step"], Binary::of(BinaryKind::Mul), &["mx_wide", "pace"])?;
        b.unary("mx_scaled", UnaryKind::Cast(dtype), "mx_step")?;
        b.unary("a_log_wide", UnaryKind::Cast(DType::F32), "a_log")?;
        b.unary("rate_power", UnaryKind::Exp, "a_log_wide")?;
        b.unary("rate", UnaryKind::Neg, "rate_power")?;
        for (y, x, dims) in [
            ("q", "mq", "b s gs ks"),
            ("k", "mk", "b s gs ks"),
            ("v", "mx_scaled", "b s gs rs 1"),
            ("paces", "pace", "b s gs rs"),
            ("rates", "rate", "gs rs ks"),
        ] {
            b.op(&[y], Reshape { dims: b.dims(dims) }, &[x])?;
        }
        let settings = ScanSettings { kind: ScanKind::Selective, scale: 1.0, chunk: CHUNK, block: None };
        b.op(&["mo_heads"], Scan(settings), &["q", "k", "v", "paces", "rates", "pos"])?;
        b.op(&["mo"], Reshape { dims: b.dims("b s rs") }, &["mo_heads"])?;
        b.op(&["mo_skip"], Binary::spread(BinaryKind::Mul, OF_CHANNELS)?, &["mx", "skip"])?;
        b.op(&["mo_sum"], Binary::of(BinaryKind::Add), &["mo", "mo_skip"])
    }
}
