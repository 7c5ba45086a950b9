//! `sigmoid`, `silu`, `gelu`, `gelu_erf` and `relu_squared`.

use super::polynomial::{polynomial, variables};
use crate::egraph::look::Look;
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
fn equal(look: &Look<'_>, class: Id, name: &'static str, x: Id) -> Option<Equal> {
    let x = look.in_dtype(x, look.shape(class).dtype)?;
    Some(Equal { class, term: Term::plain(name, [Term::Class(x)]) })
}

/// `recip(1 + exp(-x))`
fn sigmoid(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shifted = look.unary(class, "recip").into_iter().flat_map(|sum| look.with_number(sum, "add"));
    let exp = shifted.filter(|(_, number)| *number == 1.0).flat_map(|(exp, _)| look.unary(exp, "exp"));
    let x = exp.flat_map(|negative| look.unary(negative, "neg"));
    x.filter_map(|x| equal(look, class, "sigmoid", x)).collect()
}

/// `x sigmoid(x)`
fn silu(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let products = look.either(class, "mul").into_iter();
    let same = products.filter(|&(x, gate)| look.unary(gate, "sigmoid").into_iter().any(|y| look.is_same_source(x, y)));
    same.filter_map(|(x, _)| equal(look, class, "silu", x)).collect()
}

/// `x / 2 + x / 2 f(u)` with a function and its operand.
fn gated(look: &Look<'_>, class: Id, name: &str, is_operand: impl Fn(Id, Id) -> bool) -> Vec<Id> {
    if look.plain(class, "mul").is_empty() && look.plain(class, "add").is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for gate in variables(look, class) {
        for u in look.unary(gate, name) {
            let is_x = |&x: &Id| {
                let half = || polynomial(look, class, x, Some(gate));
                is_operand(u, x) && half().is_some_and(|half| half.is(&[([1, 0], 0.5), ([1, 1], 0.5)]))
            };
            found.extend(variables(look, u).into_iter().find(is_x));
        }
    }
    found
}

/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`
fn gelu(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let slope = FRAC_2_PI.sqrt();
    let is_operand =
        |u, x| polynomial(look, u, x, None).is_some_and(|u| u.is(&[([1, 0], slope), ([3, 0], slope * 0.044_715)]));
    gated(look, class, "tanh", is_operand).into_iter().filter_map(|x| equal(look, class, "gelu", x)).collect()
}

/// `x / 2 (1 + erf(x / sqrt(2)))`
fn gelu_erf(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let is_operand = |u, x| polynomial(look, u, x, None).is_some_and(|u| u.is(&[([1, 0], FRAC_1_SQRT_2)]));
    gated(look, class, "erf", is_operand).into_iter().filter_map(|x| equal(look, class, "gelu_erf", x)).collect()
}

/// `square(max(x, 0))`
fn relu_squared(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let relu = look.unary(class, "square").into_iter().flat_map(|relu| look.with_number(relu, "max"));
    let x = relu.filter(|(_, number)| *number == 0.0).map(|(x, _)| x);
    x.filter_map(|x| equal(look, class, "relu_squared", x)).collect()
}
