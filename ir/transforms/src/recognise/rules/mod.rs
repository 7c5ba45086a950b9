//! The rules: equalities between classes of the e-graph, each with a name and what it does to rounding.

mod activations;
mod algebra;
mod attention;
mod embedding;
mod losses;
mod mask;
mod moves;
mod norms;
mod polynomial;
mod rope;

use super::facts::Graph;
use super::language::{Made, Node, NodeKind, Number, Shape, Spread};
use super::look::Look;
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
pub(super) struct Rule {
    /// Its name.
    pub(super) name: &'static str,
    /// Its effect on rounding.
    pub(super) rounding: Rounding,
    /// The equalities of a class.
    find: fn(&Look<'_>, Id) -> Vec<Equal>,
}

impl Rule {
    /// The equalities that follow from the nodes of a class.
    pub(super) fn apply(&self, look: &Look<'_>, class: Id) -> Vec<Equal> {
        (self.find)(look, class)
    }
}

/// A class and a term of equal elements.
pub(super) struct Equal {
    class: Id,
    term: Term,
}

/// A term over classes.
#[derive(Clone)]
pub(super) enum Term {
    /// A class of the e-graph.
    Class(Id),
    /// A node, and its operands.
    Node(NodeKind, Vec<Term>),
}

impl Term {
    /// A node of an op without attributes.
    fn plain<const N: usize>(name: &'static str, operands: [Term; N]) -> Term {
        Term::Node(NodeKind::Plain(name), operands.to_vec())
    }

    /// A constant tensor.
    fn full(number: f64, shape: &Shape) -> Term {
        Term::Node(NodeKind::Full(Number::new(number), shape.clone()), Vec::new())
    }

    /// The operand, or its spread.
    fn spread(self, spread: Spread) -> Term {
        if spread.is_identity() { self } else { Term::Node(NodeKind::Spread(spread), vec![self]) }
    }

    /// An op with attributes.
    fn made(op: Made, operands: &[Id]) -> Term {
        Term::Node(NodeKind::Made(op), operands.iter().map(|&id| Term::Class(id)).collect())
    }

    /// A result of an op with several.
    fn out(&self, place: usize, shape: Shape) -> Term {
        Term::Node(NodeKind::Out(place, shape), vec![self.clone()])
    }

    fn add(&self, graph: &mut Graph) -> Id {
        match self {
            Term::Class(id) => *id,
            Term::Node(kind, operands) => {
                let operands = operands.iter().map(|operand| operand.add(graph)).collect();
                graph.add(Node { kind: kind.clone(), operands })
            }
        }
    }
}

/// All rules, in the order in which each round applies them.
pub(super) fn all() -> Vec<Rule> {
    let mut rules = Vec::new();
    rules.extend(algebra::RULES);
    rules.extend(moves::RULES);
    rules.extend(activations::RULES);
    rules.extend(norms::RULES);
    rules.extend(losses::RULES);
    rules.extend(attention::RULES);
    rules.extend(rope::RULES);
    rules.extend(embedding::RULES);
    rules
}

/// The number of nodes at which saturation stops.
const NODES: usize = 20_000;

/// The number of rounds after which saturation stops.
const ROUNDS: usize = 12;

/// Applies all rules until they say nothing new, or a limit is reached.
pub(super) fn saturate(graph: &mut Graph) {
    let rules = all();
    for _ in 0..ROUNDS {
        let mut classes: Vec<Id> = graph.classes().map(|class| class.id).collect();
        classes.sort_unstable();
        let look = Look::new(graph);
        let found = |rule: &Rule| classes.iter().flat_map(|&class| rule.apply(&look, class)).collect::<Vec<_>>();
        let equalities: Vec<Equal> = rules.iter().flat_map(found).collect();
        let mut has_changed = false;
        for Equal { class, term } in equalities {
            if graph.total_number_of_nodes() > NODES {
                break;
            }
            let term = term.add(graph);
            has_changed |= graph.union(class, term);
        }
        graph.rebuild();
        if !has_changed || graph.total_number_of_nodes() > NODES {
            return;
        }
    }
}
