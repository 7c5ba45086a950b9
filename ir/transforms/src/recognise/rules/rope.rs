//! `rope` in the rotate-half convention, its frequencies computed as powers of a base.

use super::embedding::is_count;
use crate::egraph::language::{Made, Node, NodeKind, Number, Spread};
use crate::egraph::look::{Look, is_near};
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(super) const RULES: [Rule; 2] = [
    Rule { name: "rope", rounding: Rounding::Reorders, find: rotated_whole },
    Rule { name: "rope-of-halves", rounding: Rounding::Reorders, find: rotated_halves },
];

/// The positions, their places among the dims of the rotated tensor, and the base of the frequencies.
#[derive(Clone, PartialEq)]
struct Angles {
    positions: Id,
    places: Vec<usize>,
    theta: f64,
}

/// Two classes that are halves of another, along its last dim.
#[derive(Clone, Copy)]
struct Halves {
    first: Id,
    second: Id,
}

/// `x cos + rotate_half(x) sin`
fn rotated_whole(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (first, second) in look.either(class, PlainOp::Add) {
        for (x, cos) in look.either(first, PlainOp::Mul) {
            let cosines = angles(look, cos, PlainOp::Cos, true);
            for (turned, sin) in look.either(second, PlainOp::Mul) {
                if cosines.is_empty() || !half_turns(look, turned).iter().any(|&y| look.is_same_source(x, y)) {
                    continue;
                }
                let sines = angles(look, sin, PlainOp::Sin, true);
                let common = cosines.iter().filter(|angle| sines.contains(angle));
                found.extend(common.filter_map(|angle| equal(look, class, x, angle)));
            }
        }
    }
    found
}

/// `concat(x1 cos - x2 sin, x2 cos + x1 sin)` with the halves `x1` and `x2` of `x`
fn rotated_halves(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for Halves { first, second } in halves(look, class) {
        for (a, b) in look.difference(first) {
            for (c, d) in look.either(second, PlainOp::Add) {
                for (x, angle) in turned(look, a, b) {
                    let same = turned(look, c, d).into_iter().any(|(y, other)| {
                        look.is_same(y.first, x.second) && look.is_same(y.second, x.first) && other == angle
                    });
                    let whole = same.then(|| whole(look, x)).flatten();
                    found.extend(whole.and_then(|x| equal(look, class, x, &angle)));
                }
            }
        }
    }
    found
}

/// `a cos` and `b sin` of the same angles.
fn turned(look: &Look<'_>, a: Id, b: Id) -> Vec<(Halves, Angles)> {
    let mut found = Vec::new();
    for (x, cos) in look.either(a, PlainOp::Mul) {
        let cosines = angles(look, cos, PlainOp::Cos, false);
        if cosines.is_empty() {
            continue;
        }
        for (y, sin) in look.either(b, PlainOp::Mul) {
            let sines = angles(look, sin, PlainOp::Sin, false);
            let common = cosines.iter().filter(|angle| sines.contains(angle));
            found.extend(common.map(|angle| (Halves { first: x, second: y }, angle.clone())));
        }
    }
    found
}

/// The parts of a concatenation of two along the last dim.
fn halves(look: &Look<'_>, class: Id) -> Vec<Halves> {
    let last = look.shape(class).rank().saturating_sub(1);
    look.kinds(class, |node: &Node| match (&node.kind, node.operands.as_slice()) {
        (NodeKind::Concat(dim), &[first, second]) if *dim == last => Some(Halves { first, second }),
        _ => None,
    })
}

/// The class whose halves along the last dim the classes are.
fn whole(look: &Look<'_>, Halves { first, second }: Halves) -> Option<Id> {
    let all = sliced(look, second, 1);
    let length = last_size(look, first);
    sliced(look, first, 0)
        .into_iter()
        .find(|&x| last_size(look, x) == 2 * length && all.iter().any(|&y| look.is_same_source(x, y)))
}

fn last_size(look: &Look<'_>, class: Id) -> u64 {
    look.shape(class).sizes.last().copied().unwrap_or(0)
}

/// The classes of which the class is the first half along the last dim (0), or the second (1).
fn sliced(look: &Look<'_>, class: Id, half: u64) -> Vec<Id> {
    let last = look.shape(class).rank() - 1;
    let length = look.shape(class).sizes[last];
    look.kinds(class, move |node: &Node| match node.kind {
        NodeKind::Slice(dim, start, size) if (dim, start, size) == (last, half * length, length) => {
            Some(node.operands[0])
        }
        _ => None,
    })
}

/// The classes `x` of which the class is `concat(-x2, x1)`.
fn half_turns(look: &Look<'_>, class: Id) -> Vec<Id> {
    let mut found = Vec::new();
    for Halves { first, second } in halves(look, class) {
        let negatives = look.unary(first, PlainOp::Neg).into_iter();
        found.extend(negatives.filter_map(|negative| whole(look, Halves { first: second, second: negative })));
    }
    found
}

