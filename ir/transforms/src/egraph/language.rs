//! The language of the e-graph: a section's statements in a normal form without implicit broadcasting.
//!
//! - Permutations, broadcasts, new dims of one element and equations of elementwise ops are one node, [`NodeKind::Spread`].
//! - Constants are tensors of one number, so `scale` is a product and `shift` a sum.
//! - A value that the language does not describe is a leaf.

use super::plain::PlainOp;
use egg::{Id, Language};
use ir::ids::Value;
use ir::types::DType;
use std::ops::Range;

/// A number that is compared and hashed by its bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Number(u64);

impl Number {
    /// The number of a float.
    pub(crate) fn new(value: f64) -> Number {
        Number(value.to_bits())
    }

    /// The float.
    pub(crate) fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Element type and sizes of a tensor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Shape {
    /// The element type.
    pub(crate) dtype: DType,
    /// The sizes, slowest first.
    pub(crate) sizes: Vec<u64>,
}

impl Shape {
    /// The number of dims.
    pub(crate) fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The shape with another element type.
    pub(crate) fn with(&self, dtype: DType) -> Shape {
        Shape { dtype, sizes: self.sizes.clone() }
    }

    /// The shape with other sizes.
    pub(crate) fn resized(&self, sizes: Vec<u64>) -> Shape {
        Shape { dtype: self.dtype, sizes }
    }

    /// The shape with another size in one dim.
    pub(crate) fn with_dim(&self, dim: usize, size: u64) -> Shape {
        let mut shape = self.clone();
        shape.sizes[dim] = size;
        shape
    }
}

/// The place of each dim of the operand in a result that repeats the operand along its other dims.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Spread {
    /// Per dim of the operand, its place in the result.
    pub(crate) places: Vec<usize>,
    /// The sizes of the result.
    pub(crate) sizes: Vec<u64>,
}

impl Spread {
    /// This spread of the result of another one.
    pub(crate) fn after(&self, inner: &Spread) -> Spread {
        let places = inner.places.iter().map(|&place| self.places[place]).collect();
        Spread { places, sizes: self.sizes.clone() }
    }

    /// True if the result is the operand.
    pub(crate) fn is_identity(&self) -> bool {
        self.places.len() == self.sizes.len() && self.places.iter().enumerate().all(|(dim, &place)| dim == place)
    }

    /// True if the result only has the operand's dims in another order.
    pub(crate) fn is_permutation(&self) -> bool {
        self.places.len() == self.sizes.len()
    }

    /// True if the result is the operand with new dims of one element.
    pub(crate) fn is_view(&self) -> bool {
        let mut new = (0..self.sizes.len()).filter(|place| !self.places.contains(place));
        self.places.is_sorted() && new.all(|place| self.sizes[place] == 1)
    }
}

/// A contraction of two tensors; each index of the result is one of an operand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Contraction {
    /// The indices of both operands.
    pub(crate) operands: [Vec<u8>; 2],
    /// The indices of the result.
    pub(crate) result: Vec<u8>,
}

impl Contraction {
    /// The contraction whose indices are numbered in the order of their first use.
    pub(crate) fn numbered(operands: [&[usize]; 2], result: &[usize]) -> Contraction {
        let mut known: Vec<usize> = Vec::new();
        let mut number = |index: &usize| {
            let place = known.iter().position(|other| other == index);
            place.unwrap_or_else(|| {
                known.push(*index);
                known.len() - 1
            }) as u8
        };
        let operands = operands.map(|indices| indices.iter().map(&mut number).collect());
        Contraction { operands, result: result.iter().map(number).collect() }
    }

    /// The indices of an operand.
    pub(crate) fn indices(&self, operand: usize) -> Vec<usize> {
        self.operands[operand].iter().map(|&index| usize::from(index)).collect()
    }

    /// The indices of the result.
    pub(crate) fn results(&self) -> Vec<usize> {
        self.result.iter().map(|&index| usize::from(index)).collect()
    }
}

/// The most dims of one element that a rule may give a tensor: those of a batch and of a group of heads.
pub(crate) const UNITS: usize = 2;

