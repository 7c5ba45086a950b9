//! Feed-forward nets: gated, and of two matrices.

use super::draft::{Body, Weight};
use crate::ops::{Binary, BinaryKind, Einsum, Unary, UnaryKind};

/// The parameters of a net between h and f.
pub(super) fn weights(is_gated: bool, deviation: f64, residual: f64) -> Vec<Weight> {
    let gate = is_gated.then(|| Weight::normal("gate", "h f", deviation));
    let rest = [Weight::normal("up", "h f", deviation), Weight::normal("down", "f h", residual)];
    gate.into_iter().chain(rest).collect()
}

/// `fd = down(silu(gate(n)) up(n))`, or without a gate `down(max(up(n), 0)^2)`.
pub(super) fn build(is_gated: bool, b: &mut Body<'_>) -> Result<(), String> {
    if is_gated {
        return gated(b, "n", ["fg", "fu", "fs", "fp", "fd"], ["gate", "up", "down"], ["b s", ""], ["h", "f"]);
    }
    b.op(&["fu"], Einsum::new("b s h, h f -> b s f")?, &["n", "up"])?;
    b.op(&["fs"], Unary(UnaryKind::ReluSquared), &["fu"])?;
    b.op(&["fd"], Einsum::new("b s f, f h -> b s h")?, &["fs", "down"])
}

/// A gated net on `x`. `rows` are the leading dims of `x`; the matrices may share leading dims with it. `between` are the dims
/// of the stream and between the matrices. The names are those of the values, in order.
pub(super) fn gated(
    b: &mut Body<'_>,
    x: &str,
    [gate, up, active, product, down]: [&str; 5],
    [w_gate, w_up, w_down]: [&str; 3],
    [rows, shared]: [&str; 2],
    [outer, inner]: [&str; 2],
) -> Result<(), String> {
    let there = Einsum::new(&format!("{rows} {outer}, {shared} {outer} {inner} -> {rows} {inner}"))?;
    b.op(&[gate], there.clone(), &[x, w_gate])?;
    b.op(&[up], there, &[x, w_up])?;
    b.op(&[active], Unary(UnaryKind::Silu), &[gate])?;
    b.op(&[product], Binary::of(BinaryKind::Mul), &[active, up])?;
    let back = Einsum::new(&format!("{rows} {inner}, {shared} {inner} {outer} -> {rows} {outer}"))?;
    b.op(&[down], back, &[product, w_down])
}
