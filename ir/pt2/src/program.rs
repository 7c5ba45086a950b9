//! The statements that a recorded graph becomes, over atoms in place of named dims.

use crate::atoms::{Atom, Atoms};
use ir::ops::{AttentionSettings, BinaryKind, CompareKind, GroupLimit, Rope, UnaryKind};
use ir::types::PartialKind;
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
    /// The sum or the maximum over the dims that the result lacks.
    Reduce(PartialKind),
    /// The dims in another order.
    Permute,
    /// The elements in their order, under other dims.
    Reshape,
    /// New dims, along which nothing changes.
    Broadcast,
    /// `length` elements of a dim.
    Slice {
        dim: Moved,
        start: u64,
        length: u64,
    },
    /// Values one after the other along a dim, which is one of its own in each.
    Concat {
        parts: Vec<Atom>,
        whole: Atom,
    },
    /// Zeros before and behind a dim.
    Pad {
        dim: Moved,
        before: u64,
        after: u64,
    },
    /// Windows of a dim, the elements of each behind it.
    Windows {
        dim: Moved,
        size: u64,
        stride: u64,
    },
    /// 1 where the comparison holds, else 0, as integers.
    Compare(CompareKind),
    /// The second operand where the first one is not 0, else the third one.
    Select,
    /// Integers: the index along a dim, by its place.
    Index {
        dim: usize,
    },
    /// A number everywhere, of the element type of the operand.
    Filled(f64),
    /// Elements that bias scores by the distance of query and key: [`Lean`].
    Lean(Lean),
    /// Tokens `[b, s, ..]` in routing groups.
    Group,
    /// Tokens in their sequences again.
    Ungroup,
    /// The highest scores of each token, and as second result the numbers of their experts.
    TopK {
        k: u64,
        limit: Option<GroupLimit>,
    },
    /// The tokens of each expert.
    Dispatch,
    /// The sum of the results of each token's experts, times their weights.
    Combine,
}

/// A dim of an operand, and the one in its place in the result. Statements that move elements have them whole, however views split them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    pub(crate) from: Atom,
    pub(crate) to: Atom,
}

/// Two more elements of queries or of keys, whose products are slopes of heads times positions of keys (ALiBi).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Lean {
    /// The factor of scores.
    pub(crate) scale: f64,
    /// Query heads, and heads of keys.
    pub(crate) heads: [u64; 2],
    pub(crate) is_query: bool,
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
    /// A buffer, which training leaves as it is.
    Constant,
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

/// A value that a model reads.
pub(crate) struct Input {
    pub(crate) var: Var,
    pub(crate) name: String,
    pub(crate) is_int: bool,
}

/// The statements of a model, in order.
#[derive(Default)]
pub(crate) struct LoweredModel {
    /// Its inputs; none if these are the tokens of a text.
    pub(crate) inputs: Vec<Input>,
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

impl LoweredModel {
    /// The dims of a value.
    pub(crate) fn dims(&self, atoms: &Atoms, var: Var) -> Vec<Atom> {
        atoms.leaves(&self.vars[var.0])
    }

    /// The values of integers.
    pub(crate) fn ints(&self) -> BTreeSet<Var> {
        let mut ints: BTreeSet<Var> = self.inputs.iter().filter(|input| input.is_int).map(|input| input.var).collect();
        for statement in &self.statements {
            let moves = matches!(
                statement.action,
                Action::Permute
                    | Action::Reshape
                    | Action::Broadcast
                    | Action::Slice { .. }
                    | Action::Concat { .. }
                    | Action::Group
                    | Action::Ungroup
            );
            let is_int = match statement.action {
                Action::Compare(_) | Action::Index { .. } => true,
                _ => moves && statement.reads().next().is_some_and(|var| ints.contains(&var)),
            };
            ints.extend(is_int.then_some(statement.result));
            ints.extend(statement.second);
        }
        ints
    }
}
