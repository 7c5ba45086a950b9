//! State spaces with one decay for each head (Dao and Gu 2024, Mamba-2).

use super::{Convolved, ScanHeads, convolved, log_decay_of, scaled, step_sizes, wide};
use crate::graph::Init;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::error::{ConfigError, invalid};
use crate::ops::{Binary, BinaryKind, Reshape, RmsNorm, Scan, ScanKind, ScanSettings, UnaryKind};
use serde::Serialize;

/// A state space with one decay for each head.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ssd {
    /// Its heads.
    pub heads: ScanHeads,
    /// Rows of a chunk.
    pub chunk: u64,
    /// The products of the stream have biases.
    pub bias: bool,
    /// The last product has one.
    pub out_bias: bool,
    /// The convolutions have biases.
    pub conv_bias: bool,
    /// The least and the largest step; none: no bound.
    pub steps: [Option<f64>; 2],
    /// Drawn numbers of which the first biases of steps are the inverse of softplus; none: these are 1.
    pub first_steps: Option<[f64; 2]>,
    /// Added to the mean square in the norm.
    pub eps: f64,
    /// The norm of the results.
    pub norm: SsdNorm,
    /// Factors.
    pub scales: SsdScales,
}

/// Factors within a state space (Falcon-H1).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SsdScales {
    /// The factor of what it reads.
    pub read: f64,
    /// Factors of the products that are its gates, values, keys, queries and steps.
    pub products: [f64; 5],
}

impl SsdScales {
    /// No factors.
    pub const NONE: SsdScales = SsdScales { read: 1.0, products: [1.0; 5] };
}

/// The norm of the results of a state space, in groups of heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum SsdNorm {
    /// A norm of the results times their gates.
    Gated,
    /// A norm of the results, which then meet their gates (Falcon-H1).
    BeforeGate,
    /// None: results times gates (Falcon-H1).
    None,
}

/// Values, keys and queries: the end of the name and the dims of each.
const SIDES: [(&str, &str); 3] = [("mv", "gs rs cs"), ("mk", "gs ks"), ("mq", "gs ks")];

