//! Gated delta rules (Yang et al. 2024, Gated Delta Networks; Kimi Team 2025, Kimi Linear).

use super::{Convolved, ScanHeads, at_least_heads, convolved, log_decay_of, step_sizes, unit, wide};
use crate::graph::Init;
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::models::error::ConfigError;
use crate::ops::{Binary, BinaryKind, RmsNorm, Scan, ScanKind, ScanSettings, UnaryKind};
use crate::types::DimName;
use serde::Serialize;

/// Rows of a chunk, as flash-linear-attention has them.
const CHUNK: u64 = 64;

/// Factors by which a state decays.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum DeltaDecay {
    /// One factor for each head (Qwen3-Next).
    Head,
    /// One for each element of a key, from a product through a vector of the size of a value (Kimi Linear).
    Key,
    /// One for each element of a key, from one product. Logarithms are a negative number times a sigmoid, if there is one (Ling 3).
    KeyDirect(Option<f64>),
}

/// A gated delta rule.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DeltaNet {
    /// Its heads.
    pub heads: ScanHeads,
    /// Factors by which a state decays.
    pub decay: DeltaDecay,
    /// The factor of beta: with 2 a state may lose more than it has for a key (OLMo hybrid).
    pub beta_scale: f64,
    /// Numbers between which the first steps are drawn; none: their biases are 1.
    pub first_steps: Option<[f64; 2]>,
    /// Added to the mean square in the norm of results; none: what other norms add.
    pub eps: Option<f64>,
}

impl DeltaNet {
    /// A delta rule with these numbers of heads of keys and of values, and the sizes of both.
    pub(in crate::models) fn of_heads(heads: [u64; 2], sizes: [u64; 2], taps: u64) -> Result<DeltaNet, ConfigError> {
        let ([key_heads, value_heads], [key, value]) = (heads, sizes);
        let heads = at_least_heads("linear_num_value_heads", value_heads, key_heads)?;
        let heads = ScanHeads { groups: key_heads, heads, key, value, taps };
        Ok(DeltaNet { heads, decay: DeltaDecay::Head, beta_scale: 1.0, first_steps: None, eps: None })
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.heads.check()
    }

