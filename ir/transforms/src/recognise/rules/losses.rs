//! `cross_entropy`, whose ignored rows have a label below 0 and no loss.

use super::embedding::one_hot;
use super::norms::below_max;
use crate::egraph::language::{Made, NodeKind};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;
use ir::types::DType;

pub(super) const RULES: [Rule; 2] = [
    Rule { name: "cross_entropy", rounding: Rounding::Reorders, find: of_tokens },
    Rule { name: "cross_entropy-of-log-softmax", rounding: Rounding::Reorders, find: of_log_softmax },
];

/// The op on the narrowest form of its logits, if these are floats.
fn op(look: &Look<'_>, logits: Id, labels: Id) -> Option<Term> {
    let logits = look.source(logits);
    look.shape(logits).dtype.is_float().then(|| Term::made(Made::CrossEntropy, &[logits, labels]))
}

/// An f32 class equals a result of the op.
fn equal(look: &Look<'_>, class: Id, op: &Term, place: usize) -> Option<Equal> {
    let shape = look.shape(class);
    (shape.dtype == DType::F32).then(|| Equal { class, term: op.out(place, shape.clone()) })
}

/// `token_loss(lse, pick(logits, labels), labels)`
fn of_tokens(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for operands in look.plain(class, PlainOp::TokenLoss) {
        let &[lse, picked, labels] = operands else { continue };
        let logits = log_sums(look, lse);
        for (from, other) in look.binary(picked, PlainOp::Pick) {
            if look.is_same(labels, other) && logits.iter().any(|&x| look.is_same_source(x, from)) {
                let op = op(look, from, labels);
                found.extend(op.iter().flat_map(|op| [equal(look, class, op, 0), equal(look, lse, op, 1)]).flatten());
            }
        }
    }
    found
}

/// The rows of whose exponentials the class is the log of the sum, with the maximum subtracted before.
fn log_sums(look: &Look<'_>, class: Id) -> Vec<Id> {
    let mut found = Vec::new();
    for (log, max) in look.either(class, PlainOp::Add) {
        let rows = look.reduced_last(max, true);
        let sums: Vec<Id> = look.unary(log, PlainOp::Log);
        let mut below: Vec<Id> = sums.iter().flat_map(|&sum| sums_of_exp(look, sum)).collect();
        let primitive = sums.iter().flat_map(|&sum| look.binary(sum, PlainOp::SumExp));
        below.extend(primitive.filter(|&(_, other)| look.is_same_source(max, other)).map(|(x, _)| x));
        found.extend(rows.into_iter().filter(|&x| below.iter().any(|&y| look.is_same_source(x, y))));
    }
    found
}

/// The rows whose sum of exponentials, with the maximum subtracted, the class is.
fn sums_of_exp(look: &Look<'_>, class: Id) -> Vec<Id> {
    let exps = look.reduced_last(class, false).into_iter().flat_map(|exp| look.unary(exp, PlainOp::Exp));
    exps.flat_map(|shifted| below_max(look, shifted)).collect()
}

/// `-sum(pick(log_softmax(logits), labels))` times a number, or with the one-hot rows of the labels in place of `pick`.
fn of_log_softmax(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let shape = look.shape(class);
    if shape.rank() > 0 || shape.dtype != DType::F32 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (summand, factor) in summands(look, class) {
        for (log, labels) in picked(look, summand) {
            let rows = &look.shape(labels).sizes;
            for logits in log_softmax(look, log) {
                if look.shape(logits).sizes.split_last().is_none_or(|(_, own)| own != rows) {
                    continue;
                }
                let Some(op) = op(look, logits, labels) else { continue };
                let mut term = op.out(0, shape.clone());
                if factor != -1.0 {
                    term = Term::plain(PlainOp::Mul, [term, Term::full(-factor, shape)]);
                }
                found.push(Equal { class, term });
            }
        }
    }
    found
}

/// The classes the sum of all of whose elements, times a number, the class is; and the number.
fn summands(look: &Look<'_>, class: Id) -> Vec<(Id, f64)> {
    let mut all = vec![(class, 1.0)];
    let mut next = 0;
    while let Some(&(id, factor)) = all.get(next) {
        next += 1;
        let negatives = look.unary(id, PlainOp::Neg).into_iter().map(|x| (x, -factor));
        let scaled = look.with_number(id, PlainOp::Mul).into_iter().map(|(x, by)| (x, factor * by));
        let sums = look.reduced(id, false).into_iter().map(|(_, x)| (x, factor));
        for summand in negatives.chain(scaled).chain(sums) {
            if !all.iter().any(|(id, _)| look.is_same(*id, summand.0)) {
                all.push(summand);
            }
        }
    }
    all
}

/// The tensors of which the class has the entries at labels, and 0 elsewhere or where a label is ignored.
fn picked(look: &Look<'_>, class: Id) -> Vec<(Id, Id)> {
    let mut found = look.binary(class, PlainOp::Pick);
    for (mask, log) in look.either(class, PlainOp::Mul) {
        found.extend(one_hot(look, mask).into_iter().map(|labels| (log, labels)));
    }
    let selections =
        look.kinds(class, |node| matches!(node.kind, NodeKind::Select(false)).then_some(node.operands.as_slice()));
    for operands in selections {
        if operands.get(2).is_none_or(|&other| look.is_number(other, 0.0)) {
            found.extend(one_hot(look, operands[0]).into_iter().map(|labels| (operands[1], labels)));
        }
    }
    found
}

/// The rows whose log of the softmax the class is.
fn log_softmax(look: &Look<'_>, class: Id) -> Vec<Id> {
    let mut found = Vec::new();
    for (x, log) in look.difference(class) {
        for row in look.rows(log) {
            found.extend(log_sums(look, row).into_iter().filter(|&y| look.is_same_source(x, y)));
            let rows = below_max(look, x).into_iter();
            let sums: Vec<Id> =
                look.unary(row, PlainOp::Log).into_iter().flat_map(|sum| sums_of_exp(look, sum)).collect();
            found.extend(rows.filter(|&x| sums.iter().any(|&y| look.is_same_source(x, y))));
        }
    }
    found
}
