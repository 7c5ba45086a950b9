//! Equalities of contractions: moves of operands and results become other indices.

use super::algebra::with_number;
use super::moves::{reshapes, spreads};
use crate::egraph::language::{Contraction, Node, NodeKind, Spread, merged, units};
use crate::egraph::look::Look;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use std::collections::BTreeMap;

pub(crate) const RULES: [Rule; 8] = [
    Rule { name: "permute-of-einsum", rounding: Rounding::Exact, find: permuted_result },
    Rule { name: "einsum-of-permute", rounding: Rounding::Exact, find: permuted_operand },
    Rule { name: "einsum-of-permuted-sum", rounding: Rounding::Reorders, find: permuted_sum },
    Rule { name: "einsum-of-broadcast", rounding: Rounding::Exact, find: repeated_operand },
    Rule { name: "einsum-of-reshape", rounding: Rounding::Exact, find: merged_operand },
    Rule { name: "sum-of-product", rounding: Rounding::Fewer, find: summed_product },
    Rule { name: "einsum-of-scale", rounding: Rounding::Reorders, find: scaled_operand },
    Rule { name: "einsum-common-factor", rounding: Rounding::Reorders, find: common_factor },
];

/// The most dims of one element that a contraction may get: those of a batch and of a group of heads.
const UNITS: usize = 2;

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

/// The operands of an einsum before their reshapes, and the sizes of the indices that these merge.
fn split(look: &Look<'_>, contraction: &Contraction, operands: [Id; 2]) -> Option<([Id; 2], Parts)> {
    let (mut sources, mut parts) = (operands, Parts::new());
    for side in [0, 1] {
        let to = &look.shape(operands[side]).sizes;
        let groups = |x: Id| merged(&look.shape(x).sizes, to).map(|groups| (x, groups));
        let Some((x, groups)) = reshapes(look, operands[side]).find_map(groups) else { continue };
        sources[side] = x;
        for (index, group) in contraction.indices(side).into_iter().zip(groups) {
            let sizes = look.shape(x).sizes[group].to_vec();
            if sizes.len() > 1 && parts.insert(index, sizes.clone()).is_some_and(|known| known != sizes) {
                return None;
            }
        }
    }
    let is_split = |side: usize| sources[side] != operands[side];
    let agrees =
        |side: usize| is_split(side) || !contraction.indices(side).iter().any(|index| parts.contains_key(index));
    let rank = |side: usize| -> usize {
        contraction.indices(side).iter().map(|index| parts.get(index).map_or(1, Vec::len)).sum()
    };
    let fits = |side: usize| look.shape(sources[side]).rank() == rank(side);
    (!parts.is_empty() && [0, 1].into_iter().all(|side| agrees(side) && fits(side))).then_some((sources, parts))
}

/// `einsum(reshape(a), reshape(b)) = reshape(einsum(a, b))` where the reshapes merge dims, the same ones of an index of both.
fn merged_operand(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        let Some((sources, parts)) = split(look, contraction, operands) else { continue };
        let new =
            contraction.results().iter().filter_map(|index| parts.get(index)).map(|sizes| units(sizes)).sum::<usize>();
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
        let is_product = |node: &&Node| matches!(node.kind, NodeKind::Plain("mul"));
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

/// `einsum(a c, b) = einsum(a, b) c`
fn scaled_operand(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (contraction, operands) in einsums(look, class) {
        for side in [0, 1] {
            for (x, number) in with_number(look, operands[side], "mul") {
                let product = with_operand(contraction, operands, side, &contraction.indices(side), Term::Class(x));
                let term = Term::plain("mul", [product, Term::full(number, look.shape(class))]);
                found.push(Equal { class, term });
            }
        }
    }
    found
}

/// `einsum(a, w) + einsum(b, w) = einsum(a + b, w)`
fn common_factor(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for node in look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Plain("add"))) {
        for (contraction, first) in einsums(look, node.operands[0]) {
            for (other, second) in einsums(look, node.operands[1]) {
                for side in [0, 1] {
                    let is_same = other == contraction && look.is_same(first[1 - side], second[1 - side]);
                    if is_same && !look.is_same(first[side], second[side]) {
                        let sum = Term::plain("add", [Term::Class(first[side]), Term::Class(second[side])]);
                        let term = with_operand(contraction, first, side, &contraction.indices(side), sum);
                        found.push(Equal { class, term });
                    }
                }
            }
        }
    }
    found
}
