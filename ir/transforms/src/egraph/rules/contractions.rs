//! Equalities of contractions: moves of operands and results become other indices.

use super::algebra::with_number;
use super::moves::{reshaped, reshapes, spreads};
use crate::egraph::language::{Contraction, Node, NodeKind, Spread, UNITS, merged, units};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) const RULES: [Rule; 10] = [
    Rule { name: "permute-of-einsum", rounding: Rounding::Exact, find: permuted_result },
    Rule { name: "einsum-of-permute", rounding: Rounding::Exact, find: permuted_operand },
    Rule { name: "einsum-of-permuted-sum", rounding: Rounding::Reorders, find: permuted_sum },
    Rule { name: "einsum-of-broadcast", rounding: Rounding::Exact, find: repeated_operand },
    Rule { name: "einsum-of-reshape", rounding: Rounding::Exact, find: merged_operand },
    Rule { name: "einsum-of-units", rounding: Rounding::Exact, find: sums_nothing },
    Rule { name: "sum-of-product", rounding: Rounding::Fewer, find: summed_product },
    Rule { name: "einsum-is-sum", rounding: Rounding::Reorders, find: product_summed },
    Rule { name: "einsum-of-scale", rounding: Rounding::Reorders, find: scaled_operand },
    Rule { name: "einsum-common-factor", rounding: Rounding::Reorders, find: common_factor },
];

fn einsums<'a>(look: &Look<'a>, class: Id) -> impl Iterator<Item = (&'a Contraction, [Id; 2])> + use<'a> {
    look.nodes(class).filter_map(|node| match &node.kind {
        NodeKind::Einsum(contraction) => Some((contraction, [node.operands[0], node.operands[1]])),
        _ => None,
    })
}

fn einsum(operands: [(&[usize], Term); 2], result: &[usize]) -> Term {
    let [(a, x), (b, y)] = operands;
    Term::Node(NodeKind::Einsum(Contraction::numbered([a, b], result)), vec![x, y])
}

/// The einsum with another operand at a place.
fn with_operand(contraction: &Contraction, operands: [Id; 2], side: usize, indices: &[usize], x: Term) -> Term {
    let other = (contraction.indices(1 - side), Term::Class(operands[1 - side]));
    let pair = if side == 0 {
        [(indices, x), (other.0.as_slice(), other.1)]
    } else {
        [(other.0.as_slice(), other.1), (indices, x)]
    };
    einsum(pair, &contraction.results())
}

/// `permute(einsum(a, b)) = einsum(a, b)`
fn permuted_result(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (spread, middle) in spreads(look, class).filter(|(spread, _)| spread.is_permutation()) {
        for (contraction, [a, b]) in einsums(look, middle) {
            let mut result = vec![0; spread.places.len()];
            spread.places.iter().zip(contraction.results()).for_each(|(&place, index)| result[place] = index);
            let operands = [(contraction.indices(0), a), (contraction.indices(1), b)];
            let [a, b] = operands.each_ref().map(|(indices, x)| (indices.as_slice(), Term::Class(*x)));
            found.push(Equal { class, term: einsum([a, b], &result) });
        }
    }
    found
}

/// The einsums of which an operand is a permutation, and whether the order of summed indices stays.
fn permuted(look: &Look<'_>, class: Id) -> Vec<(bool, Equal)> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        for side in [0, 1] {
            for (spread, x) in spreads(look, operands[side]).filter(|(spread, _)| spread.is_permutation()) {
                let own = contraction.indices(side);
                let indices: Vec<usize> = spread.places.iter().map(|&place| own[place]).collect();
                let summed = |indices: &[usize]| -> Vec<usize> {
                    let results = contraction.results();
                    indices.iter().copied().filter(|index| !results.contains(index)).collect()
                };
                let stays = summed(&own) == summed(&indices);
                let term = with_operand(contraction, operands, side, &indices, Term::Class(x));
                found.push((stays, Equal { class, term }));
            }
        }
    }
    found
}

/// `einsum(permute(a), b) = einsum(a, b)`, where summed indices keep their order.
fn permuted_operand(look: &Look<'_>, class: Id) -> Vec<Equal> {
    permuted(look, class).into_iter().filter(|(stays, _)| *stays).map(|(_, equal)| equal).collect()
}

