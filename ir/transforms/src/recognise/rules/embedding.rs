//! `embedding` as the product of a one-hot tensor and a table.

use crate::egraph::language::{Contraction, Made, Node, NodeKind};
use crate::egraph::look::Look;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(super) const RULES: [Rule; 1] = [Rule { name: "embedding", rounding: Rounding::Exact, find: embedding }];

/// The ids `[rows..]` whose one-hot rows `[rows.., n]` the class is: an id outside of the range has a row of zeros.
pub(super) fn one_hot(look: &Look<'_>, class: Id) -> Vec<Id> {
    let is_count = |id: &Id| look.nodes(*id).any(|node| matches!(node.kind, NodeKind::Iota(_)));
    let compared = look.either(class, "equal").into_iter();
    let counted = compared.filter(|&(_, index)| look.columns(index).iter().any(is_count));
    let ids = counted.flat_map(|(ids, _)| look.rows(ids));
    ids.filter_map(|ids| look.in_dtype(ids, DType::I32)).collect()
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
            if !is_of_rows(contraction, place) {
                continue;
            }
            for ids in one_hot(look, operands[place]) {
                let op = Term::made(Made::Embedding, &[ids, operands[1 - place]]);
                found.push(Equal { class, term: op });
            }
        }
    }
    found
}

/// True for `[rows.., n], [n, h] -> [rows.., h]`, where the operand at a place has the rows.
fn is_of_rows(contraction: &Contraction, place: usize) -> bool {
    let (rows, table) = (&contraction.operands[place], &contraction.operands[1 - place]);
    let (Some((n, rows)), [v, h]) = (rows.split_last(), table.as_slice()) else { return false };
    n == v && contraction.result.split_last() == Some((h, rows))
}
