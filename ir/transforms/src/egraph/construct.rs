//! The nodes that become statements, and the cheapest of them for classes that no value holds.

use super::encode::Encoded;
use super::facts::Graph;
use super::language::{Node, NodeKind, Spread};
use egg::Id;
use ir::graph::Block;
use ir::ids::Value;
use std::collections::{HashMap, HashSet};

/// The ops without attributes that recognisers make.
const RECOGNISED: [&str; 6] = ["sigmoid", "silu", "gelu", "gelu_erf", "relu_squared", "softmax"];

/// A new statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Source {
    node: Node,
    /// True if it moves no elements.
    pub(crate) is_view: bool,
}

/// The constructions of the classes of a saturated e-graph.
pub(crate) struct Construct<'a> {
    block: &'a Block,
    encoded: &'a Encoded,
    /// The cheapest node of each class that no value holds.
    cheapest: HashMap<Id, (usize, Node)>,
}

impl<'a> Construct<'a> {
    /// Finds the cheapest nodes.
    pub(crate) fn new(block: &'a Block, encoded: &'a Encoded) -> Construct<'a> {
        let mut construct = Construct { block, encoded, cheapest: HashMap::new() };
        let mut classes: Vec<Id> = construct.graph().classes().map(|class| class.id).collect();
        classes.sort_unstable();
        while classes.iter().filter(|&&class| construct.improve(class)).count() > 0 {}
        for class in classes {
            let best = construct.best(class);
            construct.cheapest.extend(best.map(|best| (class, best)));
        }
        construct
    }

    /// The saturated e-graph.
    pub(crate) fn graph(&self) -> &'a Graph {
        &self.encoded.graph
    }

    /// The block of the e-graph.
    pub(crate) fn block(&self) -> &'a Block {
        self.block
    }

    /// The first value that holds a class.
    pub(crate) fn value(&self, class: Id) -> Option<Value> {
        self.graph()[class].data.value.map(|(_, value)| value)
    }

    /// The cheapest node of a class that no value holds.
    pub(crate) fn node(&self, class: Id) -> Option<&Node> {
        self.cheapest.get(&self.graph().find(class)).map(|(_, node)| node)
    }

    /// The index along one dim, if the node is a tensor of them that no value holds: it needs no operand.
    pub(crate) fn counted(&self, node: &Node) -> Option<usize> {
        let NodeKind::Spread(Spread { places, .. }) = &node.kind else { return None };
        let &[operand] = node.operands.as_slice() else { return None };
        let is_count = self.value(operand).is_none()
            && self.graph()[operand].iter().any(|node| matches!(node.kind, NodeKind::Iota(_)));
        places.first().copied().filter(|_| is_count)
    }

    /// The operands of a node that become operands of its statement.
    pub(crate) fn operands<'n>(&self, node: &'n Node) -> &'n [Id] {
        if self.counted(node).is_some() { &[] } else { &node.operands }
    }

    /// Takes a cheaper node for a class, if its operands have one by now.
    fn improve(&mut self, class: Id) -> bool {
        let best = self.best(class);
        let better = best.filter(|best| self.cheapest.get(&class).is_none_or(|known| best.0 < known.0));
        better.map(|better| self.cheapest.insert(class, better)).is_some()
    }

    /// The cheapest node of a class that no value holds, of those whose operands have one.
    fn best(&self, class: Id) -> Option<(usize, Node)> {
        if self.value(class).is_some() {
            return None;
        }
        let nodes = self.graph()[class].iter().filter(|node| is_statement(node));
        let costs = nodes.filter_map(|node| Some((self.cost(node)?, node.clone())));
        costs.min_by(|a, b| self.key(a).cmp(&self.key(b)))
    }

    /// The statements of a node and of its operands, counted once for each use.
    fn cost(&self, node: &Node) -> Option<usize> {
        let operand = |&class: &Id| match self.value(class) {
            Some(_) => Some(0),
            None => self.cheapest.get(&self.graph().find(class)).map(|(cost, _)| *cost),
        };
        self.operands(node).iter().try_fold(1, |sum: usize, class| Some(sum.saturating_add(operand(class)?)))
    }

    /// An order of equally cheap nodes that does not depend on the numbers of classes.
    fn key<'k>(&'k self, (cost, node): &'k (usize, Node)) -> (usize, &'k NodeKind, Vec<Option<&'a str>>) {
        let name = |&class: &Id| self.value(class).map(|value| self.block.value_name(value));
        (*cost, &node.kind, node.operands.iter().map(name).collect())
    }

    /// The nodes with a recognised op that may define a value, best first.
    pub(crate) fn candidates(&self, value: Value) -> Vec<Node> {
        let Some(&class) = self.encoded.class.get(&value) else { return Vec::new() };
        let nodes = self.graph()[class].iter().filter(|node| is_statement(node) && self.recognised(node).is_some());
        let mut costs: Vec<(usize, Node)> = nodes.filter_map(|node| Some((self.cost(node)?, node.clone()))).collect();
        costs.sort_by(|a, b| self.key(a).cmp(&self.key(b)));
        costs.into_iter().map(|(_, node)| node).collect()
    }

    /// The recognised op of a node, or of what it is a view or result of.
    pub(crate) fn recognised<'n>(&'n self, node: &'n Node) -> Option<&'n Node> {
        match node.kind {
            NodeKind::Made(_) => Some(node),
            NodeKind::Plain(name) => RECOGNISED.contains(&name).then_some(node),
            _ => {
                let &[operand] = node.operands.as_slice() else { return None };
                if self.value(operand).is_some() { None } else { self.recognised(self.node(operand)?) }
            }
        }
    }

    /// The values of the block that a node reads, also by nodes of classes that no value holds.
    pub(crate) fn values(&self, node: &Node) -> Vec<Value> {
        let of_operand = |&class: &Id| match (self.value(class), self.node(class)) {
            (Some(value), _) => vec![value],
            (None, Some(node)) => self.values(node),
            (None, None) => Vec::new(),
        };
        self.operands(node).iter().flat_map(of_operand).collect()
    }

    /// Adds the new statements of a node.
    pub(crate) fn sources(&self, node: &Node, all: &mut HashSet<Source>) {
        let mut node = node.clone();
        node.operands.iter_mut().for_each(|class| *class = self.graph().find(*class));
        for &class in self.operands(&node) {
            if let (None, Some(inner)) = (self.value(class), self.node(class)) {
                self.sources(inner, all);
            }
        }
        if !matches!(node.kind, NodeKind::Out(..)) {
            let is_view = is_view(&node);
            all.insert(Source { node, is_view });
        }
    }
}

/// True if the node's statement moves no elements.
fn is_view(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Reshape(_) => true,
        NodeKind::Spread(spread) => spread.is_view(),
        _ => false,
    }
}

/// True for nodes that can become statements.
fn is_statement(node: &Node) -> bool {
    match node.kind {
        NodeKind::Plain(name) => name == "equal" || RECOGNISED.contains(&name),
        NodeKind::Made(_)
        | NodeKind::Out(..)
        | NodeKind::Cast(_)
        | NodeKind::Spread(_)
        | NodeKind::Reshape(_)
        | NodeKind::Iota(_) => true,
        _ => false,
    }
}
