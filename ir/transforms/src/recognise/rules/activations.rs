//! `sigmoid`, `silu`, `gelu`, `gelu_erf` and `relu_squared`.

use super::polynomial::{Terms, is_polynomial, variables};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

pub(super) const RULES: [Rule; 5] = [
    Rule { name: "sigmoid", rounding: Rounding::Fewer, find: sigmoid },
    Rule { name: "silu", rounding: Rounding::Fewer, find: silu },
    Rule { name: "gelu", rounding: Rounding::Reorders, find: gelu },
    Rule { name: "gelu_erf", rounding: Rounding::Reorders, find: gelu_erf },
    Rule { name: "relu_squared", rounding: Rounding::Fewer, find: relu_squared },
];

/// An op of one operand equals the class, if the operand has its element type.
fn equal(look: &Look<'_>, class: Id, op: PlainOp, x: Id) -> Option<Equal> {
    let x = look.in_dtype(x, look.shape(class).dtype)?;
    Some(Equal { class, term: Term::plain(op, [Term::Class(x)]) })
}

/// `recip(1 + exp(-x))`, or `1 / 2 + tanh(x / 2) / 2`
fn sigmoid(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shifted = look.unary(class, PlainOp::Recip).into_iter().flat_map(|sum| look.with_number(sum, PlainOp::Add));
    let exp = shifted.filter(|(_, number)| *number == 1.0).flat_map(|(exp, _)| look.unary(exp, PlainOp::Exp));
    let x = exp.flat_map(|negative| look.unary(negative, PlainOp::Neg)).chain(halved(look, class));
    x.filter_map(|x| equal(look, class, PlainOp::Sigmoid, x)).collect()
}

/// The classes `x` of which the class is `1 / 2 + tanh(x / 2) / 2`.
fn halved(look: &Look<'_>, class: Id) -> Vec<Id> {
    if !is_sum_or_product(look, class) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for tanh in variables(look, class) {
        let halves = look.unary(tanh, PlainOp::Tanh);
        if halves.is_empty() || !is_polynomial(look, class, tanh, None, &[([0, 0], 0.5), ([1, 0], 0.5)]) {
            continue;
        }
        let products = halves.into_iter().flat_map(|half| look.with_number(half, PlainOp::Mul));
        found.extend(products.filter(|(_, by)| *by == 0.5).map(|(x, _)| x));
    }
    found
}

fn is_sum_or_product(look: &Look<'_>, class: Id) -> bool {
    !look.plain(class, PlainOp::Mul).is_empty() || !look.plain(class, PlainOp::Add).is_empty()
}

/// `x sigmoid(x)`
fn silu(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let products = look.either(class, PlainOp::Mul).into_iter();
    let same =
        products.filter(|&(x, gate)| look.unary(gate, PlainOp::Sigmoid).into_iter().any(|y| look.is_same_source(x, y)));
    same.filter_map(|(x, _)| equal(look, class, PlainOp::Silu, x)).collect()
}

/// The classes `x` of which the class is a polynomial in `x` and `f(u)`, where `u` is one in `x`.
fn gated(look: &Look<'_>, class: Id, op: PlainOp, whole: Terms<'_>, operand: Terms<'_>) -> Vec<Id> {
    if !is_sum_or_product(look, class) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for gate in variables(look, class) {
        for u in look.unary(gate, op) {
            found.extend(variables(look, u).into_iter().find(|&x| {
                is_polynomial(look, u, x, None, operand) && is_polynomial(look, class, x, Some(gate), whole)
            }));
        }
    }
    found
}

/// `x / 2 + x f / 2`
const HALVES: Terms<'_> = &[([1, 0], 0.5), ([1, 1], 0.5)];

/// `x / 2 (1 + tanh(u))` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, or `x sigmoid(2 u)`
fn gelu(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let slope = FRAC_2_PI.sqrt();
    let operand = [([1, 0], slope), ([3, 0], slope * 0.044_715)];
    let doubled = operand.map(|(powers, factor)| (powers, 2.0 * factor));
    let by_tanh = gated(look, class, PlainOp::Tanh, HALVES, &operand);
    let by_sigmoid = gated(look, class, PlainOp::Sigmoid, &[([1, 1], 1.0)], &doubled);
    let x = by_tanh.into_iter().chain(by_sigmoid);
    x.filter_map(|x| equal(look, class, PlainOp::Gelu, x)).collect()
}

/// `x / 2 (1 + erf(x / sqrt(2)))`
fn gelu_erf(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let x = gated(look, class, PlainOp::Erf, HALVES, &[([1, 0], FRAC_1_SQRT_2)]).into_iter();
    x.filter_map(|x| equal(look, class, PlainOp::GeluErf, x)).collect()
}

/// `square(max(x, 0))`
fn relu_squared(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let relu = look.unary(class, PlainOp::Square).into_iter().flat_map(|relu| look.with_number(relu, PlainOp::Max));
    let x = relu.filter(|(_, number)| *number == 0.0).map(|(x, _)| x);
    x.filter_map(|x| equal(look, class, PlainOp::ReluSquared, x)).collect()
}