    /// The dims that it adds; a decay by key comes through a vector of the size of a value.
    pub(super) fn dims(&self) -> Vec<DimName> {
        let rank = (self.decay == DeltaDecay::Key).then(|| DimName::new("ls", self.heads.value, None));
        self.heads.dims().into_iter().chain(rank).collect()
    }

    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let taps = self.heads.taps;
        let sides = [("q", "gs ks"), ("k", "gs ks"), ("v", "gs rs cs")];
        let mut weights = Vec::new();
        for (name, dims) in sides {
            weights.push(Weight::normal(format!("wm{name}"), &format!("h {dims}"), deviation));
            weights.push(Weight::normal(format!("conv_m{name}"), &format!("{dims} {taps}"), deviation));
        }
        weights.push(Weight::normal("wbeta", "h gs rs", deviation));
        let least = if self.decay == DeltaDecay::Head { 0.01 } else { 1.0 };
        weights.push(Weight::new("a_log", "gs rs", Init::LogUniform(least, 16.0)));
        match self.decay {
            DeltaDecay::Head => {
                weights.push(Weight::normal("wdecay", "h gs rs", deviation));
                let first =
                    self.first_steps.map_or(Init::Constant(1.0), |[low, high]| Init::InverseSoftplus(low, high));
                weights.push(Weight::new("dt_bias", "gs rs", first));
                weights.push(Weight::normal("wgate", "h gs rs cs", deviation));
            }
            DeltaDecay::Key => {
                weights.push(Weight::normal("wdecay_a", "h ls", deviation));
                weights.push(Weight::normal("wdecay_b", "ls gs rs ks", deviation));
                weights.push(Weight::new("dt_bias", "gs rs ks", Init::InverseSoftplus(1e-3, 1e-1)));
                weights.push(Weight::normal("wgate_a", "h ls", deviation));
                weights.push(Weight::normal("wgate_b", "ls gs rs cs", deviation));
            }
            DeltaDecay::KeyDirect(_) => {
                weights.push(Weight::normal("wdecay", "h gs rs ks", deviation));
                weights.push(Weight::new("dt_bias", "gs rs ks", Init::InverseSoftplus(1e-3, 1e-1)));
                weights.push(Weight::normal("wgate", "h gs rs cs", deviation));
            }
        }
        weights.push(Weight::constant("scan_norm", "cs", 1.0));
        weights.push(Weight::normal("wmo", "gs rs cs h", residual));
        weights
    }

    pub(super) fn build(&self, b: &mut Body<'_>, eps: f64, y: &str, x: &str) -> Result<(), DraftError> {
        for (name, dims) in [("mq", "gs ks"), ("mk", "gs ks"), ("mv", "gs rs cs")] {
            convolved(b, name, x, dims, Convolved::PLAIN)?;
        }
        unit(b, "mq_unit", "mq", "ks", self.heads.key)?;
        unit(b, "mk_unit", "mk", "ks", self.heads.key)?;
        self.beta(b, x)?;
        self.decay(b, x)?;
        let settings = ScanSettings {
            kind: ScanKind::Delta,
            scale: (self.heads.key as f64).powf(-0.5),
            chunk: CHUNK,
            block: None,
        };
        b.op(&["mo"], Scan(settings), &["mq_unit", "mk_unit", "mv", "decay", "beta", "pos"])?;
        b.op(&["mo_normed", "mo_rstd"], RmsNorm { eps: self.eps.unwrap_or(eps) }, &["mo", "scan_norm"])?;
        self.gate(b, x)?;
        b.op(&["mo_gated"], Binary::of(BinaryKind::Mul), &["mo_normed", "mg_active"])?;
        b.linear(&Linear { y, x: "mo_gated", w: "wmo", bias: None, from: "gs rs cs", to: "h" })
    }

    /// `decay`, the logarithms of the factors of decay, in f32.
    fn decay(&self, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        let dims = match self.decay {
            DeltaDecay::Head => {
                b.linear(&Linear { y: "dt", x, w: "wdecay", bias: None, from: "h", to: "gs rs" })?;
                "gs rs"
            }
            DeltaDecay::Key => {
                b.linear(&Linear { y: "dt_low", x, w: "wdecay_a", bias: None, from: "h", to: "ls" })?;
                b.linear(&Linear { y: "dt", x: "dt_low", w: "wdecay_b", bias: None, from: "ls", to: "gs rs ks" })?;
                "gs rs ks"
            }
            DeltaDecay::KeyDirect(least) => {
                b.linear(&Linear { y: "dt", x, w: "wdecay", bias: None, from: "h", to: "gs rs ks" })?;
                if let Some(least) = least {
                    return bounded_decay(b, least);
                }
                "gs rs ks"
            }
        };
        step_sizes(b, "pace", "dt", dims, [None; 2])?;
        log_decay_of(b, "decay", "pace", dims)
    }

    /// `mg_active`, the gates of the results.
    fn gate(&self, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        if self.decay == DeltaDecay::Key {
            b.linear(&Linear { y: "mg_low", x, w: "wgate_a", bias: None, from: "h", to: "ls" })?;
            b.linear(&Linear { y: "mg", x: "mg_low", w: "wgate_b", bias: None, from: "ls", to: "gs rs cs" })?;
        } else {
            b.linear(&Linear { y: "mg", x, w: "wgate", bias: None, from: "h", to: "gs rs cs" })?;
        }
        if self.decay == DeltaDecay::Head {
            b.unary("mg_active", UnaryKind::Silu, "mg")
        } else {
            b.sigmoid("mg_active", "mg")
        }
    }

    /// `beta`, how much of what a state has for a key is replaced, in f32.
    fn beta(&self, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        b.linear(&Linear { y: "beta_product", x, w: "wbeta", bias: None, from: "h", to: "gs rs" })?;
        wide(b, "beta_wide", "beta_product")?;
        if self.beta_scale == 1.0 {
            return b.sigmoid("beta", "beta_wide");
        }
        b.sigmoid("beta_share", "beta_wide")?;
        b.scale("beta", self.beta_scale, "beta_share")
    }
}

/// `decay = least sigmoid(exp(a_log) (dt + dt_bias))` in f32.
fn bounded_decay(b: &mut Body<'_>, least: f64) -> Result<(), DraftError> {
    const DIMS: &str = "gs rs ks";
    wide(b, "dt_wide", "dt")?;
    wide(b, "dt_bias_wide", "dt_bias")?;
    let add = Binary::spread(BinaryKind::Add, &format!("b s {DIMS}, {DIMS} -> b s {DIMS}"))?;
    b.op(&["dt_sum"], add, &["dt_wide", "dt_bias_wide"])?;
    wide(b, "a_log_wide", "a_log")?;
    b.unary("rate", UnaryKind::Exp, "a_log_wide")?;
    let product = Binary::spread(BinaryKind::Mul, &format!("b s {DIMS}, gs rs -> b s {DIMS}"))?;
    b.op(&["dt_rated"], product, &["dt_sum", "rate"])?;
    b.sigmoid("dt_share", "dt_rated")?;
    b.scale("decay", least, "dt_share")
}