/// `einsum(permute(a), b) = einsum(a, b)`, where summed indices get another order.
fn permuted_sum(look: &Look<'_>, class: Id) -> Vec<Equal> {
    permuted(look, class).into_iter().filter(|(stays, _)| !*stays).map(|(_, equal)| equal).collect()
}

/// `einsum(broadcast(a), b) = einsum(a, b)`, where `b` and the result have the new indices.
fn repeated_operand(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        for side in [0, 1] {
            let (own, other) = (contraction.indices(side), contraction.indices(1 - side));
            for (spread, x) in spreads(look, operands[side]).filter(|(spread, _)| !spread.is_permutation()) {
                let mut new = (0..own.len()).filter(|place| !spread.places.contains(place)).map(|place| own[place]);
                if new.all(|index| other.contains(&index) && contraction.results().contains(&index)) {
                    let indices: Vec<usize> = spread.places.iter().map(|&place| own[place]).collect();
                    let term = with_operand(contraction, operands, side, &indices, Term::Class(x));
                    found.push(Equal { class, term });
                }
            }
        }
    }
    found
}

/// The sizes of the dims that a reshape merges to an index.
type Parts = BTreeMap<usize, Vec<u64>>;

/// An operand as it is, and before each reshape that merges dims.
fn unmerged(look: &Look<'_>, operand: Id) -> Vec<(Id, Vec<Range<usize>>)> {
    let to = &look.shape(operand).sizes;
    let own = (0..to.len()).map(|dim| dim..dim + 1).collect();
    let before = reshapes(look, operand).filter_map(|x| merged(&look.shape(x).sizes, to).map(|groups| (x, groups)));
    [(operand, own)].into_iter().chain(before).collect()
}

/// The operands of an einsum before reshapes that merge the same dims of an index of both, and the sizes of these dims.
fn split(look: &Look<'_>, contraction: &Contraction, operands: [Id; 2]) -> Vec<([Id; 2], Parts)> {
    let mut found = Vec::new();
    for (a, first) in unmerged(look, operands[0]) {
        for (b, second) in unmerged(look, operands[1]) {
            let mut parts = Parts::new();
            let sides = [(0, a, &first), (1, b, &second)];
            let agrees = sides.iter().all(|&(side, x, groups)| {
                contraction.indices(side).into_iter().zip(groups).all(|(index, group)| {
                    let sizes = look.shape(x).sizes[group.clone()].to_vec();
                    *parts.entry(index).or_insert_with(|| sizes.clone()) == sizes
                })
            });
            parts.retain(|_, sizes| sizes.len() > 1);
            if agrees && !parts.is_empty() {
                found.push(([a, b], parts));
            }
        }
    }
    found
}

/// `einsum(reshape(a), reshape(b)) = reshape(einsum(a, b))` where the reshapes merge dims, the same ones of an index of both.
fn merged_operand(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        for (sources, parts) in split(look, contraction, operands) {
            let new: usize =
                contraction.results().iter().filter_map(|index| parts.get(index)).map(|sizes| units(sizes)).sum();
            if new > 0 && new + units(&look.shape(class).sizes) > UNITS {
                continue;
            }
            // Each index and the number of its part.
            let expanded = |indices: Vec<usize>| -> Vec<usize> {
                let part = |index: usize| (0..parts.get(&index).map_or(1, Vec::len)).map(move |part| 64 * index + part);
                indices.into_iter().flat_map(part).collect()
            };
            let [a, b] = [0, 1].map(|side| expanded(contraction.indices(side)));
            let term = einsum(
                [(a.as_slice(), Term::Class(sources[0])), (b.as_slice(), Term::Class(sources[1]))],
                &expanded(contraction.results()),
            );
            let is_merged = contraction.results().iter().any(|index| parts.contains_key(index));
            let to = NodeKind::Reshape(look.shape(class).sizes.clone());
            found.push(Equal { class, term: if is_merged { Term::Node(to, vec![term]) } else { term } });
        }
    }
    found
}

