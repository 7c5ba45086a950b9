//! Generated tests of rules: a rule applies to left sides of random shapes, and both sides have equal elements.

use super::evaluate::{Precision, Tensor, rounded};
use super::facts::{Facts, Graph};
use super::language::{Node, NodeKind, Shape, Spread};
use super::look::Look;
use super::plain::PlainOp;
use super::rule::{Rounding, Rule};
use egg::Id;
use ir::entity::EntityRef;
use ir::ids::Value;
use ir::types::DType;

/// The name of a rule, and a left side to which it applies.
pub(crate) type LeftSide = (&'static str, fn(&mut Draft) -> Id);

/// Left sides per rule.
const DRAWN: u64 = 12;

/// A left side that grows.
pub(crate) struct Draft {
    graph: Graph,
    state: u64,
    leaves: usize,
}

impl Draft {
    fn new(seed: u64) -> Draft {
        Draft { graph: Graph::new(Facts), state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, leaves: 0 }
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    /// Sizes from 2 to 4.
    pub(crate) fn sizes(&mut self, rank: usize) -> Vec<u64> {
        (0..rank).map(|_| 2 + self.below(3)).collect()
    }

    /// A tensor of random f32.
    pub(crate) fn leaf(&mut self, sizes: &[u64]) -> Id {
        self.leaf_of(DType::F32, sizes)
    }

    /// A tensor of integers.
    pub(crate) fn integers(&mut self, sizes: &[u64]) -> Id {
        self.leaf_of(DType::I32, sizes)
    }

    /// A tensor of random elements.
    pub(crate) fn leaf_of(&mut self, dtype: DType, sizes: &[u64]) -> Id {
        self.leaves += 1;
        self.node(NodeKind::Leaf(Value::new(self.leaves), Shape { dtype, sizes: sizes.to_vec() }), &[])
    }

    /// A node.
    pub(crate) fn node(&mut self, kind: NodeKind, operands: &[Id]) -> Id {
        self.graph.add(Node { kind, operands: operands.to_vec() })
    }

    /// An op without attributes.
    pub(crate) fn plain(&mut self, op: PlainOp, operands: &[Id]) -> Id {
        self.node(NodeKind::Plain(op), operands)
    }

    /// A constant tensor of the shape of another.
    pub(crate) fn full(&mut self, number: f64, like: Id) -> Id {
        let shape = self.shape(like);
        self.node(NodeKind::Full(super::language::Number::new(number), shape), &[])
    }

    /// A tensor with its dims at places.
    pub(crate) fn permute(&mut self, x: Id, places: &[usize]) -> Id {
        let own = self.shape(x).sizes;
        let mut sizes = vec![0; own.len()];
        places.iter().zip(own).for_each(|(&place, size)| sizes[place] = size);
        self.node(NodeKind::Spread(Spread { places: places.to_vec(), sizes }), &[x])
    }

    /// The shape of a tensor.
    pub(crate) fn shape(&self, x: Id) -> Shape {
        self.graph[x].data.shape.clone()
    }

    /// The elements of a tensor, from the first node of its class.
    fn elements(&self, x: Id, precision: Precision) -> Vec<Tensor> {
        let node = &self.graph[x].nodes[0];
        let shape = self.shape(x);
        match &node.kind {
            NodeKind::Leaf(value, _) => vec![leaf(value.index() as u64, &shape, precision)],
            NodeKind::Out(place, _) => vec![self.elements(node.operands[0], precision).swap_remove(*place)],
            _ => {
                let operands: Vec<Tensor> =
                    node.operands.iter().map(|&id| self.elements(id, precision).swap_remove(0)).collect();
                rounded(node, &operands.iter().collect::<Vec<_>>(), &shape, precision)
            }
        }
    }
}

fn leaf(number: u64, shape: &Shape, precision: Precision) -> Tensor {
    let sizes: Vec<usize> = shape.sizes.iter().map(|&size| size as usize).collect();
    let mut draft = Draft::new(1000 + number);
    Tensor::new(&sizes, |_| {
        let random = draft.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0;
        if shape.dtype.is_float() { precision.round(shape.dtype, random) } else { (4.0 * random).round().abs() }
    })
}

/// Asserts that each rule applies to its left sides, and that both sides are equal: to the bit in f32 where the rule is exact.
pub(crate) fn check(rules: &[Rule], cases: &[LeftSide]) {
    for rule in rules {
        let (_, case) = cases.iter().find(|(name, _)| *name == rule.name).unwrap_or_else(|| panic!("{}", rule.name));
        for seed in 0..DRAWN {
            let mut draft = Draft::new(seed + 1);
            let class = case(&mut draft);
            draft.graph.rebuild();
            let found = rule.apply(&Look::new(&draft.graph), class);
            assert!(!found.is_empty(), "`{}` does not apply to the left side of seed {seed}", rule.name);
            for equal in found {
                let right = equal.term.add(&mut draft.graph);
                let sides = |precision| [equal.class, right].map(|id| draft.elements(id, precision).swap_remove(0));
                assert_equal(rule, &sides(Precision::Double), |a, b| (a - b).abs() <= 1e-12 * (1.0 + b.abs()));
                if rule.rounding == Rounding::Exact {
                    assert_equal(rule, &sides(Precision::Own), |a, b| a.to_bits() == b.to_bits());
                }
            }
        }
    }
}

fn assert_equal(rule: &Rule, [left, right]: &[Tensor; 2], is_equal: impl Fn(f64, f64) -> bool) {
    assert_eq!(left.sizes, right.sizes, "{}", rule.name);
    let mut pairs = left.data.iter().zip(&right.data);
    let different = pairs.find(|(a, b)| !is_equal(**a, **b));
    assert!(different.is_none(), "`{}`: {different:?}", rule.name);
}
