//! Rules: equalities between classes of the e-graph, each with a name and what it does to rounding.

use super::facts::Graph;
use super::language::{Made, Node, NodeKind, Number, Shape, Spread};
use super::look::Look;
use super::plain::PlainOp;
use egg::Id;

/// The effect of a rule on the bits of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Both sides have the same bits.
    Exact,
    /// The new side rounds less often.
    Fewer,
    /// The new side adds or multiplies in another order.
    Reorders,
}

/// A rule: the equalities that follow from the nodes of a class.
pub(crate) struct Rule {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its effect on rounding.
    pub(crate) rounding: Rounding,
    /// The equalities of a class.
    pub(crate) find: fn(&Look<'_>, Id) -> Vec<Equal>,
}

impl Rule {
    /// The equalities that follow from the nodes of a class.
    pub(crate) fn apply(&self, look: &Look<'_>, class: Id) -> Vec<Equal> {
        (self.find)(look, class)
    }
}

/// A class and a term of equal elements.
pub(crate) struct Equal {
    /// The class.
    pub(crate) class: Id,
    /// The term.
    pub(crate) term: Term,
}

/// A term over classes.
#[derive(Clone)]
pub(crate) enum Term {
    /// A class of the e-graph.
    Class(Id),
    /// A node, and its operands.
    Node(NodeKind, Vec<Term>),
}

impl Term {
    /// A node of an op without attributes.
    pub(crate) fn plain<const N: usize>(op: PlainOp, operands: [Term; N]) -> Term {
        Term::Node(NodeKind::Plain(op), operands.to_vec())
    }

    /// A constant tensor.
    pub(crate) fn full(number: f64, shape: &Shape) -> Term {
        Term::Node(NodeKind::Full(Number::new(number), shape.clone()), Vec::new())
    }

    /// The operand, or its spread.
    pub(crate) fn spread(self, spread: Spread) -> Term {
        if spread.is_identity() { self } else { Term::Node(NodeKind::Spread(spread), vec![self]) }
    }

    /// An op with attributes.
    pub(crate) fn made(op: Made, operands: &[Id]) -> Term {
        Term::Node(NodeKind::Made(op), operands.iter().map(|&id| Term::Class(id)).collect())
    }

    /// A result of an op with several.
    pub(crate) fn out(&self, place: usize, shape: Shape) -> Term {
        Term::Node(NodeKind::Out(place, shape), vec![self.clone()])
    }

    pub(crate) fn add(&self, graph: &mut Graph) -> Id {
        match self {
            Term::Class(id) => *id,
            Term::Node(kind, operands) => {
                let operands = operands.iter().map(|operand| operand.add(graph)).collect();
                graph.add(Node { kind: kind.clone(), operands })
            }
        }
    }
}
