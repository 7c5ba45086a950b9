//! Equalities of arithmetic: reciprocals, roots, squares, signs and constants.

use crate::egraph::language::{Node, NodeKind};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;

pub(crate) const RULES: [Rule; 13] = [
    Rule { name: "commute", rounding: Rounding::Exact, find: commuted },
    Rule { name: "div-is-mul-recip", rounding: Rounding::Reorders, find: quotient },
    Rule { name: "recip-sqrt", rounding: Rounding::Fewer, find: root },
    Rule { name: "exp-of-half-log", rounding: Rounding::Fewer, find: power_of_half },
    Rule { name: "mul-self-is-square", rounding: Rounding::Exact, find: square },
    Rule { name: "mul-one", rounding: Rounding::Exact, find: neutral },
    Rule { name: "negative-scale", rounding: Rounding::Exact, find: negative },
    Rule { name: "neg-neg", rounding: Rounding::Exact, find: twice_negative },
    Rule { name: "sub-constant", rounding: Rounding::Exact, find: shift },
    Rule { name: "scale-scale", rounding: Rounding::Fewer, find: scaled_twice },
    Rule { name: "shift-shift", rounding: Rounding::Reorders, find: shifted_twice },
    Rule { name: "select-same", rounding: Rounding::Exact, find: selected },
    Rule { name: "scale-through-sum", rounding: Rounding::Reorders, find: scaled_sum },
];

/// The nodes of an op without attributes in a class itself.
fn nodes<'a>(look: &Look<'a>, class: Id, op: PlainOp) -> impl Iterator<Item = &'a Node> + use<'a> {
    look.nodes(class).filter(move |node| node.kind == NodeKind::Plain(op))
}

/// The operands of binary nodes of a class, in both orders, the second of which is a constant.
pub(crate) fn with_number<'a>(look: &Look<'a>, class: Id, op: PlainOp) -> Vec<(Id, f64)> {
    let orders = nodes(look, class, op).flat_map(|node| {
        let (a, b) = (node.operands[0], node.operands[1]);
        [(a, b), (b, a)]
    });
    orders.filter_map(|(a, b)| Some((a, look.number(b)?))).filter(|(a, _)| look.number(*a).is_none()).collect()
}

/// `a + b = b + a` and `a b = b a`, where the graph has both.
fn commuted(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let commutes = |node: &&Node| matches!(node.kind, NodeKind::Plain(PlainOp::Add | PlainOp::Mul));
    let other = |node: &Node| {
        let operands = node.operands.iter().rev().copied().collect();
        look.class_of(Node { kind: node.kind.clone(), operands })
    };
    let others = look.nodes(class).filter(commutes).filter_map(other).filter(|&other| !look.is_same(class, other));
    others.map(|other| Equal { class, term: Term::Class(other) }).collect()
}

/// `a / b = a recip(b)`
fn quotient(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let product = |node: &Node| {
        let recip = Term::plain(PlainOp::Recip, [Term::Class(node.operands[1])]);
        Equal { class, term: Term::plain(PlainOp::Mul, [Term::Class(node.operands[0]), recip]) }
    };
    nodes(look, class, PlainOp::Div).map(product).collect()
}

/// `recip(sqrt(x)) = rsqrt(x)`
fn root(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let roots = nodes(look, class, PlainOp::Recip).flat_map(|node| nodes(look, node.operands[0], PlainOp::Sqrt));
    roots.map(|node| Equal { class, term: Term::plain(PlainOp::Rsqrt, [Term::Class(node.operands[0])]) }).collect()
}

/// `exp(log(x) / 2) = sqrt(x)` and `exp(-log(x) / 2) = rsqrt(x)`
fn power_of_half(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (log, power) in
        nodes(look, class, PlainOp::Exp).flat_map(|node| with_number(look, node.operands[0], PlainOp::Mul))
    {
        let powers = [(PlainOp::Sqrt, 0.5), (PlainOp::Rsqrt, -0.5)].into_iter();
        for (op, _) in powers.filter(|(_, of)| *of == power) {
            let x = nodes(look, log, PlainOp::Log).map(|node| node.operands[0]);
            found.extend(x.map(|x| Equal { class, term: Term::plain(op, [Term::Class(x)]) }));
        }
    }
    found
}

/// `x x = square(x)`
fn square(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let squares = nodes(look, class, PlainOp::Mul).filter(|node| look.is_same(node.operands[0], node.operands[1]));
    squares.map(|node| Equal { class, term: Term::plain(PlainOp::Square, [Term::Class(node.operands[0])]) }).collect()
}

/// `x 1 = x`
fn neutral(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let ones = with_number(look, class, PlainOp::Mul).into_iter().filter(|(_, number)| *number == 1.0);
    ones.map(|(x, _)| Equal { class, term: Term::Class(x) }).collect()
}

/// `x (-1) = -x`
fn negative(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let negatives = with_number(look, class, PlainOp::Mul).into_iter().filter(|(_, number)| *number == -1.0);
    negatives.map(|(x, _)| Equal { class, term: Term::plain(PlainOp::Neg, [Term::Class(x)]) }).collect()
}

/// `-(-x) = x`
fn twice_negative(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let inner = nodes(look, class, PlainOp::Neg).flat_map(|node| nodes(look, node.operands[0], PlainOp::Neg));
    inner.map(|node| Equal { class, term: Term::Class(node.operands[0]) }).collect()
}

/// `x - c = x + (-c)`
fn shift(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shifted = |node: &Node| {
        let number = look.number(node.operands[1])?;
        let constant = Term::full(-number, look.shape(class));
        Some(Equal { class, term: Term::plain(PlainOp::Add, [Term::Class(node.operands[0]), constant]) })
    };
    nodes(look, class, PlainOp::Sub).filter_map(shifted).collect()
}

/// An op of a constant on the same op of another.
fn joined(look: &Look<'_>, class: Id, op: PlainOp, join: fn(f64, f64) -> f64) -> Vec<Equal> {
    let mut found = Vec::new();
    for (inner, outer) in with_number(look, class, op) {
        for (x, number) in with_number(look, inner, op) {
            let constant = Term::full(join(number, outer), look.shape(class));
            found.push(Equal { class, term: Term::plain(op, [Term::Class(x), constant]) });
        }
    }
    found
}

/// `(x c) d = x (c d)`
fn scaled_twice(look: &Look<'_>, class: Id) -> Vec<Equal> {
    joined(look, class, PlainOp::Mul, |a, b| a * b)
}

/// `(x + c) + d = x + (c + d)`
fn shifted_twice(look: &Look<'_>, class: Id) -> Vec<Equal> {
    joined(look, class, PlainOp::Add, |a, b| a + b)
}

/// `select(m, x, x) = x`
fn selected(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let nodes = look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Select(_)) && node.operands.len() == 3);
    let same = nodes.filter(|node| look.is_same(node.operands[1], node.operands[2]));
    same.map(|node| Equal { class, term: Term::Class(node.operands[1]) }).collect()
}

/// `sum(x c) = sum(x) c`
fn scaled_sum(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let sums = look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Reduce { is_max: false, .. }));
    let scaled = |node: &Node| {
        let products = with_number(look, node.operands[0], PlainOp::Mul).into_iter();
        let equal = |(x, number): (Id, f64)| {
            let sum = Term::Node(node.kind.clone(), vec![Term::Class(x)]);
            Equal { class, term: Term::plain(PlainOp::Mul, [sum, Term::full(number, look.shape(class))]) }
        };
        products.map(equal).collect::<Vec<_>>()
    };
    sums.flat_map(scaled).collect()
}