/// The number of dims of one element. Rules give no tensor several of them that had none: these would grow without end.
pub(crate) fn units(sizes: &[u64]) -> usize {
    sizes.iter().filter(|&&size| size == 1).count()
}

/// The adjacent dims that a reshape merges to each dim of its result; `None` if it splits dims or adds some.
pub(crate) fn merged(from: &[u64], to: &[u64]) -> Option<Vec<Range<usize>>> {
    let (mut groups, mut next) = (Vec::new(), 0);
    for (place, &size) in to.iter().enumerate() {
        let (start, mut product) = (next, 1);
        while next < from.len() && (product < size || (next == start && from[next] == 1)) {
            product *= from[next];
            next += 1;
        }
        while next < from.len() && from[next] == 1 && to.get(place + 1).is_none_or(|&size| size != 1) {
            next += 1;
        }
        if product != size || start == next {
            return None;
        }
        groups.push(start..next);
    }
    (next == from.len()).then_some(groups)
}

/// An op with attributes that a recogniser makes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Made {
    /// `rms_norm` with its `eps`.
    RmsNorm(Number),
    /// `layer_norm` with its `eps`.
    LayerNorm(Number),
    /// `cross_entropy`.
    CrossEntropy,
    /// `attention` of an entire sequence.
    Attention {
        /// The factor of the scores.
        scale: Number,
        /// True if a query sees no later keys.
        causal: bool,
        /// Probability and path of the dropout of the weights, if any.
        dropout: Option<(Number, String)>,
    },
    /// `rope` without scaling of its frequencies.
    Rope {
        /// The base of the frequencies.
        theta: Number,
    },
    /// `embedding` without a padding id.
    Embedding,
}

/// The operator of a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum NodeKind {
    /// An argument, or the result of a statement that the language does not describe.
    Leaf(Value, Shape),
    /// A tensor whose elements all are one number.
    Full(Number, Shape),
    /// An op without attributes. Elementwise operands have the same dims.
    Plain(PlainOp),
    /// A conversion to a float type.
    Cast(DType),
    /// A repetition and permutation of dims.
    Spread(Spread),
    /// The same elements under other sizes.
    Reshape(Vec<u64>),
    /// A sum or maximum over some dims.
    Reduce {
        /// True for a maximum.
        is_max: bool,
        /// The dims, in ascending order.
        over: Vec<usize>,
    },
    /// A contraction.
    Einsum(Contraction),
    /// A range of a dim: dim, start, length.
    Slice(usize, u64, u64),
    /// A concatenation along a dim.
    Concat(usize),
    /// The integers from 0, as a tensor of one dim.
    Iota(u64),
    /// A choice by a mask; `true` selects where the mask is 0.
    Select(bool),
    /// The entries of a dim at indices.
    Take(usize),
    /// Random zeros, by probability and path.
    Dropout(Number, String),
    /// An op that a recogniser makes; of its results, [`NodeKind::Out`] is one.
    Made(Made),
    /// The result of an op at a place, and its shape.
    Out(usize, Shape),
}

/// A node of the e-graph.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node {
    /// The operator.
    pub(crate) kind: NodeKind,
    /// The classes of the operands.
    pub(crate) operands: Vec<Id>,
}

impl Node {
    /// The name of its op, if it is one that recognisers make.
    pub(crate) fn name(&self) -> &'static str {
        match &self.kind {
            NodeKind::Plain(op) => op.name(),
            NodeKind::Made(Made::RmsNorm(_)) => "rms_norm",
            NodeKind::Made(Made::LayerNorm(_)) => "layer_norm",
            NodeKind::Made(Made::CrossEntropy) => "cross_entropy",
            NodeKind::Made(Made::Attention { .. }) => "attention",
            NodeKind::Made(Made::Rope { .. }) => "rope",
            NodeKind::Made(Made::Embedding) => "embedding",
            _ => "",
        }
    }
}

impl Language for Node {
    type Discriminant = std::mem::Discriminant<NodeKind>;

    fn discriminant(&self) -> Self::Discriminant {
        std::mem::discriminant(&self.kind)
    }

    fn matches(&self, other: &Node) -> bool {
        self.kind == other.kind && self.operands.len() == other.operands.len()
    }

    fn children(&self) -> &[Id] {
        &self.operands
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.operands
    }
}
