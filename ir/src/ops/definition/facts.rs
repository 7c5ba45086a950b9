//! The facts that an op states about itself, for passes that know no op by name.

use crate::ops::Ragged;

/// The simple properties of an op. Each default is the conservative one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct OpFacts {
    /// Its class.
    pub class: OpClass,
    /// The operands that may be partial.
    pub linear: Linear,
    /// True if the result is the sum of the operands.
    pub is_sum: bool,
    /// True if the result has the bytes of the operand in their order, so that both may share a buffer without a copy.
    pub is_view: bool,
    /// Operands whose buffer the result may overwrite: of equal bytes, and read for element i of the result only at i.
    pub in_place: &'static [usize],
    /// The operands that the op updates in place, one per result; none if all results are new.
    pub updates: &'static [usize],
    /// Operands used causally: result position `t` reads only positions `<= t`. A sequence slice needs only a prefix of them.
    pub causal_operands: &'static [usize],
    /// Operands that the op takes as constants: nothing flows back to them.
    pub constants: &'static [usize],
    /// Groups of operands of the result's shape. An element of the result is zero where those of all operands of a group are.
    pub keeps_zeros: &'static [&'static [usize]],
    /// True if backward sections recompute the op, which copies live operands, instead of saving its result.
    pub is_recomputed: bool,
    /// True if the op may be sharded along a `!` factor; it is then decomposed.
    pub expands_when_sharded: bool,
    /// The record that notes the result. Nothing flows back through such an op.
    pub noted: Option<Noted>,
    /// Its part in the routing of tokens; `None` if it has none.
    pub routed: Option<Routed>,
    /// The rows of the first operand, if the last operand counts those that are filled.
    pub counts: Option<Ragged>,
}

/// A record that notes the first result of an op: a parameter whose gradient is that result, and nothing else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Noted {
    /// The operand that is the record.
    pub record: usize,
    /// The bias that is moved towards even numbers in the record.
    pub bias: Option<MovedBias>,
}

/// A bias that no loss trains: each step moves it by a rate, up where the record is below its mean, and down where it is above.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MovedBias {
    /// The operand that is the bias.
    pub operand: usize,
    /// How far it moves.
    pub rate: f64,
}

/// The class of an op: what passes that treat some ops differently ask for, in place of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpClass {
    /// A contraction of tensors.
    Product,
    /// Attention or its gradient. Dims 1 and 2 of its large results are the sequence and the heads, which are independent.
    Attention,
    /// A norm of rows.
    Norm,
    /// A nonlinear function of one value, or a product with one, as feed-forward nets have between their matrices.
    Activation,
    /// All else.
    #[default]
    Other,
}

/// The operands in which an op is linear. All operands of one group may be partial together, and no others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Linear {
    /// No operand.
    #[default]
    No,
    /// Each of these operands, as a group of its own; those that a statement leaves out do not count.
    Each(&'static [usize]),
    /// Each of the first operands, up to this number, as a group of its own.
    First(usize),
    /// All operands from this one on, as one group.
    From(usize),
}

impl Linear {
    /// The groups of a statement with this number of operands.
    pub fn groups(self, operands: usize) -> Vec<Vec<usize>> {
        let each = |place: usize| vec![place];
        match self {
            Linear::No => Vec::new(),
            Linear::Each(places) => places.iter().copied().filter(|&place| place < operands).map(each).collect(),
            Linear::First(count) => (0..count).map(each).collect(),
            Linear::From(first) => vec![(first..operands).collect()],
        }
    }
}

/// The part of an op in the routing of tokens to chunks of rows, `[*g, e, c, h]`, by their choices, `[*g, t, k]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Routed {
    /// The operand with the choices.
    pub choices: usize,
    /// The tensor of rows.
    pub rows: RoutedRows,
}

/// The tensor of rows of an op that routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoutedRows {
    /// Its first result. Rows that no choice fills are zeros, and the second result counts the choices of each chunk, in order of
    /// which they fill rows.
    Filled,
    /// An operand, of which it reads no row that a choice does not fill.
    Read(usize),
}
