//! Masks of attention scores: keys that are later than the query, or of another segment, have a large negative score.

use crate::egraph::language::{NodeKind, Spread};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use egg::Id;
use ir::types::DType;

/// The largest score of a key that counts as hidden: its exponential is 0 in f32 unless all scores of the row are as low.
const HIDDEN: f64 = -1e4;

/// The most masks of one tensor of scores.
const MASKS: usize = 3;

/// An index tensor that a mask compares.
#[derive(Clone, PartialEq)]
pub(super) struct Index {
    /// Its class, i32.
    pub(super) class: Id,
    /// The places of its dims among those of the scores.
    pub(super) places: Vec<usize>,
}

/// A limit of the keys that a query sees.
#[derive(Clone)]
pub(super) enum Limit {
    /// Keys that are not later than the query: the positions of keys and of queries.
    Causal(Index, Index),
    /// Keys with the same number as the query.
    Equal(Index, Index),
}

impl Limit {
    /// True if one of its indices has a dim at a place of the scores.
    pub(super) fn has(&self, place: usize) -> bool {
        let (Limit::Causal(one, other) | Limit::Equal(one, other)) = self;
        one.places.contains(&place) || other.places.contains(&place)
    }
}

/// The ways to write a class as scores under masks, that without masks among them.
pub(super) fn masked(look: &Look<'_>, class: Id) -> Vec<(Id, Vec<Limit>)> {
    let mut all = vec![(class, Vec::new())];
    let mut next = 0;
    while let Some((id, limits)) = all.get(next).cloned() {
        next += 1;
        if limits.len() < MASKS {
            let more = limited(look, id).into_iter();
            all.extend(more.map(|(x, new)| (x, [limits.as_slice(), &new].concat())));
        }
    }
    all
}

/// The ways to write a class as scores under one mask, which may be a product.
fn limited(look: &Look<'_>, class: Id) -> Vec<(Id, Vec<Limit>)> {
    let mut found = Vec::new();
    let whole = identity(look, class);
    for (mask, shown, hidden, is_shown) in selections(look, class) {
        if hidden.is_some_and(|hidden| is_hidden(look, hidden)) {
            found.extend(limits(look, mask, &whole, is_shown).into_iter().map(|limit| (shown, vec![limit])));
        }
    }
    for (scores, bias) in look.either(class, PlainOp::Add) {
        found.extend(biases(look, bias).into_iter().map(|limits| (scores, limits)));
    }
    found
}

/// The dims of a class, each in its own place.
fn identity(look: &Look<'_>, class: Id) -> Spread {
    let sizes = look.shape(class).sizes.clone();
    Spread { places: (0..sizes.len()).collect(), sizes }
}

fn is_hidden(look: &Look<'_>, class: Id) -> bool {
    look.number(class).is_some_and(|number| number <= HIDDEN)
}

/// The mask, both choices, and whether the first is where the mask is not 0, in both orders.
fn selections(look: &Look<'_>, class: Id) -> Vec<(Id, Id, Option<Id>, bool)> {
    let nodes = look.kinds(class, |node| match node.kind {
        NodeKind::Select(not) => Some((not, node.operands.as_slice())),
        _ => None,
    });
    let mut found = Vec::new();
    for (not, operands) in nodes {
        let (mask, a, b) = (operands[0], operands[1], operands.get(2).copied());
        found.push((mask, a, b, !not));
        found.extend(b.map(|b| (mask, b, Some(a), not)));
    }
    found
}

/// The limits of a term that is 0 where a key is visible and a large negative number elsewhere.
fn biases(look: &Look<'_>, class: Id) -> Vec<Vec<Limit>> {
    let mut found = Vec::new();
    for (spread, bias) in unspread(look, class, &identity(look, class)) {
        for (mask, a, b, is_first) in selections(look, bias) {
            if is_hidden(look, a) && b.is_none_or(|b| look.is_number(b, 0.0)) {
                found.extend(limits(look, mask, &spread, !is_first).into_iter().map(|limit| vec![limit]));
            }
        }
        let hiding = look.with_number(bias, PlainOp::Mul).into_iter().filter(|(_, number)| *number <= HIDDEN);
        found.extend(hiding.flat_map(|(mask, _)| limits(look, mask, &spread, false)).map(|limit| vec![limit]));
        found.extend(showing(look, bias).into_iter().flat_map(|mask| all_limits(look, mask, &spread)));
    }
    found
}

