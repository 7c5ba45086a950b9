//! Equalities of ops that move elements: conversions, spreads and reshapes. Elementwise ops happen before a spread.

use crate::egraph::language::{Node, NodeKind, Spread, UNITS, merged, units};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(crate) const RULES: [Rule; 11] = [
    Rule { name: "cast-back", rounding: Rounding::Exact, find: cast_back },
    Rule { name: "cast-cast", rounding: Rounding::Exact, find: cast_widened },
    Rule { name: "spread-of-view", rounding: Rounding::Exact, find: views },
    Rule { name: "view-of-spread", rounding: Rounding::Exact, find: view_apart },
    Rule { name: "spread-of-reshape", rounding: Rounding::Exact, find: spread_merged },
    Rule { name: "spread-spread", rounding: Rounding::Exact, find: spread_twice },
    Rule { name: "reshape-spread", rounding: Rounding::Exact, find: drops_ones },
    Rule { name: "reshape-reshape", rounding: Rounding::Exact, find: reshape_twice },
    Rule { name: "spread-after-elementwise", rounding: Rounding::Exact, find: spread_later },
    Rule { name: "reshape-after-elementwise", rounding: Rounding::Exact, find: reshape_later },
    Rule { name: "scale-after-permute", rounding: Rounding::Exact, find: scale_later },
];

/// A conversion to a wider type and back.
fn cast_back(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let to = look.shape(class).dtype;
    let casts = look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Cast(_)));
    let back = |node: &Node| look.in_dtype(node.operands[0], to).map(|x| Equal { class, term: Term::Class(x) });
    casts.filter_map(back).collect()
}

/// The spreads in a class itself.
pub(crate) fn spreads<'a>(look: &Look<'a>, class: Id) -> impl Iterator<Item = (&'a Spread, Id)> + use<'a> {
    look.nodes(class).filter_map(|node| match &node.kind {
        NodeKind::Spread(spread) => Some((spread, node.operands[0])),
        _ => None,
    })
}

/// The operands of the reshapes in a class itself.
pub(crate) fn reshapes<'a>(look: &Look<'a>, class: Id) -> impl Iterator<Item = Id> + use<'a> {
    look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Reshape(_))).map(|node| node.operands[0])
}

/// A conversion of a conversion to a type that has all values of the operand's.
fn cast_widened(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let to = look.shape(class).dtype;
    let casts = |class| look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Cast(_)));
    let mut found = Vec::new();
    for middle in casts(class).map(|node| node.operands[0]) {
        let by = look.shape(middle).dtype;
        let is_exact = |x: &Id| {
            let from = look.shape(*x).dtype;
            by == DType::F32 && from.is_float() && from.bytes() < 4
        };
        let x = casts(middle).map(|node| node.operands[0]).filter(is_exact);
        found.extend(x.map(|x| Equal { class, term: Term::Node(NodeKind::Cast(to), vec![Term::Class(x)]) }));
    }
    found
}

/// The operand under other sizes.
pub(crate) fn reshaped(look: &Look<'_>, x: Id, to: &[u64]) -> Term {
    let is_same = look.shape(x).sizes == to;
    if is_same { Term::Class(x) } else { Term::Node(NodeKind::Reshape(to.to_vec()), vec![Term::Class(x)]) }
}

/// New dims of one element of a reshape.
fn views(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let middles = spreads(look, class).filter(|(spread, _)| spread.is_view()).flat_map(|(_, x)| reshapes(look, x));
    middles.map(|x| Equal { class, term: reshaped(look, x, &look.shape(class).sizes) }).collect()
}

/// `spread(x) = view(spread(x))` where the spread permutes dims and adds some of one element.
fn view_apart(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (spread, x) in spreads(look, class).filter(|(spread, _)| !spread.places.is_sorted()) {
        let is_new = |place: &usize| spread.sizes[*place] == 1 && !spread.places.contains(place);
        let old: Vec<usize> = (0..spread.sizes.len()).filter(|place| !is_new(place)).collect();
        if old.len() < spread.sizes.len() {
            let places = spread.places.iter().filter_map(|place| old.iter().position(|other| other == place)).collect();
            let sizes = old.iter().map(|&place| spread.sizes[place]).collect();
            let outer = Spread { places: old, sizes: spread.sizes.clone() };
            found.push(Equal { class, term: Term::Class(x).spread(Spread { places, sizes }).spread(outer) });
        }
    }
    found
}

/// `spread(reshape(x)) = reshape(spread(x))` where the reshape merges dims.
fn spread_merged(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (spread, middle) in spreads(look, class).filter(|(spread, _)| !spread.is_view()) {
        // A view of the operand itself would grow without end.
        let is_view = |x: &Id| spreads(look, *x).any(|(spread, y)| spread.is_view() && look.is_same(y, middle));
        for x in reshapes(look, middle).filter(|x| !is_view(x)) {
            let own = &look.shape(x).sizes;
            let Some(groups) = merged(own, &look.shape(middle).sizes) else { continue };
            let (mut places, mut sizes) = (vec![0; own.len()], Vec::new());
            for (place, &size) in spread.sizes.iter().enumerate() {
                match spread.places.iter().position(|&other| other == place) {
                    None => sizes.push(size),
                    Some(dim) => {
                        for from in groups[dim].clone() {
                            places[from] = sizes.len();
                            sizes.push(own[from]);
                        }
                    }
                }
            }
            if units(&sizes) > units(own).max(units(&spread.sizes)).max(UNITS) {
                continue;
            }
            let moved = Term::Class(x).spread(Spread { places, sizes });
            found.push(Equal { class, term: Term::Node(NodeKind::Reshape(spread.sizes.clone()), vec![moved]) });
        }
    }
    found
}

