//! The analysis of the e-graph: the shape of each class, its number if it is constant, and the value that holds it.

use super::language::{Contraction, Made, Node, NodeKind, Number, Shape};
use super::plain::PlainOp;
use egg::{Analysis, DidMerge, EGraph, Id};
use ir::ids::Value;
use ir::types::DType;

/// The e-graph of a section.
pub(crate) type Graph = EGraph<Node, Facts>;

/// The analysis.
#[derive(Default)]
pub(crate) struct Facts;

/// The facts of a class.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fact {
    /// Its shape.
    pub(crate) shape: Shape,
    /// The number that all its elements are.
    pub(crate) number: Option<Number>,
    /// True if all elements are known to be finite.
    pub(crate) is_finite: bool,
    /// The first value of the block that holds it, after the number of its statement from 1; arguments have 0.
    pub(crate) value: Option<(usize, Value)>,
}

impl Analysis<Node> for Facts {
    type Data = Fact;

    fn make(graph: &mut Graph, node: &Node, _: Id) -> Fact {
        let operands: Vec<&Fact> = node.operands.iter().map(|&id| &graph[id].data).collect();
        let number = number(node, &operands);
        let is_finite = number.is_some_and(|number| number.get().is_finite()) || is_finite(node, &operands);
        Fact { shape: shape(node, &operands), number, is_finite, value: None }
    }

    fn merge(&mut self, to: &mut Fact, from: Fact) -> DidMerge {
        debug_assert_eq!(to.shape, from.shape, "a rule equates tensors of two shapes");
        let merged = Fact {
            shape: to.shape.clone(),
            number: to.number.or(from.number),
            is_finite: to.is_finite || from.is_finite,
            value: [to.value, from.value].into_iter().flatten().min(),
        };
        let changed = DidMerge(*to != merged, from != merged);
        *to = merged;
        changed
    }

    /// Adds the constant tensor to the class of a constant.
    fn modify(graph: &mut Graph, id: Id) {
        let Fact { shape, number: Some(number), .. } = graph[id].data.clone() else { return };
        let full = graph.add(Node { kind: NodeKind::Full(number, shape), operands: Vec::new() });
        graph.union(id, full);
    }
}

/// The shape of a node. That of several results is never read.
fn shape(node: &Node, operands: &[&Fact]) -> Shape {
    let scalar = Shape { dtype: DType::F32, sizes: Vec::new() };
    let first = operands.first().map_or(scalar.clone(), |fact| fact.shape.clone());
    match &node.kind {
        NodeKind::Leaf(_, shape) | NodeKind::Full(_, shape) | NodeKind::Out(_, shape) => shape.clone(),
        NodeKind::Plain(PlainOp::Less | PlainOp::LessEqual | PlainOp::Equal) => first.with(DType::I32),
        NodeKind::Plain(PlainOp::SumExp | PlainOp::Pick) => operands[1].shape.with(DType::F32),
        NodeKind::Plain(PlainOp::TokenLoss) => scalar,
        NodeKind::Made(Made::Embedding) => {
            let width = operands[1].shape.sizes[1];
            first.resized([first.sizes.clone(), vec![width]].concat()).with(operands[1].shape.dtype)
        }
        NodeKind::Plain(_) | NodeKind::Made(_) => first,
        NodeKind::Cast(dtype) => first.with(*dtype),
        NodeKind::Spread(spread) => first.resized(spread.sizes.clone()),
        NodeKind::Reshape(sizes) => first.resized(sizes.clone()),
        NodeKind::Reduce { over, .. } => {
            let kept = first.sizes.iter().enumerate().filter(|(dim, _)| !over.contains(dim));
            first.resized(kept.map(|(_, &size)| size).collect())
        }
        NodeKind::Einsum(equation) => first.resized(result_sizes(equation, operands)),
        NodeKind::Slice(dim, _, length) => first.with_dim(*dim, *length),
        NodeKind::Concat(dim) => first.with_dim(*dim, operands.iter().map(|fact| fact.shape.sizes[*dim]).sum()),
        NodeKind::Iota(size) => Shape { dtype: DType::I32, sizes: vec![*size] },
        NodeKind::Select(_) => operands[1].shape.clone(),
        NodeKind::Dropout(..) => first,
        NodeKind::Take(dim) => {
            let (outer, inner) = (&first.sizes[..*dim], &first.sizes[dim + 1..]);
            first.resized([outer, &operands[1].shape.sizes, inner].concat())
        }
    }
}

/// The sizes of the result of a contraction.
fn result_sizes(equation: &Contraction, operands: &[&Fact]) -> Vec<u64> {
    let size = |index: &u8| {
        let place = |(indices, fact): (&Vec<u8>, &&Fact)| {
            indices.iter().position(|other| other == index).map(|place| fact.shape.sizes[place])
        };
        equation.operands.iter().zip(operands).find_map(place)
    };
    equation.result.iter().filter_map(size).collect()
}

/// The number that all elements of a node are, if its operands tell it.
fn number(node: &Node, operands: &[&Fact]) -> Option<Number> {
    let constant = |place: usize| operands.get(place)?.number.map(Number::get);
    let value = match &node.kind {
        NodeKind::Full(number, _) => return Some(*number),
        NodeKind::Spread(_) | NodeKind::Reshape(_) | NodeKind::Slice(..) | NodeKind::Cast(_) => constant(0)?,
        NodeKind::Plain(PlainOp::Mul) => match (constant(0), constant(1)) {
            (Some(a), Some(b)) => a * b,
            (_, Some(0.0)) if operands[0].is_finite => 0.0,
            (Some(0.0), _) if operands[1].is_finite => 0.0,
            _ => return None,
        },
        NodeKind::Plain(op) => elementwise(*op, constant(0)?, constant(1))?,
        _ => return None,
    };
    Some(Number::new(value))
}

/// An elementwise function of numbers.
fn elementwise(op: PlainOp, a: f64, b: Option<f64>) -> Option<f64> {
    Some(match (op, b) {
        (PlainOp::Add, Some(b)) => a + b,
        (PlainOp::Sub, Some(b)) => a - b,
        (PlainOp::Div, Some(b)) => a / b,
        (PlainOp::Max, Some(b)) => a.max(b),
        (PlainOp::Neg, None) => -a,
        (PlainOp::Exp, None) => a.exp(),
        (PlainOp::Log, None) => a.ln(),
        (PlainOp::Sqrt, None) => a.sqrt(),
        (PlainOp::Rsqrt, None) => 1.0 / a.sqrt(),
        (PlainOp::Recip, None) => 1.0 / a,
        (PlainOp::Square, None) => a * a,
        _ => return None,
    })
}

/// True if all elements of a node are finite: integers as floats are.
fn is_finite(node: &Node, operands: &[&Fact]) -> bool {
    match &node.kind {
        NodeKind::Iota(_) => true,
        NodeKind::Cast(to) => operands[0].shape.dtype == DType::I32 && matches!(to, DType::F32 | DType::BF16),
        NodeKind::Spread(_) | NodeKind::Reshape(_) | NodeKind::Slice(..) => operands[0].is_finite,
        _ => false,
    }
}
