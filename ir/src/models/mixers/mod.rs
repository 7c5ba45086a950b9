//! Layers that carry a state along the sequence in place of attention: their dims, parameters and statements.

mod conv;
mod delta;
mod selective;
mod ssd;

pub use conv::GatedConv;
pub use delta::{DeltaDecay, DeltaNet};
pub use selective::{Selective, SelectiveNorms};
pub use ssd::{Ssd, SsdNorm, SsdScales};

use super::draft::{Body, DraftError, Linear, Weight};
use super::error::{ConfigError, invalid, positive};
use super::layer_set::LayerSet;
use super::llama::Norms;
use crate::dim_role::DimRole;
use crate::ops::{Binary, BinaryKind, RmsNorm, ShortConv, UnaryKind};
use crate::types::{DType, DimName};
use serde::Serialize;

/// Layers that have a mixer with a state in place of attention.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Scanned {
    /// Their mixer.
    pub mixer: Mixer,
    /// The layers.
    pub layers: LayerSet,
    /// Factors of layers that have attention, too; none: the mixer is in its place.
    pub with_attention: Option<WithAttention>,
    /// The norms of their branches, where these are others than those of the model (OLMo hybrid).
    pub norms: Option<Norms>,
}

impl Scanned {
    /// Layers that have a mixer in place of attention.
    pub(super) const fn of(mixer: Mixer, layers: LayerSet) -> Scanned {
        Scanned { mixer, layers, with_attention: None, norms: None }
    }
}

/// A state and attention side by side: the factors of what attention reads, and of what both give (Falcon-H1).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct WithAttention {
    /// The factor of what attention reads.
    pub read: f64,
    /// The factor of what attention gives.
    pub attention: f64,
    /// The factor of what the state gives.
    pub state: f64,
}

/// A part of a layer that mixes the tokens of a sequence by a state.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum Mixer {
    /// A gated delta rule.
    Delta(DeltaNet),
    /// A state space with one decay for each head.
    Ssd(Ssd),
    /// A state space whose rows decay at rates of their own.
    Selective(Selective),
    /// A short convolution between two gates.
    Conv(GatedConv),
}

/// The heads of a mixer. Groups of heads share keys and queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ScanHeads {
    /// Groups.
    pub groups: u64,
    /// Heads of a group.
    pub heads: u64,
    /// Size of a key and of a query.
    pub key: u64,
    /// Size of a value.
    pub value: u64,
    /// Taps of the convolutions.
    pub taps: u64,
}

impl ScanHeads {
    fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("number of scan groups", self.groups),
            ("number of scan heads", self.heads),
            ("size of a scan's keys", self.key),
            ("size of a scan's values", self.value),
            ("number of taps of a convolution", self.taps),
        ];
        sizes.into_iter().try_for_each(|(field, size)| positive(field, size))
    }

    fn dims(&self) -> Vec<DimName> {
        vec![
            DimName::new("gs", self.groups, Some(DimRole::ScanGroups)).undivided(),
            DimName::new("rs", self.heads, Some(DimRole::ScanHeads)).undivided(),
            DimName::new("ks", self.key, None),
            DimName::new("cs", self.value, None),
        ]
    }
}

impl Mixer {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self {
            Mixer::Delta(delta) => delta.check(),
            Mixer::Ssd(ssd) => ssd.check(),
            Mixer::Conv(conv) => conv.check(),
            Mixer::Selective(selective) => selective.check(),
        }
    }

    /// The dims that it adds.
    pub(super) fn dims(&self) -> Vec<DimName> {
        match self {
            Mixer::Delta(delta) => delta.dims(),
            Mixer::Ssd(ssd) => ssd.heads.dims(),
            Mixer::Conv(conv) => conv.dims(),
            Mixer::Selective(selective) => selective.dims(),
        }
    }

    /// Its parameters; matrices that write to the residual stream have the deviation `residual`.
    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        match self {
            Mixer::Delta(delta) => delta.weights(deviation, residual),
            Mixer::Ssd(ssd) => ssd.weights(deviation, residual),
            Mixer::Conv(conv) => conv.weights(deviation, residual),
            Mixer::Selective(selective) => selective.weights(deviation, residual),
        }
    }

    /// `y = mixer(x)`; `eps` is added to the mean square in norms.
    pub(super) fn build(&self, b: &mut Body<'_>, eps: f64, y: &str, x: &str) -> Result<(), DraftError> {
        match self {
            Mixer::Delta(delta) => delta.build(b, eps, y, x),
            Mixer::Ssd(ssd) => ssd.build(b, y, x),
            Mixer::Conv(conv) => conv.build(b, y, x),
            Mixer::Selective(selective) => selective.build(b, y, x),
        }
    }
}

/// The biases of a convolved product, and its factor.
#[derive(Clone, Copy)]
struct Convolved {
    /// The product has a bias, `{y}_bias`.
    bias: bool,
    /// The convolution has one, `conv_{y}_bias`.
    conv_bias: bool,
    /// The factor of the product.
    scale: f64,
}

