//! Equalities of slices and concatenations.

use super::moves::{is_elementwise, spreads};
use crate::egraph::language::{Node, NodeKind, Spread};
use crate::egraph::look::Look;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;

pub(crate) const RULES: [Rule; 7] = [
    Rule { name: "slice-of-all", rounding: Rounding::Exact, find: whole },
    Rule { name: "slice-of-slice", rounding: Rounding::Exact, find: slice_twice },
    Rule { name: "slice-of-concat", rounding: Rounding::Exact, find: part },
    Rule { name: "concat-of-slices", rounding: Rounding::Exact, find: adjacent },
    Rule { name: "slice-of-elementwise", rounding: Rounding::Exact, find: elements },
    Rule { name: "slice-of-spread", rounding: Rounding::Exact, find: repeated },
    Rule { name: "slice-of-einsum", rounding: Rounding::Exact, find: product },
];

/// Slices in a class itself: dim, start, length, operand.
fn slices(look: &Look<'_>, class: Id) -> Vec<(usize, u64, u64, Id)> {
    let slice = |node: &Node| match node.kind {
        NodeKind::Slice(dim, start, length) => Some((dim, start, length, node.operands[0])),
        _ => None,
    };
    look.nodes(class).filter_map(slice).collect()
}

/// Concatenations in a class itself.
fn concats<'a>(look: &Look<'a>, class: Id) -> Vec<(usize, &'a [Id])> {
    let concat = |node: &'a Node| match node.kind {
        NodeKind::Concat(dim) => Some((dim, node.operands.as_slice())),
        _ => None,
    };
    look.nodes(class).filter_map(concat).collect()
}

/// A slice, or the operand if it is all of it.
fn slice(look: &Look<'_>, (dim, start, length): (usize, u64, u64), x: Id) -> Term {
    let is_all = look.shape(x).sizes[dim] == length;
    if is_all { Term::Class(x) } else { Term::Node(NodeKind::Slice(dim, start, length), vec![Term::Class(x)]) }
}

/// A slice of all of a dim.
fn whole(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let all = slices(look, class).into_iter().filter(|&(dim, _, length, x)| look.shape(x).sizes[dim] == length);
    all.map(|(.., x)| Equal { class, term: Term::Class(x) }).collect()
}

/// `slice(slice(x)) = slice(x)` along one dim.
fn slice_twice(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (dim, start, length, middle) in slices(look, class) {
        let inner = slices(look, middle).into_iter().filter(|(other, ..)| *other == dim);
        found.extend(
            inner.map(|(_, before, _, x)| Equal { class, term: slice(look, (dim, before + start, length), x) }),
        );
    }
    found
}

/// A slice that is within a part of a concatenation.
fn part(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (dim, start, length, middle) in slices(look, class) {
        for (_, parts) in concats(look, middle).into_iter().filter(|(other, _)| *other == dim) {
            let mut before = 0;
            for &x in parts {
                let size = look.shape(x).sizes[dim];
                if before <= start && start + length <= before + size {
                    found.push(Equal { class, term: slice(look, (dim, start - before, length), x) });
                }
                before += size;
            }
        }
    }
    found
}

/// A concatenation of slices that follow each other in one tensor.
fn adjacent(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (dim, parts) in concats(look, class) {
        for (_, start, _, x) in slices(look, parts[0]).into_iter().filter(|(other, ..)| *other == dim) {
            let mut end = start;
            let follows = |&part: &Id| {
                let next = slices(look, part).into_iter();
                let next = next.filter(|&(other, from, _, y)| (other, from) == (dim, end) && look.is_same(x, y));
                let length = next.map(|(_, _, length, _)| length).next();
                end += length.unwrap_or(0);
                length.is_some()
            };
            if parts.iter().all(follows) {
                found.push(Equal { class, term: slice(look, (dim, start, end - start), x) });
            }
        }
    }
    found
}

/// `slice(f(x, y)) = f(slice(x), slice(y))`, where an operand may be constant.
fn elements(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (dim, start, length, middle) in slices(look, class) {
        for node in look.nodes(middle).filter(|node| is_elementwise(node)) {
            let sliced = |&operand: &Id| match look.number(operand) {
                Some(number) => Term::full(number, &look.shape(operand).with_dim(dim, length)),
                None => slice(look, (dim, start, length), operand),
            };
            let operands = node.operands.iter().map(sliced).collect();
            found.push(Equal { class, term: Term::Node(node.kind.clone(), operands) });
        }
    }
    found
}

/// `slice(spread(x)) = spread(slice(x))`
fn repeated(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (dim, start, length, middle) in slices(look, class) {
        for (spread, x) in spreads(look, middle) {
            let own = spread.places.iter().position(|&place| place == dim);
            let outer = Spread { places: spread.places.clone(), sizes: look.shape(class).sizes.clone() };
            let inner = own.map_or(Term::Class(x), |own| slice(look, (own, start, length), x));
            found.push(Equal { class, term: inner.spread(outer) });
        }
    }
    found
}

/// `slice(einsum(a, b)) = einsum(slice(a), slice(b))`, where only operands with the index of the dim are sliced.
fn product(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (dim, start, length, middle) in slices(look, class) {
        for node in look.nodes(middle) {
            let NodeKind::Einsum(contraction) = &node.kind else { continue };
            let index = contraction.result[dim];
            let sliced = |(indices, &x): (&Vec<u8>, &Id)| {
                let own = indices.iter().position(|other| *other == index);
                own.map_or(Term::Class(x), |own| slice(look, (own, start, length), x))
            };
            let operands = contraction.operands.iter().zip(&node.operands).map(sliced).collect();
            found.push(Equal { class, term: Term::Node(node.kind.clone(), operands) });
        }
    }
    found
}
