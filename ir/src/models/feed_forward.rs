//! The functions of feed-forward nets, and gated nets.

use super::draft::{Body, DraftError, Weight};
use crate::ops::{Binary, BinaryKind, Einsum, Reshape, UnaryKind};
use crate::types::DType;
use serde::Serialize;

/// The function between the matrices of a net.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Activation {
    /// `x / (1 + e^-x)` (SwiGLU: Shazeer 2020)
    Silu,
    /// GELU in its tanh form (GeGLU; Gemma).
    GeluTanh,
    /// GELU with the error function (GPT-NeoX).
    GeluErf,
    /// `max(x, 0)^2` (Nemotron-4)
    ReluSquared,
    /// `max(x, 0)` (OPT)
    Relu,
    /// `x / (1 + e^(-1.702 x))` (Hendrycks and Gimpel 2016, section 2)
    GeluSigmoid,
    /// `p max(x, 0)^2 + n (e^min(x, 0) - 1 - min(x, 0)) + x / 2`, with `p = ln(1 + e^a)` and `n = ln(1 + e^b) + 1 / 2` of two learned
    /// numbers (Huang and Schlag 2025, xIELU; Apertus).
    Xielu,
}

/// The names of the two learned numbers of xIELU.
const XIELU: [&str; 2] = ["alpha_p", "alpha_n"];

/// The first values of these numbers, of which softplus makes 0.8 and 0.3: `ln(e^0.8 - 1)` and `ln(e^0.3 - 1)`.
const XIELU_FIRST: [f64; 2] = [0.203_432_5, -1.050_205_5];

/// The factor of xIELU's operand itself.
const XIELU_LINEAR: f64 = 0.5;

impl Activation {
    /// The parameters that it has.
    pub(super) fn weights(self) -> Vec<Weight> {
        let numbers = XIELU.iter().zip(XIELU_FIRST).map(|(name, first)| Weight::constant(*name, "1", first));
        if self == Activation::Xielu { numbers.collect() } else { Vec::new() }
    }

    /// `y = f(x)`, where `dims` are those of both.
    pub(super) fn build(self, b: &mut Body<'_>, y: &str, x: &str, dims: &str) -> Result<(), DraftError> {
        match self {
            Activation::Silu => b.unary(y, UnaryKind::Silu, x),
            Activation::GeluTanh => b.unary(y, UnaryKind::Gelu, x),
            Activation::GeluErf => b.unary(y, UnaryKind::GeluErf, x),
            Activation::ReluSquared => b.unary(y, UnaryKind::ReluSquared, x),
            Activation::Relu => b.unary(y, UnaryKind::AtLeast(0.0), x),
            Activation::GeluSigmoid => {
                let [scaled, share] = ["scaled", "share"].map(|end| format!("{y}_{end}"));
                b.scale(&scaled, 1.702, x)?;
                b.sigmoid(&share, &scaled)?;
                b.op(&[y], Binary::of(BinaryKind::Mul), &[x, &share])
            }
            Activation::Xielu => xielu(b, y, x, dims),
        }
    }
}

/// xIELU, computed in f32.
fn xielu(b: &mut Body<'_>, y: &str, x: &str, dims: &str) -> Result<(), DraftError> {
    let dtype = b.dtype(x)?;
    let [wide, square, right] = ["wide", "square", "right"].map(|end| format!("{y}_{end}"));
    let [below, power, bent, bend, left] = ["below", "power", "bent", "bend", "left"].map(|end| format!("{y}_{end}"));
    let [straight, both, sum] = ["straight", "both", "sum"].map(|end| format!("{y}_{end}"));
    let [positive, negative] = XIELU;
    let [positive, negative] = [softplus(b, positive, 0.0)?, softplus(b, negative, XIELU_LINEAR)?];
    let product = Binary::spread(BinaryKind::Mul, &format!("{dims}, -> {dims}"))?;
    let add = Binary::of(BinaryKind::Add);
    let wide = widened(b, wide, x)?;
    b.unary(&square, UnaryKind::ReluSquared, &wide)?;
    b.op(&[&right], product.clone(), &[&square, &positive])?;
    b.unary(&below, UnaryKind::AtMost(0.0), &wide)?;
    b.unary(&power, UnaryKind::Exp, &below)?;
    b.op(&[&bent], Binary::of(BinaryKind::Sub), &[&power, &below])?;
    b.unary(&bend, UnaryKind::Shift(-1.0), &bent)?;
    b.op(&[&left], product, &[&bend, &negative])?;
    b.scale(&straight, XIELU_LINEAR, &wide)?;
    b.op(&[&both], add.clone(), &[&right, &left])?;
    if dtype == DType::F32 {
        return b.op(&[y], add, &[&both, &straight]);
    }
    b.op(&[&sum], add, &[&both, &straight])?;
    b.unary(y, UnaryKind::Cast(dtype), &sum)
}

/// The name of a value in f32: its own, or `y` of a cast.
fn widened(b: &mut Body<'_>, y: String, x: &str) -> Result<String, DraftError> {
    if b.dtype(x)? == DType::F32 {
        return Ok(x.to_string());
    }
    b.unary(&y, UnaryKind::Cast(DType::F32), x)?;
    Ok(y)
}

