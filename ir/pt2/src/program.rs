//! The statements that a recorded graph becomes, over atoms in place of named dims.

use crate::atoms::Atom;
use ir::ops::{AttentionSettings, BinaryKind, Rope, UnaryKind};
use std::collections::BTreeSet;

/// A value, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Var(pub(crate) usize);

/// An operand of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Argument {
    Var(Var),
    /// A weight, by number.
    Weight(usize),
    Tokens,
    Positions,
    Segments,
}

/// The computation of a statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Action {
    Embedding {
        pad: Option<u64>,
    },
    /// A product, summed over the dims that the result lacks.
    Product,
    Unary(UnaryKind),
    Binary(BinaryKind),
    RmsNorm {
        eps: f64,
    },
    LayerNorm {
        eps: f64,
    },
    Rope(Rope),
    Attention(AttentionSettings),
    /// The softmax along the last dim.
    Softmax,
    /// The sum over the last dim.
    Sum,
    /// Tokens `[b, s, ..]` in routing groups.
    Group,
    /// Tokens in their sequences again.
    Ungroup,
    /// The highest scores of each token, and as second result the numbers of their experts.
    TopK {
        k: u64,
    },
    /// The tokens of each expert.
    Dispatch,
    /// The sum of the results of each token's experts, times their weights.
    Combine,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Statement {
    pub(crate) action: Action,
    pub(crate) operands: Vec<Argument>,
    pub(crate) result: Var,
    pub(crate) second: Option<Var>,
    /// The node that it comes from.
    pub(crate) node: usize,
}

impl Statement {
    /// Its results.
    pub(crate) fn results(&self) -> impl Iterator<Item = Var> {
        [Some(self.result), self.second].into_iter().flatten()
    }

    /// The values that it reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Var> {
        self.operands.iter().filter_map(|operand| if let Argument::Var(var) = operand { Some(*var) } else { None })
    }
}

/// The use of a parameter, which decides its first numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Matrix,
    Gain,
    Bias,
}

/// Some elements of a stored parameter: a first one, and the distances of neighbours along each dim.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct View {
    /// The name of the parameter.
    pub(crate) tensor: String,
    pub(crate) first: u64,
    pub(crate) dims: Vec<(Atom, u64)>,
    /// The number that is added to each element.
    pub(crate) shift: f64,
}

/// A parameter of the model.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Weight {
    pub(crate) view: View,
    pub(crate) usage: Use,
}

/// The statements of a model, in order.
#[derive(Default)]
pub(crate) struct LoweredModel {
    /// The dims of each value.
    pub(crate) vars: Vec<Vec<Atom>>,
    pub(crate) weights: Vec<Weight>,
    pub(crate) statements: Vec<Statement>,
    /// Values whose tokens are in routing groups.
    pub(crate) grouped: BTreeSet<Var>,
    /// The rows of experts, and the numbers of experts of each token.
    pub(crate) routing: RoutingDims,
}

/// Dims that only layers with experts have.
#[derive(Default)]
pub(crate) struct RoutingDims {
    /// All rows of all experts.
    pub(crate) rows: BTreeSet<Atom>,
    /// The experts of a token.
    pub(crate) chosen: BTreeSet<Atom>,
}