impl Convolved {
    const PLAIN: Convolved = Convolved { bias: false, conv_bias: false, scale: 1.0 };
}

/// `y = silu(conv(x w))`, by its name: the matrix is `w{y}`, the convolution `conv_{y}`. `to` are its dims behind `b s`.
fn convolved(b: &mut Body<'_>, y: &str, x: &str, to: &str, how: Convolved) -> Result<(), DraftError> {
    let Convolved { bias, conv_bias, scale } = how;
    let [product, conv, sum, added] = ["product", "conv", "sum", "bias"].map(|end| format!("{y}_{end}"));
    let added = bias.then_some(&*added);
    scaled(b, scale, &Linear { y: &product, x, w: &format!("w{y}"), bias: added, from: "h", to })?;
    let taps = format!("conv_{y}");
    b.op(&[&conv], ShortConv::default(), &[&product, &taps, "pos"])?;
    if !conv_bias {
        return b.unary(y, UnaryKind::Silu, &conv);
    }
    let add = Binary::spread(BinaryKind::Add, &format!("b s {to}, {to} -> b s {to}"))?;
    b.op(&[&sum], add, &[&conv, &format!("{taps}_bias")])?;
    b.unary(y, UnaryKind::Silu, &sum)
}

/// A linear map, times a factor.
fn scaled(b: &mut Body<'_>, factor: f64, map: &Linear<'_>) -> Result<(), DraftError> {
    if factor == 1.0 {
        return b.linear(map);
    }
    let whole = format!("{}_whole", map.y);
    b.linear(&Linear { y: &whole, ..*map })?;
    b.scale(map.y, factor, &whole)
}

/// `y = x / sqrt(sum x^2 + eps)` over rows of `size` elements of the dim: a norm of the root of the mean square, divided by that of the size.
fn unit(b: &mut Body<'_>, y: &str, x: &str, dim: &str, size: u64) -> Result<(), DraftError> {
    const EPS: f64 = 1e-6;
    let size = size as f64;
    let gain = format!("unit_{dim}");
    if b.value(&gain).is_err() {
        b.filled(&gain, 1.0 / size.sqrt(), x, dim)?;
    }
    b.op(&[y, &format!("{y}_rstd")], RmsNorm { eps: EPS / size }, &[x, &gain])
}

/// `y`, the value in f32.
fn wide(b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
    b.unary(y, UnaryKind::Cast(DType::F32), x)
}

/// `y = softplus(x + dt_bias)` in f32, from the first to the second bound, where there are such. `dims` are those of the bias, and of x
/// behind `b s`.
fn step_sizes(b: &mut Body<'_>, y: &str, x: &str, dims: &str, bounds: [Option<f64>; 2]) -> Result<(), DraftError> {
    let [x_wide, bias, sum, soft, above] = ["wide", "bias", "sum", "soft", "above"].map(|end| format!("{y}_{end}"));
    wide(b, &x_wide, x)?;
    wide(b, &bias, "dt_bias")?;
    let add = Binary::spread(BinaryKind::Add, &format!("b s {dims}, {dims} -> b s {dims}"))?;
    b.op(&[&sum], add, &[&x_wide, &bias])?;
    match bounds {
        [None, None] => b.unary(y, UnaryKind::Softplus, &sum),
        [Some(least), None] => {
            b.unary(&soft, UnaryKind::Softplus, &sum)?;
            b.unary(y, UnaryKind::AtLeast(least), &soft)
        }
        [least, Some(most)] => {
            b.unary(&soft, UnaryKind::Softplus, &sum)?;
            b.unary(&above, UnaryKind::AtLeast(least.unwrap_or(0.0)), &soft)?;
            b.unary(y, UnaryKind::AtMost(most), &above)
        }
    }
}

/// `y = -exp(a_log) step` in f32: the logarithms of factors of decay. `dims` are those of steps behind `b s`; `a_log` has a number for each
/// head.
fn log_decay_of(b: &mut Body<'_>, y: &str, step: &str, dims: &str) -> Result<(), DraftError> {
    let [log, power, rate] = ["log", "power", "rate"].map(|end| format!("{y}_{end}"));
    wide(b, &log, "a_log")?;
    b.unary(&power, UnaryKind::Exp, &log)?;
    b.unary(&rate, UnaryKind::Neg, &power)?;
    b.op(&[y], Binary::spread(BinaryKind::Mul, &format!("b s {dims}, gs rs -> b s {dims}"))?, &[step, &rate])
}

fn at_least_heads(field: &'static str, value_heads: u64, key_heads: u64) -> Result<u64, ConfigError> {
    positive(field, value_heads)?;
    if key_heads > 0 && value_heads.is_multiple_of(key_heads) {
        return Ok(value_heads / key_heads);
    }
    Err(invalid(field, format!("{value_heads} is not a multiple of {key_heads} heads of keys")))
}