/// The name of `ln(1 + e^a) + shift` in f32, a scalar, of the parameter of a number.
fn softplus(b: &mut Body<'_>, number: &str, shift: f64) -> Result<String, DraftError> {
    let [wide, scalar, power, next, log, single] =
        ["wide", "scalar", "power", "next", "log", "single"].map(|end| format!("{number}_{end}"));
    b.op(&[&scalar], Reshape { dims: Vec::new() }, &[number])?;
    let wide = widened(b, wide, &scalar)?;
    b.unary(&power, UnaryKind::Exp, &wide)?;
    b.unary(&next, UnaryKind::Shift(1.0), &power)?;
    b.unary(&log, UnaryKind::Log, &next)?;
    if shift == 0.0 {
        return Ok(log);
    }
    b.unary(&single, UnaryKind::Shift(shift), &log)?;
    Ok(single)
}

/// The numbers of a gate whose operands are bounded.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Clamp {
    /// The factor within the sigmoid.
    pub alpha: f64,
    /// The bound of both operands.
    pub limit: f64,
}

impl Clamp {
    /// `y = (min(max(up, -limit), limit) + 1) g sigmoid(alpha g)` with `g = min(gate, limit)` (gpt-oss).
    pub(super) fn build(self, b: &mut Body<'_>, y: &str, gate: &str, up: &str) -> Result<(), DraftError> {
        let Clamp { alpha, limit } = self;
        let [bounded, scaled, share, active] = ["bounded", "scaled", "share", "active"].map(|end| format!("{y}_{end}"));
        let [below, between, next] = ["below", "between", "next"].map(|end| format!("{y}_{end}"));
        b.unary(&bounded, UnaryKind::AtMost(limit), gate)?;
        b.scale(&scaled, alpha, &bounded)?;
        b.sigmoid(&share, &scaled)?;
        b.op(&[&active], Binary::of(BinaryKind::Mul), &[&bounded, &share])?;
        b.unary(&below, UnaryKind::AtMost(limit), up)?;
        b.unary(&between, UnaryKind::AtLeast(-limit), &below)?;
        b.unary(&next, UnaryKind::Shift(1.0), &between)?;
        b.op(&[y], Binary::of(BinaryKind::Mul), &[&next, &active])
    }
}

/// A gated net: `d = down(f(gate(x)) up(x))`.
pub(super) struct Gated<'a> {
    /// The prefix of the names of its values. They end in `g` and `u` (the products of the gate and of `up`), `s` (the result of
    /// the activation), `p` (the product of both sides) and `d` (the result).
    pub(super) values: &'a str,
    /// The prefix of the names of its matrices; they end in `gate`, `up` and `down`.
    pub(super) matrices: &'a str,
    /// The leading dims of the operand.
    pub(super) rows: &'a str,
    /// The leading dims that the matrices have in common with it.
    pub(super) shared: &'a str,
    /// The dims of the stream.
    pub(super) outer: &'a str,
    /// The dims between the matrices.
    pub(super) inner: &'a str,
    /// The numbers of gates whose operands are bounded; none: they are not.
    pub(super) clamp: Option<Clamp>,
}

impl Gated<'_> {
    /// Adds its statements on `x`.
    pub(super) fn build(&self, b: &mut Body<'_>, x: &str, activation: Activation) -> Result<(), DraftError> {
        let Gated { rows, shared, outer, inner, .. } = self;
        let [gate, up, active, product, down] = ["g", "u", "s", "p", "d"].map(|end| format!("{}{end}", self.values));
        let [w_gate, w_up, w_down] = ["gate", "up", "down"].map(|end| format!("{}{end}", self.matrices));
        let there = Einsum::new(&format!("{rows} {outer}, {shared} {outer} {inner} -> {rows} {inner}"))?;
        b.op(&[&gate], there.clone(), &[x, &w_gate])?;
        b.op(&[&up], there, &[x, &w_up])?;
        match self.clamp {
            Some(clamp) => clamp.build(b, &product, &gate, &up)?,
            None => {
                activation.build(b, &active, &gate, &format!("{rows} {inner}"))?;
                b.op(&[&product], Binary::of(BinaryKind::Mul), &[&active, &up])?;
            }
        }
        self.back(b, &down, &product, &w_down)
    }

    /// The same without a gate: `d = down(f(up(x)))`.
    pub(super) fn build_ungated(&self, b: &mut Body<'_>, x: &str, activation: Activation) -> Result<(), DraftError> {
        let Gated { rows, shared, outer, inner, .. } = self;
        let [up, active, down] = ["u", "s", "d"].map(|end| format!("{}{end}", self.values));
        let [w_up, w_down] = ["up", "down"].map(|end| format!("{}{end}", self.matrices));
        let there = Einsum::new(&format!("{rows} {outer}, {shared} {outer} {inner} -> {rows} {inner}"))?;
        b.op(&[&up], there, &[x, &w_up])?;
        activation.build(b, &active, &up, &format!("{rows} {inner}"))?;
        self.back(b, &down, &active, &w_down)
    }

    fn back(&self, b: &mut Body<'_>, down: &str, product: &str, w: &str) -> Result<(), DraftError> {
        let Gated { rows, shared, outer, inner, .. } = self;
        let back = Einsum::new(&format!("{rows} {inner}, {shared} {inner} {outer} -> {rows} {outer}"))?;
        b.op(&[down], back, &[product, w])
    }
}