/// `spread(spread(x)) = spread(x)`
fn spread_twice(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let inner = |(outer, middle): (&Spread, Id)| {
        let joined = |(inner, x): (&Spread, Id)| Equal { class, term: Term::Class(x).spread(outer.after(inner)) };
        spreads(look, middle).map(joined).collect::<Vec<_>>()
    };
    spreads(look, class).flat_map(inner).collect()
}

/// A reshape without some dims of one element that a spread has inserted.
fn drops_ones(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let to = &look.shape(class).sizes;
    let dropped = |(spread, x): (&Spread, Id)| {
        let mut kept: Vec<usize> = Vec::new();
        for (place, &size) in spread.sizes.iter().enumerate() {
            if to.get(kept.len()) == Some(&size) {
                kept.push(place);
            } else if size != 1 || spread.places.contains(&place) {
                return None;
            }
        }
        let places = spread.places.iter().filter_map(|place| kept.iter().position(|other| other == place)).collect();
        let inner = Spread { places, sizes: to.clone() };
        (kept.len() == to.len()).then(|| Equal { class, term: Term::Class(x).spread(inner) })
    };
    reshapes(look, class).flat_map(|middle| spreads(look, middle)).filter_map(dropped).collect()
}

/// A reshape of a reshape, or of a tensor with new dims of one element; and one that changes nothing.
fn reshape_twice(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let to = &look.shape(class).sizes;
    let reshaped = |x: Id| Equal { class, term: reshaped(look, x, to) };
    let middles: Vec<Id> = reshapes(look, class).collect();
    let inner = middles.iter().flat_map(|&middle| reshapes(look, middle));
    let inserted = middles.iter().flat_map(|&middle| spreads(look, middle)).filter(|(spread, _)| spread.is_view());
    inner.chain(inserted.map(|(_, x)| x)).chain(middles.iter().copied()).map(reshaped).collect()
}

/// True for ops whose result at a place depends on the operands at this place.
pub(super) fn is_elementwise(node: &Node) -> bool {
    match node.kind {
        NodeKind::Cast(_) => true,
        NodeKind::Plain(op) => ![PlainOp::Softmax, PlainOp::SumExp, PlainOp::Pick, PlainOp::TokenLoss].contains(&op),
        _ => false,
    }
}

/// `f(spread(x), spread(y)) = spread(f(x, y))`, where an operand may be constant.
fn spread_later(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for node in look.nodes(class).filter(|node| is_elementwise(node)) {
        let Some(&varies) = node.operands.iter().find(|&&operand| look.number(operand).is_none()) else { continue };
        for (spread, x) in spreads(look, varies) {
            let before = |&operand: &Id| {
                if let Some(number) = look.number(operand) {
                    return Some(Term::full(number, &look.shape(operand).resized(look.shape(x).sizes.clone())));
                }
                let mut spreads = spreads(look, operand);
                spreads.find(|(other, _)| *other == spread).map(|(_, x)| Term::Class(x))
            };
            if let Some(operands) = node.operands.iter().map(before).collect::<Option<Vec<_>>>() {
                let term = Term::Node(node.kind.clone(), operands).spread(spread.clone());
                found.push(Equal { class, term });
            }
        }
    }
    found
}

/// `f(reshape(x), reshape(y)) = reshape(f(x, y))`, where an operand may be constant.
fn reshape_later(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for node in look.nodes(class).filter(|node| is_elementwise(node)) {
        let Some(&varies) = node.operands.iter().find(|&&operand| look.number(operand).is_none()) else { continue };
        for x in reshapes(look, varies) {
            let sizes = &look.shape(x).sizes;
            let before = |&operand: &Id| {
                if let Some(number) = look.number(operand) {
                    return Some(Term::full(number, &look.shape(operand).resized(sizes.clone())));
                }
                reshapes(look, operand).find(|&x| look.shape(x).sizes == *sizes).map(Term::Class)
            };
            if let Some(operands) = node.operands.iter().map(before).collect::<Option<Vec<_>>>() {
                let to = look.shape(class).sizes.clone();
                found.push(Equal {
                    class,
                    term: Term::Node(NodeKind::Reshape(to), vec![Term::Node(node.kind.clone(), operands)]),
                });
            }
        }
    }
    found
}

/// `permute(x c) = permute(x) c`
fn scale_later(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (spread, scaled) in spreads(look, class).filter(|(spread, _)| spread.places.len() == spread.sizes.len()) {
        for node in look.nodes(scaled).filter(|node| matches!(node.kind, NodeKind::Plain(PlainOp::Mul))) {
            for [x, by] in [[0, 1], [1, 0]].map(|order| order.map(|place| node.operands[place])) {
                if let (None, Some(number)) = (look.number(x), look.number(by)) {
                    let product = [Term::Class(x).spread(spread.clone()), Term::full(number, look.shape(class))];
                    found.push(Equal { class, term: Term::plain(PlainOp::Mul, product) });
                }
            }
        }
    }
    found
}