/// The angles whose cosine or sine the class is. In the whole tensor both halves of the last dim have the same angles.
fn angles(look: &Look<'_>, class: Id, op: PlainOp, is_whole: bool) -> Vec<Angles> {
    let sizes = look.shape(class).sizes.clone();
    let identity = Spread { places: (0..sizes.len()).collect(), sizes };
    let mut spreads = vec![(identity, class)];
    spreads.extend(look.spreads(class).into_iter().map(|(spread, x)| (spread.clone(), x)));
    let last = look.shape(class).rank().saturating_sub(1);
    let mut found = Vec::new();
    for (spread, function) in spreads.into_iter().filter(|(spread, _)| spread.places.last() == Some(&last)) {
        let angle: Vec<Id> = if is_whole {
            let inside = look.unary(function, op).into_iter().flat_map(|angle| repeated(look, angle));
            inside.chain(repeated(look, function).into_iter().flat_map(|half| look.unary(half, op))).collect()
        } else {
            look.unary(function, op)
        };
        found.extend(angle.into_iter().flat_map(|angle| of_positions(look, angle, &spread)));
    }
    found
}

/// The classes of which both halves of the class along the last dim are.
fn repeated(look: &Look<'_>, class: Id) -> Vec<Id> {
    let halves = halves(look, class).into_iter();
    halves.filter(|halves| look.is_same(halves.first, halves.second)).map(|halves| halves.first).collect()
}

/// Angles that are positions times powers of a base, as `f32[.., d / 2]` whose dims have places in the rotated tensor.
fn of_positions(look: &Look<'_>, angle: Id, outer: &Spread) -> Vec<Angles> {
    let mut found = Vec::new();
    for (along, across) in look.either(angle, PlainOp::Mul) {
        for theta in look.columns(across).into_iter().filter_map(|column| base(look, column)) {
            for (spread, positions) in look.spreads(along) {
                let Some(positions) = look.in_dtype(positions, DType::I32) else { continue };
                let places = spread.places.iter().map(|&place| outer.places[place]).collect();
                found.push(Angles { positions, places, theta });
            }
        }
    }
    found
}

/// The base of the frequencies `base^(-i / n)` of a vector of `n`.
fn base(look: &Look<'_>, class: Id) -> Option<f64> {
    let n = *look.shape(class).sizes.first()? as f64;
    let mut reciprocals = look.unary(class, PlainOp::Recip).into_iter();
    let slope = slope(look, class).or_else(|| reciprocals.find_map(|exp| slope(look, exp)).map(|slope| -slope))?;
    let theta = (-slope * n).exp();
    let whole = theta.round();
    (theta > 1.0 && theta.is_finite()).then_some(if is_near(theta, whole) { whole } else { theta })
}

/// The factor `a` of a vector `e^(a i)`.
fn slope(look: &Look<'_>, exp: Id) -> Option<f64> {
    let steps = look.unary(exp, PlainOp::Exp).into_iter().flat_map(|power| {
        let negatives = look.unary(power, PlainOp::Neg).into_iter().flat_map(|x| look.with_number(x, PlainOp::Mul));
        look.with_number(power, PlainOp::Mul).into_iter().chain(negatives.map(|(x, by)| (x, -by)))
    });
    let counted = steps.into_iter().find(|(x, _)| look.in_dtype(*x, DType::I32).is_some_and(|x| is_count(look, x)));
    counted.map(|(_, by)| by)
}

/// The op equals the class. Its operand has the dims of the positions in front.
fn equal(look: &Look<'_>, class: Id, x: Id, angle: &Angles) -> Option<Equal> {
    let shape = look.shape(class);
    let x = look.in_dtype(x, shape.dtype)?;
    let rank = shape.rank();
    let [batch, sequence] = match *angle.places.as_slice() {
        [batch, sequence] => [batch, sequence],
        [sequence] => [(0..rank).find(|&dim| dim != sequence)?, sequence],
        _ => return None,
    };
    if rank < 3 || batch == rank - 1 || sequence == rank - 1 {
        return None;
    }
    let rest = (0..rank).filter(|dim| ![batch, sequence].contains(dim));
    let order: Vec<usize> = [batch, sequence].into_iter().chain(rest).collect();
    let sizes: Vec<u64> = order.iter().map(|&dim| shape.sizes[dim]).collect();
    let targets = (0..rank).map(|dim| order.iter().position(|other| *other == dim).unwrap_or(dim));
    let there = Spread { places: targets.collect(), sizes: sizes.clone() };
    let places = angle.places.iter().map(|&place| usize::from(place == sequence)).collect();
    let positions = Term::Class(angle.positions).spread(Spread { places, sizes: sizes[..2].to_vec() });
    let op = NodeKind::Made(Made::Rope { theta: Number::new(angle.theta) });
    let turned = Term::Node(op, vec![Term::Class(x).spread(there), positions]);
    Some(Equal { class, term: turned.spread(Spread { places: order, sizes: shape.sizes.clone() }) })
}
