//! The functions of feed-forward nets, and gated nets.

use super::draft::{Body, DraftError};
use crate::ops::{Binary, BinaryKind, Einsum, Unary, UnaryKind};
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
}

impl Activation {
    /// The op.
    pub(super) fn op(self) -> Unary {
        Unary(match self {
            Activation::Silu => UnaryKind::Silu,
            Activation::GeluTanh => UnaryKind::Gelu,
            Activation::GeluErf => UnaryKind::GeluErf,
            Activation::ReluSquared => UnaryKind::ReluSquared,
        })
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
}

impl Gated<'_> {
    /// Adds its statements on `x`.
    pub(super) fn build(&self, b: &mut Body<'_>, x: &str, activation: Unary) -> Result<(), DraftError> {
        let Gated { rows, shared, outer, inner, .. } = self;
        let [gate, up, active, product, down] = ["g", "u", "s", "p", "d"].map(|end| format!("{}{end}", self.values));
        let [w_gate, w_up, w_down] = ["gate", "up", "down"].map(|end| format!("{}{end}", self.matrices));
        let there = Einsum::new(&format!("{rows} {outer}, {shared} {outer} {inner} -> {rows} {inner}"))?;
        b.op(&[&gate], there.clone(), &[x, &w_gate])?;
        b.op(&[&up], there, &[x, &w_up])?;
        b.op(&[&active], activation, &[&gate])?;
        b.op(&[&product], Binary::of(BinaryKind::Mul), &[&active, &up])?;
        let back = Einsum::new(&format!("{rows} {inner}, {shared} {inner} {outer} -> {rows} {outer}"))?;
        b.op(&[&down], back, &[&product, &w_down])
    }
}
