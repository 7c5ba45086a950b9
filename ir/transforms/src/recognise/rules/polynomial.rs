//! Polynomials in a class and in a function of it: all spellings of `a x + b x^3` or `x / 2 + x t / 2` have the same coefficients.

use crate::egraph::look::{Look, is_near};
use crate::egraph::plain::PlainOp;
use egg::Id;
use std::collections::BTreeMap;

/// The most levels of nodes of a polynomial.
const DEPTH: usize = 8;

/// The highest power of a variable.
const DEGREE: u8 = 4;

/// Coefficients by the powers of two variables; none is 0.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Polynomial(BTreeMap<[u8; 2], f64>);

impl Polynomial {
    fn term(powers: [u8; 2], coefficient: f64) -> Polynomial {
        Polynomial(BTreeMap::from([(powers, coefficient)])).reduced()
    }

    fn reduced(mut self) -> Polynomial {
        self.0.retain(|_, coefficient| *coefficient != 0.0);
        self
    }

    fn plus(mut self, other: &Polynomial, factor: f64) -> Polynomial {
        for (powers, coefficient) in &other.0 {
            *self.0.entry(*powers).or_insert(0.0) += factor * coefficient;
        }
        self.reduced()
    }

    fn times(&self, other: &Polynomial) -> Option<Polynomial> {
        let mut product = BTreeMap::new();
        for ([a, b], x) in &self.0 {
            for ([c, d], y) in &other.0 {
                if a + c > DEGREE || b + d > DEGREE {
                    return None;
                }
                *product.entry([a + c, b + d]).or_insert(0.0) += x * y;
            }
        }
        Some(Polynomial(product).reduced())
    }

    /// True if its coefficients are these, but for rounding.
    pub(super) fn is(&self, terms: &[([u8; 2], f64)]) -> bool {
        self.0.len() == terms.len()
            && terms.iter().all(|(powers, wanted)| self.0.get(powers).is_some_and(|found| is_near(*found, *wanted)))
    }
}

/// The class as a polynomial in two classes, the second of which may be missing.
pub(super) fn polynomial(look: &Look<'_>, class: Id, x: Id, t: Option<Id>) -> Option<Polynomial> {
    in_variables(look, class, (x, t), DEPTH)
}

fn in_variables(look: &Look<'_>, class: Id, (x, t): (Id, Option<Id>), depth: usize) -> Option<Polynomial> {
    if let Some(number) = look.number(class) {
        return Some(Polynomial::term([0, 0], number));
    }
    if look.is_same_source(class, x) {
        return Some(Polynomial::term([1, 0], 1.0));
    }
    if t.is_some_and(|t| look.is_same_source(class, t)) {
        return Some(Polynomial::term([0, 1], 1.0));
    }
    if depth == 0 {
        return None;
    }
    let part = |id| in_variables(look, id, (x, t), depth - 1);
    let sums = [(PlainOp::Add, 1.0), (PlainOp::Sub, -1.0)].into_iter();
    let sums = sums.flat_map(|(op, sign)| look.binary(class, op).into_iter().map(move |(a, b)| (a, b, sign)));
    if let Some(sum) = sums.into_iter().find_map(|(a, b, sign)| Some(part(a)?.plus(&part(b)?, sign))) {
        return Some(sum);
    }
    if let Some(product) = look.binary(class, PlainOp::Mul).into_iter().find_map(|(a, b)| part(a)?.times(&part(b)?)) {
        return Some(product);
    }
    let square = |a| part(a).and_then(|a| a.times(&a));
    if let Some(square) = look.unary(class, PlainOp::Square).into_iter().find_map(square) {
        return Some(square);
    }
    let negative = |a| Some(Polynomial(BTreeMap::new()).plus(&part(a)?, -1.0));
    look.unary(class, PlainOp::Neg).into_iter().find_map(negative)
}

/// The classes that the class may be a polynomial in, nearest first: operands of its sums and products that are not constant.
pub(super) fn variables(look: &Look<'_>, class: Id) -> Vec<Id> {
    let mut all = vec![look.source(class)];
    let mut level = all.clone();
    for _ in 0..DEPTH {
        let mut below = Vec::new();
        for id in level {
            let ops = [PlainOp::Add, PlainOp::Sub, PlainOp::Mul, PlainOp::Square, PlainOp::Neg];
            let operands = ops.into_iter().flat_map(|op| look.plain(id, op)).flatten();
            for &operand in operands.filter(|&&operand| look.number(operand).is_none()) {
                let operand = look.source(operand);
                if !all.contains(&operand) {
                    all.push(operand);
                    below.push(operand);
                }
            }
        }
        level = below;
    }
    all
}
