//! Ops of rows happen before moves of the dims that they treat alike.

use crate::egraph::language::{Made, NodeKind, Spread, merged};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use crate::egraph::rules::moves::{reshapes, spreads};
use egg::Id;

pub(in crate::recognise) const RULES: [Rule; 3] = [
    Rule { name: "softmax-of-move", rounding: Rounding::Exact, find: softmax },
    Rule { name: "norm-of-move", rounding: Rounding::Exact, find: norm },
    Rule { name: "rope-of-move", rounding: Rounding::Exact, find: rope },
];

/// A move that keeps some leading dims and the last one: the operand, and how its result moves back.
enum Move {
    Permute(Spread),
    Merge(Vec<u64>),
}

impl Move {
    /// The move of a result of the op.
    fn of(self, term: Term) -> Term {
        match self {
            Move::Permute(spread) => term.spread(spread),
            Move::Merge(sizes) => Term::Node(NodeKind::Reshape(sizes), vec![term]),
        }
    }
}

fn moves(look: &Look<'_>, class: Id, leading: usize) -> Vec<(Move, Id)> {
    let to = &look.shape(class).sizes;
    let Some(last) = to.len().checked_sub(1) else { return Vec::new() };
    let fixed: Vec<usize> = (0..leading).chain([last]).collect();
    let mut moves = Vec::new();
    for (spread, x) in spreads(look, class) {
        if spread.is_permutation() && fixed.iter().all(|&dim| spread.places[dim] == dim) {
            moves.push((Move::Permute(spread.clone()), x));
        }
    }
    for x in reshapes(look, class) {
        let groups = merged(&look.shape(x).sizes, to).unwrap_or_default();
        if fixed.iter().all(|&dim| groups.get(dim).is_some_and(|group| group.len() == 1)) {
            moves.push((Move::Merge(to.clone()), x));
        }
    }
    moves
}

/// `softmax(move(x)) = move(softmax(x))`
fn softmax(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let nodes = look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Plain(PlainOp::Softmax)));
    let moved = nodes.flat_map(|node| moves(look, node.operands[0], 0));
    moved.map(|(by, x)| Equal { class, term: by.of(Term::plain(PlainOp::Softmax, [Term::Class(x)])) }).collect()
}

/// `norm(move(x)) = move(norm(x))`
fn norm(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for out in look.nodes(class) {
        let NodeKind::Out(0, _) = out.kind else { continue };
        for node in look.nodes(out.operands[0]) {
            let NodeKind::Made(Made::RmsNorm(_) | Made::LayerNorm(_)) = node.kind else { continue };
            for (by, x) in moves(look, node.operands[0], 0) {
                let operands = [x].iter().chain(&node.operands[1..]).map(|&id| Term::Class(id)).collect();
                let op = Term::Node(node.kind.clone(), operands);
                found.push(Equal { class, term: by.of(op.out(0, look.shape(x).clone())) });
            }
        }
    }
    found
}

/// `rope(move(x)) = move(rope(x))`
fn rope(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for node in look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Made(Made::Rope { .. }))) {
        for (by, x) in moves(look, node.operands[0], 2) {
            let op = Term::Node(node.kind.clone(), vec![Term::Class(x), Term::Class(node.operands[1])]);
            found.push(Equal { class, term: by.of(op) });
        }
    }
    found
}
