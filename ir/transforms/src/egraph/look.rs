//! Questions about classes of the e-graph, which rules ask in place of patterns.
//!
//! A class has several nodes, so an answer is a list. Lists follow the order of the nodes in the class.

use super::facts::{Fact, Graph};
use super::language::{Node, NodeKind, Shape, Spread};
use super::plain::PlainOp;
use egg::Id;
use ir::types::DType;

/// Relative tolerance of constants.
const TOLERANCE: f64 = 1e-6;

/// The most steps that rules take to write a class as products.
const STEPS: usize = 256;

/// The most factors of a product.
const FACTORS: usize = 6;

/// True if two numbers are equal but for rounding.
pub(crate) fn is_near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= TOLERANCE * b.abs()
}

/// A saturated or growing e-graph, to be looked at.
pub(crate) struct Look<'a> {
    graph: &'a Graph,
}

impl<'a> Look<'a> {
    /// On a graph whose congruence is restored.
    pub(crate) fn new(graph: &'a Graph) -> Look<'a> {
        Look { graph }
    }

    /// The facts of a class.
    pub(crate) fn fact(&self, id: Id) -> &'a Fact {
        &self.graph[id].data
    }

    /// The shape of a class.
    pub(crate) fn shape(&self, id: Id) -> &'a Shape {
        &self.fact(id).shape
    }

    /// The nodes of a class.
    pub(crate) fn nodes(&self, id: Id) -> impl Iterator<Item = &'a Node> + use<'a> {
        self.graph[id].iter()
    }

    /// The class of a node, if the graph has it.
    pub(crate) fn class_of(&self, node: Node) -> Option<Id> {
        self.graph.lookup(node)
    }

    /// True if both are one class.
    pub(crate) fn is_same(&self, a: Id, b: Id) -> bool {
        self.graph.find(a) == self.graph.find(b)
    }

    /// The number that all elements of a class are.
    pub(crate) fn number(&self, id: Id) -> Option<f64> {
        self.fact(id).number.map(|number| number.get())
    }

    /// True if all elements of a class are this number, but for rounding.
    pub(crate) fn is_number(&self, id: Id, number: f64) -> bool {
        self.number(id).is_some_and(|known| is_near(known, number))
    }

    /// The class, and the classes that it is a conversion of, to or from float types of at least 16 bits.
    pub(crate) fn through_casts(&self, id: Id) -> Vec<Id> {
        let mut all = vec![self.graph.find(id)];
        let mut next = 0;
        while let Some(&id) = all.get(next) {
            next += 1;
            for node in self.nodes(id).filter(|node| matches!(node.kind, NodeKind::Cast(to) if to.bytes() > 1)) {
                let x = self.graph.find(node.operands[0]);
                if self.shape(x).dtype.bytes() > 1 && !all.contains(&x) {
                    all.push(x);
                }
            }
        }
        all
    }

    /// The class in an element type: itself, or what it is an exact conversion of.
    pub(crate) fn in_dtype(&self, id: Id, dtype: DType) -> Option<Id> {
        let mut id = self.graph.find(id);
        loop {
            let own = self.shape(id).dtype;
            if own == dtype {
                return Some(id);
            }
            id = self.widened(id)?;
        }
    }

    /// The narrowest class that the class is an exact conversion of.
    pub(crate) fn source(&self, id: Id) -> Id {
        let mut id = self.graph.find(id);
        while let Some(x) = self.widened(id) {
            id = x;
        }
        id
    }

    /// True if both are exact conversions of one class.
    pub(crate) fn is_same_source(&self, a: Id, b: Id) -> bool {
        self.source(a) == self.source(b)
    }

    /// The class of fewer bytes, or of integers, that the class is a conversion of.
    fn widened(&self, id: Id) -> Option<Id> {
        let own = self.shape(id).dtype;
        let operand = |node: &Node| match node.kind {
            NodeKind::Cast(_) => Some(self.graph.find(node.operands[0])),
            _ => None,
        };
        self.nodes(id).filter_map(operand).find(|&x| {
            let from = self.shape(x).dtype;
            from == DType::I32 || from.bytes() < own.bytes()
        })
    }

    /// The operands of nodes of an op without attributes, behind conversions.
    pub(crate) fn plain(&self, id: Id, op: PlainOp) -> Vec<&'a [Id]> {
        let nodes = |id| self.nodes(id).filter(|node| node.kind == NodeKind::Plain(op));
        self.through_casts(id).into_iter().flat_map(nodes).map(|node| node.operands.as_slice()).collect()
    }

    /// The operands of an op of one operand.
    pub(crate) fn unary(&self, id: Id, op: PlainOp) -> Vec<Id> {
        self.plain(id, op).into_iter().filter_map(|operands| operands.first().copied()).collect()
    }

    /// The operands of an op of two operands.
    pub(crate) fn binary(&self, id: Id, op: PlainOp) -> Vec<(Id, Id)> {
        self.plain(id, op).into_iter().filter_map(|operands| Some((*operands.first()?, *operands.get(1)?))).collect()
    }

    /// The operands of an op of two operands, in both orders.
    pub(crate) fn either(&self, id: Id, op: PlainOp) -> Vec<(Id, Id)> {
        self.binary(id, op).into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect()
    }

    /// The ways to write a class as a difference.
    pub(crate) fn difference(&self, id: Id) -> Vec<(Id, Id)> {
        let mut all = self.binary(id, PlainOp::Sub);
        for (a, b) in self.either(id, PlainOp::Add) {
            all.extend(self.unary(b, PlainOp::Neg).into_iter().map(|b| (a, b)));
        }
        all
    }

    /// The operands that are a constant behind an op, and the constant.
    pub(crate) fn with_number(&self, id: Id, op: PlainOp) -> Vec<(Id, f64)> {
        self.either(id, op).into_iter().filter_map(|(a, b)| Some((a, self.number(b)?))).collect()
    }

    /// The classes that the class is a spread of, and how.
    pub(crate) fn spreads(&self, id: Id) -> Vec<(&'a Spread, Id)> {
        let spread = |node: &'a Node| match &node.kind {
            NodeKind::Spread(spread) => Some((spread, node.operands[0])),
            _ => None,
        };
        self.through_casts(id).into_iter().flat_map(|id| self.nodes(id)).filter_map(spread).collect()
    }

    /// The classes `[rows..]` that the class `[rows.., n]` repeats along its last dim.
    pub(crate) fn rows(&self, id: Id) -> Vec<Id> {
        let is_row = |spread: &Spread| {
            spread.places.len() + 1 == spread.sizes.len()
                && spread.places.iter().enumerate().all(|(dim, &at)| dim == at)
        };
        self.spreads(id).into_iter().filter(|(spread, _)| is_row(spread)).map(|(_, row)| row).collect()
    }

    /// The classes `[n]` that the class `[rows.., n]` repeats in each row.
    pub(crate) fn columns(&self, id: Id) -> Vec<Id> {
        let own = self.shape(id).rank() == 1;
        let is_column = |spread: &Spread| spread.places == [spread.sizes.len() - 1];
        let spreads = self.spreads(id).into_iter().filter(|(spread, _)| is_column(spread));
        spreads.map(|(_, column)| column).chain(own.then_some(id)).collect()
    }

    /// The operands of a sum or a maximum over some dims.
    pub(crate) fn reduced(&self, id: Id, is_max: bool) -> Vec<(&'a [usize], Id)> {
        let operand = |node: &'a Node| match &node.kind {
            NodeKind::Reduce { is_max: own, over } if *own == is_max => Some((over.as_slice(), node.operands[0])),
            _ => None,
        };
        self.through_casts(id).into_iter().flat_map(|id| self.nodes(id)).filter_map(operand).collect()
    }

    /// The operands of a sum or a maximum over the last dim.
    pub(crate) fn reduced_last(&self, id: Id, is_max: bool) -> Vec<Id> {
        let reduced = self.reduced(id, is_max).into_iter();
        reduced.filter(|(over, x)| **over == [self.shape(*x).rank() - 1]).map(|(_, x)| x).collect()
    }

    /// The operands of a mean over the last dim.
    pub(crate) fn means(&self, id: Id) -> Vec<Id> {
        let scaled = self.with_number(id, PlainOp::Mul).into_iter();
        let means = |(sum, by): (Id, f64)| {
            let sums = self.reduced_last(sum, false).into_iter();
            sums.filter(|&x| self.shape(x).sizes.last().is_some_and(|&n| is_near(by * n as f64, 1.0)))
                .collect::<Vec<_>>()
        };
        scaled.flat_map(means).collect()
    }

    /// The ways to write a class as a product: the factors that vary, sorted, and the product of the constant ones.
    pub(crate) fn products(&self, id: Id) -> Vec<(Vec<Id>, f64)> {
        let mut found: Vec<(Vec<Id>, f64)> = Vec::new();
        let mut open: Vec<(Vec<Id>, Vec<Id>, f64)> = vec![(vec![id], Vec::new(), 1.0)];
        for _ in 0..STEPS {
            let Some((mut left, mut factors, scale)) = open.pop() else { break };
            let Some(next) = left.pop() else {
                factors.sort_unstable();
                if !found.iter().any(|(other, by)| *other == factors && is_near(*by, scale)) {
                    found.push((factors, scale));
                }
                continue;
            };
            if let Some(number) = self.number(next) {
                open.push((left, factors, scale * number));
                continue;
            }
            if left.len() + factors.len() + 1 < FACTORS {
                for (a, b) in self.binary(next, PlainOp::Mul) {
                    open.push(([left.as_slice(), &[a, b]].concat(), factors.clone(), scale));
                }
            }
            factors.push(self.graph.find(next));
            open.push((left, factors, scale));
        }
        found
    }

    /// The parts that a function picks of the nodes of a class, behind conversions.
    pub(crate) fn kinds<T>(&self, id: Id, pick: impl Fn(&'a Node) -> Option<T>) -> Vec<T> {
        self.through_casts(id).into_iter().flat_map(|id| self.nodes(id)).filter_map(pick).collect()
    }
}