/// `einsum(a, b) = a b`, where views of an operand insert all summed dims.
fn sums_nothing(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        let results = contraction.results();
        let is_new = |index: usize| {
            [0, 1].into_iter().any(|side| {
                let place = contraction.indices(side).into_iter().position(|other| other == index);
                let inserts = |place| {
                    let mut views = spreads(look, operands[side]).filter(|(spread, _)| spread.is_view());
                    views.any(|(spread, _)| !spread.places.contains(&place))
                };
                place.is_some_and(inserts)
            })
        };
        // The operand without its summed dims, spread to the result; none if one of these is not new.
        let repeated = |side: usize| -> Option<Term> {
            let sizes = &look.shape(operands[side]).sizes;
            let (mut places, mut kept) = (Vec::new(), Vec::new());
            for (index, &size) in contraction.indices(side).into_iter().zip(sizes) {
                match results.iter().position(|result| *result == index) {
                    Some(place) => {
                        places.push(place);
                        kept.push(size);
                    }
                    None if size == 1 && is_new(index) => {}
                    None => return None,
                }
            }
            let spread = Spread { places, sizes: look.shape(class).sizes.clone() };
            Some(reshaped(look, operands[side], &kept).spread(spread))
        };
        if let (Some(a), Some(b)) = (repeated(0), repeated(1)) {
            found.push(Equal { class, term: Term::plain(PlainOp::Mul, [a, b]) });
        }
    }
    found
}

/// A class as it is, and the classes that it repeats.
fn sources(look: &Look<'_>, class: Id) -> Vec<(Vec<usize>, Id)> {
    let own: Vec<usize> = (0..look.shape(class).rank()).collect();
    let repeated = spreads(look, class).map(|(Spread { places, .. }, x)| (places.clone(), x));
    [(own, class)].into_iter().chain(repeated).collect()
}

/// `sum(a b) = einsum(a, b)`, where both operands have all indices that are summed.
fn summed_product(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for node in look.nodes(class) {
        let NodeKind::Reduce { is_max: false, over } = &node.kind else { continue };
        let rank = look.shape(node.operands[0]).rank();
        let kept: Vec<usize> = (0..rank).filter(|dim| !over.contains(dim)).collect();
        let is_product = |node: &&Node| matches!(node.kind, NodeKind::Plain(PlainOp::Mul));
        for product in look.nodes(node.operands[0]).filter(is_product) {
            for (a, x) in sources(look, product.operands[0]) {
                for (b, y) in sources(look, product.operands[1]) {
                    let is_constant = [x, y].iter().any(|&x| look.number(x).is_some());
                    let sums_both = over.iter().all(|dim| a.contains(dim) && b.contains(dim));
                    if sums_both && !is_constant && kept.iter().all(|dim| a.contains(dim) || b.contains(dim)) {
                        let operands = [(a.as_slice(), Term::Class(x)), (b.as_slice(), Term::Class(y))];
                        found.push(Equal { class, term: einsum(operands, &kept) });
                    }
                }
            }
        }
    }
    found
}

/// `einsum(a, b) = sum(a b)`, where both operands have the same indices and the result keeps their order.
fn product_summed(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        let (own, results) = (contraction.indices(0), contraction.results());
        let kept = own.iter().filter(|index| results.contains(index));
        if contraction.indices(1) == own && kept.eq(&results) {
            let over = (0..own.len()).filter(|&dim| !results.contains(&own[dim])).collect();
            let product = Term::plain(PlainOp::Mul, operands.map(Term::Class));
            let term = Term::Node(NodeKind::Reduce { is_max: false, over }, vec![product]);
            found.push(Equal { class, term });
        }
    }
    found
}

/// `einsum(a c, b) = einsum(a, b) c`
fn scaled_operand(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        for side in [0, 1] {
            for (x, number) in with_number(look, operands[side], PlainOp::Mul) {
                let product = with_operand(contraction, operands, side, &contraction.indices(side), Term::Class(x));
                let term = Term::plain(PlainOp::Mul, [product, Term::full(number, look.shape(class))]);
                found.push(Equal { class, term });
            }
        }
    }
    found
}

/// `einsum(a, w) + einsum(b, w) = einsum(a + b, w)`
fn common_factor(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for node in look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Plain(PlainOp::Add))) {
        for (contraction, first) in einsums(look, node.operands[0]) {
            for (other, second) in einsums(look, node.operands[1]) {
                for side in [0, 1] {
                    let is_same = other == contraction && look.is_same(first[1 - side], second[1 - side]);
                    if is_same && !look.is_same(first[side], second[side]) {
                        let sum = Term::plain(PlainOp::Add, [Term::Class(first[side]), Term::Class(second[side])]);
                        let term = with_operand(contraction, first, side, &contraction.indices(side), sum);
                        found.push(Equal { class, term });
                    }
                }
            }
        }
    }
    found
}
