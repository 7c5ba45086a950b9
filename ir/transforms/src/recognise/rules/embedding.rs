//! `embedding` as the product of a one-hot tensor and a table, or as rows that are taken from a table.

use crate::egraph::language::{Contraction, Made, Node, NodeKind, Spread};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(super) const RULES: [Rule; 2] = [
    Rule { name: "embedding", rounding: Rounding::Exact, find: embedding },
    Rule { name: "embedding-of-take", rounding: Rounding::Exact, find: taken },
];

/// The ids `[rows..]` whose one-hot rows `[rows.., n]` the class is: an id outside of the range has a row of zeros.
pub(super) fn one_hot(look: &Look<'_>, class: Id) -> Vec<Id> {
    let selected = look.kinds(class, |node| match node.kind {
        NodeKind::Select(false) if look.is_number(node.operands[1], 1.0) => Some(node.operands.as_slice()),
        _ => None,
    });
    let masks = selected.into_iter().filter(|all| all.get(2).is_none_or(|&other| look.is_number(other, 0.0)));
    let masks = masks.map(|operands| operands[0]).chain([class]);
    let compared = masks.flat_map(|mask| look.either(mask, PlainOp::Equal));
    let counted = compared.filter(|&(_, index)| look.columns(index).into_iter().any(|column| is_count(look, column)));
    let ids = counted.flat_map(|(ids, _)| look.rows(ids));
    ids.filter_map(|ids| look.in_dtype(ids, DType::I32)).collect()
}

/// True if a class counts from 0.
pub(super) fn is_count(look: &Look<'_>, class: Id) -> bool {
    look.nodes(class).any(|node| matches!(node.kind, NodeKind::Iota(_)))
}

/// `one_hot(ids) table`
fn embedding(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let contractions = look.nodes(class).filter_map(|node: &Node| match &node.kind {
        NodeKind::Einsum(contraction) => Some((contraction, [node.operands[0], node.operands[1]])),
        _ => None,
    });
    let mut found = Vec::new();
    for (contraction, operands) in contractions {
        for place in [0, 1] {
            let count = look.shape(operands[place]).sizes.last().copied().unwrap_or(1);
            let Some((table, result)) = moves(contraction, place, count, &look.shape(class).sizes) else { continue };
            for ids in one_hot(look, operands[place]) {
                let rows = Term::Class(operands[1 - place]).spread(table.clone());
                let op = Term::Node(NodeKind::Made(Made::Embedding), vec![Term::Class(ids), rows]);
                found.push(Equal { class, term: op.spread(result.clone()) });
            }
        }
    }
    found
}

/// The moves of the table and of the result for `[rows.., n], [n, h] -> [rows.., h]`, where the operand at a place has the rows,
/// `n` is a count, and the result has some sizes.
fn moves(contraction: &Contraction, place: usize, count: u64, to: &[u64]) -> Option<(Spread, Spread)> {
    let table = &contraction.operands[1 - place];
    let (n, rows) = contraction.operands[place].split_last()?;
    let h = table.iter().find(|index| *index != n)?;
    let places = rows.iter().chain([h]).map(|index| contraction.result.iter().position(|other| other == index));
    let places: Vec<usize> = places.collect::<Option<_>>()?;
    let is_sum = table.len() == 2 && table.contains(n) && !contraction.result.contains(n) && !rows.contains(h);
    let order = table.iter().map(|index| usize::from(index == h)).collect();
    let sizes = vec![count, to[*places.last()?]];
    let result = Spread { places, sizes: to.to_vec() };
    (is_sum && result.is_permutation()).then_some((Spread { places: order, sizes }, result))
}

/// `take(table, ids)` of the rows of a matrix
fn taken(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let taken = look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Take(0)));
    let of_matrix = taken.map(|node| [node.operands[1], node.operands[0]]).filter(|[_, x]| look.shape(*x).rank() == 2);
    of_matrix.map(|operands| Equal { class, term: Term::made(Made::Embedding, &operands) }).collect()
}
