//! `rms_norm`, `layer_norm` and `softmax`, over the last dim.

use crate::egraph::language::{Made, Number};
use crate::egraph::look::Look;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(super) const RULES: [Rule; 3] = [
    Rule { name: "rms_norm", rounding: Rounding::Reorders, find: rms_norm },
    Rule { name: "layer_norm", rounding: Rounding::Reorders, find: layer_norm },
    Rule { name: "softmax", rounding: Rounding::Reorders, find: softmax },
];

/// A class written as the product of rows, their reciprocal deviations, and gains along the last dim.
struct Normed {
    /// The rows whose squares have a mean.
    x: Id,
    /// Added to the mean square.
    eps: f64,
    /// The reciprocal root of the mean square, per row.
    rstd: Id,
    /// The gains.
    gamma: Id,
}

fn normed(look: &Look<'_>, class: Id) -> Vec<Normed> {
    let mut found = Vec::new();
    let products = look.products(class).into_iter().filter(|(factors, scale)| factors.len() == 3 && *scale == 1.0);
    for (factors, _) in products {
        for [x, row, column] in orders(&factors) {
            for rstd in look.rows(row) {
                let deviations = deviations(look, rstd).into_iter().filter(|(y, _)| look.is_same_source(*y, x));
                let gains = look.columns(column);
                found.extend(
                    deviations.flat_map(|(_, eps)| gains.iter().map(move |&gamma| Normed { x, eps, rstd, gamma })),
                );
            }
        }
    }
    found
}

/// The orders of three factors.
fn orders(factors: &[Id]) -> Vec<[Id; 3]> {
    let places = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    places.map(|order| order.map(|place| factors[place])).to_vec()
}

/// The classes `x`, and `eps`, of which the class is `rsqrt(mean(x^2) + eps)`.
fn deviations(look: &Look<'_>, class: Id) -> Vec<(Id, f64)> {
    let shifted = look.unary(class, "rsqrt").into_iter().flat_map(|sum| look.with_number(sum, "add"));
    let squares = shifted.flat_map(|(mean, eps)| look.means(mean).into_iter().map(move |square| (square, eps)));
    squares.flat_map(|(square, eps)| look.unary(square, "square").into_iter().map(move |x| (x, eps))).collect()
}

/// The f32 class of statistics of rows equals a result of the op.
fn statistic(look: &Look<'_>, class: Id, op: &Term, place: usize) -> Option<Equal> {
    let shape = look.shape(class);
    (shape.dtype == DType::F32).then(|| Equal { class, term: op.out(place, shape.clone()) })
}

/// `x rstd gamma`
fn rms_norm(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    let mut found = Vec::new();
    for Normed { x, eps, rstd, gamma } in normed(look, class) {
        let own = |id| look.in_dtype(id, shape.dtype);
        let (Some(x), Some(gamma)) = (own(x), own(gamma)) else { continue };
        let op = Term::made(Made::RmsNorm(Number::new(eps)), &[x, gamma]);
        found.push(Equal { class, term: op.out(0, shape.clone()) });
        found.extend(statistic(look, rstd, &op, 1));
    }
    found
}

/// `(x - mean) rstd gamma + beta`
fn layer_norm(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    let mut found = Vec::new();
    for (scaled, shift) in look.either(class, "add") {
        let betas = look.columns(shift);
        if betas.is_empty() {
            continue;
        }
        for Normed { x: centred, eps, rstd, gamma } in normed(look, scaled) {
            for (x, mean) in centred_on_mean(look, centred) {
                for &beta in &betas {
                    let own = |id| look.in_dtype(id, shape.dtype);
                    let (Some(x), Some(gamma), Some(beta)) = (own(x), own(gamma), own(beta)) else { continue };
                    let op = Term::made(Made::LayerNorm(Number::new(eps)), &[x, gamma, beta]);
                    found.push(Equal { class, term: op.out(0, shape.clone()) });
                    found.extend(statistic(look, mean, &op, 1));
                    found.extend(statistic(look, rstd, &op, 2));
                }
            }
        }
    }
    found
}

/// The rows, and their mean, of which the class is the difference.
fn centred_on_mean(look: &Look<'_>, class: Id) -> Vec<(Id, Id)> {
    let differences = look.difference(class).into_iter();
    let rows = differences.flat_map(|(x, mean)| look.rows(mean).into_iter().map(move |mean| (x, mean)));
    rows.filter(|&(x, mean)| look.means(mean).into_iter().any(|y| look.is_same_source(x, y))).collect()
}

/// The rows from which the class subtracts their maximum.
pub(super) fn below_max(look: &Look<'_>, class: Id) -> Vec<Id> {
    let differences = look.difference(class).into_iter();
    let is_max = |&(x, max): &(Id, Id)| {
        let rows = look.rows(max).into_iter().flat_map(|row| look.reduced_last(row, true));
        rows.into_iter().any(|y| look.is_same_source(x, y))
    };
    differences.filter(is_max).map(|(x, _)| x).collect()
}

/// `e recip(sum(e))` with `e = exp(x - max(x))`
fn softmax(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    let mut found = Vec::new();
    for (exp, share) in look.either(class, "mul") {
        let sums = look.rows(share).into_iter().flat_map(|row| look.unary(row, "recip"));
        let mut sums = sums.flat_map(|sum| look.reduced_last(sum, false));
        if !sums.any(|other| look.is_same_source(exp, other)) {
            continue;
        }
        let x = look.unary(exp, "exp").into_iter().flat_map(|shifted| below_max(look, shifted));
        let x = x.filter_map(|x| look.in_dtype(x, shape.dtype));
        found.extend(x.map(|x| Equal { class, term: Term::plain("softmax", [Term::Class(x)]) }));
    }
    found
}