/// The masks `m` of which the class is `(1 - m) c` or `(m - 1) (-c)`, with a large negative number `c`.
fn showing(look: &Look<'_>, class: Id) -> Vec<Id> {
    let mut found = Vec::new();
    for (mask, number) in look.with_number(class, PlainOp::Mul) {
        if number <= HIDDEN {
            let visible = look.difference(mask).into_iter().filter(|(one, _)| look.is_number(*one, 1.0));
            found.extend(visible.map(|(_, mask)| mask));
        }
        if -number <= HIDDEN {
            found.extend(
                look.with_number(mask, PlainOp::Add).into_iter().filter(|(_, one)| *one == -1.0).map(|(mask, _)| mask),
            );
        }
    }
    for (scaled, number) in look.with_number(class, PlainOp::Add).into_iter().filter(|(_, number)| *number <= HIDDEN) {
        found.extend(
            look.with_number(scaled, PlainOp::Mul).into_iter().filter(|(_, by)| *by == -number).map(|(mask, _)| mask),
        );
    }
    found
}

/// The limits of a mask of visible keys, or of a product of two such masks.
fn all_limits(look: &Look<'_>, mask: Id, outer: &Spread) -> Vec<Vec<Limit>> {
    let mut found: Vec<Vec<Limit>> = limits(look, mask, outer, true).into_iter().map(|limit| vec![limit]).collect();
    for (spread, product) in unspread(look, mask, outer) {
        for (a, b) in look.binary(product, PlainOp::Mul) {
            for first in limits(look, a, &spread, true) {
                found.extend(limits(look, b, &spread, true).into_iter().map(|second| vec![first.clone(), second]));
            }
        }
    }
    found
}

/// A class whose dims have places in the scores, and the classes that it repeats.
fn unspread(look: &Look<'_>, class: Id, outer: &Spread) -> Vec<(Spread, Id)> {
    let inner = look.spreads(class).into_iter().map(|(spread, x)| (outer.after(spread), x));
    [(outer.clone(), class)].into_iter().chain(inner).collect()
}

/// The limits of a mask whose dims have places in the scores. It is not 0 where keys are visible, or where they are hidden.
fn limits(look: &Look<'_>, mask: Id, outer: &Spread, is_visible: bool) -> Vec<Limit> {
    let mut found = Vec::new();
    for (spread, mask) in unspread(look, mask, outer) {
        if is_visible {
            let causal = compared(look, mask, PlainOp::LessEqual, &spread).into_iter();
            found.extend(causal.map(|(key, query)| Limit::Causal(key, query)));
            let equal = compared(look, mask, PlainOp::Equal, &spread).into_iter();
            found.extend(equal.map(|(a, b)| Limit::Equal(a, b)));
        } else {
            let causal = compared(look, mask, PlainOp::Less, &spread).into_iter();
            found.extend(causal.map(|(query, key)| Limit::Causal(key, query)));
        }
    }
    found
}

/// The indices that a comparison of a mask has on both sides.
fn compared(look: &Look<'_>, mask: Id, op: PlainOp, spread: &Spread) -> Vec<(Index, Index)> {
    let pairs = look.binary(mask, op).into_iter();
    pairs.filter_map(|(a, b)| Some((index(look, a, spread)?, index(look, b, spread)?))).collect()
}

/// An operand of a comparison without the dims along which it repeats.
fn index(look: &Look<'_>, class: Id, outer: &Spread) -> Option<Index> {
    let spreads = look.spreads(class);
    let source = spreads.iter().find(|(_, x)| look.spreads(*x).is_empty()).or(spreads.first());
    let (spread, x) = source.map_or((outer.clone(), class), |&(spread, x)| (outer.after(spread), x));
    Some(Index { class: look.in_dtype(x, DType::I32)?, places: spread.places })
}
