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

/// The coefficients of a polynomial by the powers of its variables.
pub(super) type Terms<'a> = &'a [([u8; 2], f64)];

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
    fn is(&self, terms: Terms<'_>) -> bool {
        self.0.len() == terms.len()
            && terms.iter().all(|(powers, wanted)| self.0.get(powers).is_some_and(|found| is_near(*found, *wanted)))
    }
}

/// The class as a polynomial in two classes, the second of which may be missing.
pub(super) fn polynomial(look: &Look<'_>, class: Id, x: Id, t: Option<Id>) -> Option<Polynomial> {
    Variables { look, x, t }.polynomial(class, DEPTH)
}

/// True if the class is a polynomial with these coefficients, but for rounding.
pub(super) fn is_polynomial(look: &Look<'_>, class: Id, x: Id, t: Option<Id>, terms: Terms<'_>) -> bool {
    polynomial(look, class, x, t).is_some_and(|found| found.is(terms))
}

/// The classes that polynomials are in.
struct Variables<'a> {
    look: &'a Look<'a>,
    x: Id,
    t: Option<Id>,
}

impl Variables<'_> {
    /// The class as a polynomial of at most so many levels.
    fn polynomial(&self, class: Id, depth: usize) -> Option<Polynomial> {
        if let Some(number) = self.look.number(class) {
            return Some(Polynomial::term([0, 0], number));
        }
        if self.look.is_same_source(class, self.x) {
            return Some(Polynomial::term([1, 0], 1.0));
        }
        if self.t.is_some_and(|t| self.look.is_same_source(class, t)) {
            return Some(Polynomial::term([0, 1], 1.0));
        }
        let below = depth.checked_sub(1)?;
        self.sum(class, below).or_else(|| self.product(class, below)).or_else(|| self.negative(class, below))
    }

    fn both(&self, a: Id, b: Id, depth: usize) -> Option<(Polynomial, Polynomial)> {
        Some((self.polynomial(a, depth)?, self.polynomial(b, depth)?))
    }

    fn sum(&self, class: Id, depth: usize) -> Option<Polynomial> {
        [(PlainOp::Add, 1.0), (PlainOp::Sub, -1.0)].into_iter().find_map(|(op, sign)| {
            let mut pairs = self.look.binary(class, op).into_iter();
            pairs.find_map(|(a, b)| self.both(a, b, depth)).map(|(a, b)| a.plus(&b, sign))
        })
    }

    fn product(&self, class: Id, depth: usize) -> Option<Polynomial> {
        let squares = self.look.unary(class, PlainOp::Square).into_iter().map(|a| (a, a));
        let mut pairs = self.look.binary(class, PlainOp::Mul).into_iter().chain(squares);
        pairs.find_map(|(a, b)| self.both(a, b, depth).and_then(|(a, b)| a.times(&b)))
    }

    fn negative(&self, class: Id, depth: usize) -> Option<Polynomial> {
        let operand = self.look.unary(class, PlainOp::Neg).into_iter().find_map(|a| self.polynomial(a, depth))?;
        Some(Polynomial(BTreeMap::new()).plus(&operand, -1.0))
    }
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