impl Ssd {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.heads.check()?;
        match self.steps {
            [Some(least), Some(most)] if least > most => {
                Err(invalid("time_step_limit", format!("{least} is above {most}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let taps = self.heads.taps;
        let mut weights = vec![Weight::normal("wgate", "h gs rs cs", deviation)];
        weights.extend(SIDES.map(|(name, dims)| Weight::normal(format!("w{name}"), &format!("h {dims}"), deviation)));
        weights.push(Weight::normal("wdecay", "h gs rs", deviation));
        if self.bias {
            weights.push(Weight::constant("mg_bias", "gs rs cs", 0.0));
            weights.extend(SIDES.map(|(name, dims)| Weight::constant(format!("{name}_bias"), dims, 0.0)));
            weights.push(Weight::constant("decay_bias", "gs rs", 0.0));
        }
        for (name, dims) in SIDES {
            weights.push(Weight::normal(format!("conv_{name}"), &format!("{dims} {taps}"), deviation));
            weights.extend(self.conv_bias.then(|| Weight::constant(format!("conv_{name}_bias"), dims, 0.0)));
        }
        let heads = (self.heads.groups * self.heads.heads) as f64;
        weights.push(Weight::new("a_log", "gs rs", Init::LogCount(heads)));
        let first = self.first_steps.map_or(Init::Constant(1.0), |[low, high]| Init::InverseSoftplus(low, high));
        weights.push(Weight::new("dt_bias", "gs rs", first));
        weights.push(Weight::constant("skip", "gs rs", 1.0));
        weights.extend((self.norm != SsdNorm::None).then(|| Weight::constant("scan_norm", "gs rs cs", 1.0)));
        weights.push(Weight::normal("wmo", "gs rs cs h", residual));
        weights.extend(self.out_bias.then(|| Weight::constant("out_bias", "h", 0.0)));
        weights
    }

    pub(super) fn build(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        let SsdScales { read, products: [gate, value, key, query, step] } = self.scales;
        let mut x = x;
        if read != 1.0 {
            b.scale("scan_read", read, x)?;
            x = "scan_read";
        }
        for ((name, dims), scale) in SIDES.into_iter().zip([value, key, query]) {
            convolved(b, name, x, dims, Convolved { bias: self.bias, conv_bias: self.conv_bias, scale })?;
        }
        scaled(
            b,
            step,
            &Linear { y: "dt", x, w: "wdecay", bias: self.bias.then_some("decay_bias"), from: "h", to: "gs rs" },
        )?;
        step_sizes(b, "pace", "dt", "gs rs", self.steps)?;
        log_decay_of(b, "decay", "pace", "gs rs")?;
        self.scan(b)?;
        scaled(
            b,
            gate,
            &Linear { y: "mg", x, w: "wgate", bias: self.bias.then_some("mg_bias"), from: "h", to: "gs rs cs" },
        )?;
        b.unary("mg_silu", UnaryKind::Silu, "mg")?;
        let product = Binary::of(BinaryKind::Mul);
        match self.norm {
            SsdNorm::Gated => {
                b.op(&["mo_gated"], product, &["mo_sum", "mg_silu"])?;
                self.normed(b, "mo_last", "mo_gated")?;
            }
            SsdNorm::BeforeGate => {
                self.normed(b, "mo_normed", "mo_sum")?;
                b.op(&["mo_last"], product, &["mo_normed", "mg_silu"])?;
            }
            SsdNorm::None => b.op(&["mo_last"], product, &["mo_sum", "mg_silu"])?,
        }
        b.linear(&Linear {
            y,
            x: "mo_last",
            w: "wmo",
            bias: self.out_bias.then_some("out_bias"),
            from: "gs rs cs",
            to: "h",
        })
    }

    /// `so_sum`, the results of the scan of values times their steps, and values times a number of each head.
    fn scan(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        let dtype = b.dtype("mv")?;
        wide(b, "mv_wide", "mv")?;
        b.op(
            &["mv_step"],
            Binary::spread(BinaryKind::Mul, "b s gs rs cs, b s gs rs -> b s gs rs cs")?,
            &["mv_wide", "pace"],
        )?;
        b.unary("mv_scaled", UnaryKind::Cast(dtype), "mv_step")?;
        let settings = ScanSettings { kind: ScanKind::Linear, scale: 1.0, chunk: self.chunk, block: None };
        b.op(&["mo"], Scan(settings), &["mq", "mk", "mv_scaled", "decay", "pos"])?;
        b.op(&["mo_skip"], Binary::spread(BinaryKind::Mul, "b s gs rs cs, gs rs -> b s gs rs cs")?, &["mv", "skip"])?;
        b.op(&["mo_sum"], Binary::of(BinaryKind::Add), &["mo", "mo_skip"])
    }

    /// A norm of all values of a group, with gains of each.
    fn normed(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        let size = self.heads.heads * self.heads.value;
        let [flat, ones, normed, rstd, alike] =
            ["flat", "ones", "normed", "rstd", "alike"].map(|end| format!("{y}_{end}"));
        b.op(&[&flat], Reshape { dims: b.dims(&format!("b s gs {size}")) }, &[x])?;
        b.ones(&ones, x, &size.to_string())?;
        b.op(&[&normed, &rstd], RmsNorm { eps: self.eps }, &[&flat, &ones])?;
        b.op(&[&alike], Reshape { dims: b.dims("b s gs rs cs") }, &[&normed])?;
        let product = Binary::spread(BinaryKind::Mul, "b s gs rs cs, gs rs cs -> b s gs rs cs")?;
        b.op(&[y], product, &[&alike, "scan_norm"])
    }
}
