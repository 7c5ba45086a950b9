//! `rms_norm`, `layer_norm` and `softmax`, over the last dim.

use crate::egraph::language::{Made, NodeKind, Number, Shape};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(super) const RULES: [Rule; 3] = [
    Rule { name: "rms_norm", rounding: Rounding::Reorders, find: rms_norm },
    Rule { name: "layer_norm", rounding: Rounding::Reorders, find: layer_norm },
    Rule { name: "softmax", rounding: Rounding::Reorders, find: softmax },
];

/// Factors along the last dim.
#[derive(Clone, Copy)]
enum Gain {
    /// A tensor of one dim.
    Column(Id),
    /// A number that all elements have.
    Number(f64),
}

impl Gain {
    /// The operand of an op on rows of this shape; `None` if it has another element type.
    fn term(self, look: &Look<'_>, rows: &Shape) -> Option<Term> {
        match self {
            Gain::Column(id) => look.in_dtype(id, rows.dtype).map(Term::Class),
            Gain::Number(number) => Some(Term::full(number, &rows.resized(vec![*rows.sizes.last()?]))),
        }
    }
}

/// A class written as the product of rows, their reciprocal deviations, and gains along the last dim.
struct Normed {
    /// The rows whose squares have a mean.
    x: Id,
    /// Added to the mean square.
    eps: f64,
    /// The reciprocal root of the mean square, per row.
    rstd: Id,
    /// The gains.
    gain: Gain,
}

fn normed(look: &Look<'_>, class: Id) -> Vec<Normed> {
    let mut found = Vec::new();
    for (factors, scale) in look.products(class) {
        match *factors.as_slice() {
            [a, b] => {
                found.extend(divided(look, a, b, &[Gain::Number(scale)]));
                found.extend(divided(look, b, a, &[Gain::Number(scale)]));
            }
            [_, _, _] if scale == 1.0 => {
                for [x, row, column] in orders(&factors) {
                    let gains: Vec<Gain> = look.columns(column).into_iter().map(Gain::Column).collect();
                    found.extend(divided(look, x, row, &gains));
                }
            }
            _ => {}
        }
    }
    found
}

/// The products of `x` with the reciprocals of its deviations, which the rows of a class are, and with each gain.
fn divided(look: &Look<'_>, x: Id, row: Id, gains: &[Gain]) -> Vec<Normed> {
    let mut found = Vec::new();
    for rstd in look.rows(row) {
        let deviations = deviations(look, rstd).into_iter().filter(|(y, _)| look.is_same_source(*y, x));
        found.extend(deviations.flat_map(|(_, eps)| gains.iter().map(move |&gain| Normed { x, eps, rstd, gain })));
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
    let shifted = look.unary(class, PlainOp::Rsqrt).into_iter().flat_map(|sum| look.with_number(sum, PlainOp::Add));
    let squares = shifted.flat_map(|(mean, eps)| look.means(mean).into_iter().map(move |square| (square, eps)));
    squares.flat_map(|(square, eps)| look.unary(square, PlainOp::Square).into_iter().map(move |x| (x, eps))).collect()
}

/// The f32 class of statistics of rows equals a result of the op.
fn statistic(look: &Look<'_>, class: Id, op: &Term, place: usize) -> Option<Equal> {
    let shape = look.shape(class);
    (shape.dtype == DType::F32).then(|| Equal { class, term: op.out(place, shape.clone()) })
}

/// `x rstd gamma`, or without gains
fn rms_norm(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    let mut found = Vec::new();
    for Normed { x, eps, rstd, gain } in normed(look, class) {
        let (Some(x), Some(gamma)) = (look.in_dtype(x, shape.dtype), gain.term(look, shape)) else { continue };
        let op = Term::Node(NodeKind::Made(Made::RmsNorm(Number::new(eps))), vec![Term::Class(x), gamma]);
        found.push(Equal { class, term: op.out(0, shape.clone()) });
        found.extend(statistic(look, rstd, &op, 1));
    }
    found
}

/// `(x - mean) rstd gamma + beta`, or without gains or shifts
fn layer_norm(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    let mut shifted = vec![(class, Gain::Number(0.0))];
    for (scaled, shift) in look.either(class, PlainOp::Add) {
        shifted.extend(look.columns(shift).into_iter().map(|beta| (scaled, Gain::Column(beta))));
    }
    let mut found = Vec::new();
    for (scaled, beta) in shifted {
        for Normed { x: centred, eps, rstd, gain } in normed(look, scaled) {
            for (x, mean) in centred_on_mean(look, centred) {
                let operands =
                    [look.in_dtype(x, shape.dtype).map(Term::Class), gain.term(look, shape), beta.term(look, shape)];
                let Some(operands) = operands.into_iter().collect::<Option<Vec<_>>>() else { continue };
                let op = Term::Node(NodeKind::Made(Made::LayerNorm(Number::new(eps))), operands);
                found.push(Equal { class, term: op.out(0, shape.clone()) });
                found.extend(statistic(look, mean, &op, 1));
                found.extend(statistic(look, rstd, &op, 2));
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
    let mut found = Vec::new();
    for (x, max) in look.difference(class) {
        let mut rows = look.rows(max).into_iter().flat_map(|row| look.reduced_last(row, true));
        if rows.any(|y| look.is_same_source(x, y)) {
            found.push(x);
        }
    }
    found
}

/// `e recip(sum(e))` with `e = exp(x - max(x))`
fn softmax(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    let mut found = Vec::new();
    for (exp, share) in look.either(class, PlainOp::Mul) {
        let sums = look.rows(share).into_iter().flat_map(|row| look.unary(row, PlainOp::Recip));
        let mut sums = sums.flat_map(|sum| look.reduced_last(sum, false));
        if !sums.any(|other| look.is_same_source(exp, other)) {
            continue;
        }
        let x = look.unary(exp, PlainOp::Exp).into_iter().flat_map(|shifted| below_max(look, shifted));
        let x = x.filter_map(|x| look.in_dtype(x, shape.dtype));
        found.extend(x.map(|x| Equal { class, term: Term::plain(PlainOp::Softmax, [Term::Class(x)]) }));
    }
    found
}
