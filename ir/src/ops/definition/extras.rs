//! The abilities of a few ops, one trait each.

use crate::ids::Value;
use crate::ops::{Builder, Equation, InBlocks, Op, Piece, Ragged};
use crate::types::DType;

/// The abilities of an op; most ops have none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// A contraction of two operands, all of whose elements count.
    pub contraction: Option<&'a dyn Contraction>,
    /// An op on a sequence that ranks share.
    pub in_rounds: Option<&'a dyn InRounds>,
    /// An op that carries a state along a sequence.
    pub in_blocks: Option<&'a dyn InBlocks>,
    /// An op that depends on the position in the sequence.
    pub positioned: Option<&'a dyn Positioned>,
    /// An op that draws random numbers.
    pub random: Option<&'a dyn Random>,
}

/// The forms of a contraction whose operands are of 8 bits or have rows that are not filled.
pub trait Contraction: std::fmt::Debug {
    /// Its equation.
    fn equation(&self) -> &Equation;

    /// The contraction of 8-bit operands, which their scales follow; its result has the type `to`.
    fn with_scales(&self, to: DType) -> Op;

    /// The contraction of chunks of rows of its first operand, of which all rows are zeros that the counts, one operand more, leave
    /// out; `None` if the first operand has no such chunks.
    fn with_counts(&self, ragged: Ragged) -> Option<Op>;
}

/// The rounds of an op on a sequence that ranks share. In each, blocks of some operands have gone one rank on.
pub trait InRounds: std::fmt::Debug {
    /// The rounds over blocks of `length` positions; `None` if the results depend on more than the blocks.
    fn rounds(&self, length: u64) -> Option<Rounds>;

    /// Emits the results of two rounds as one, all in f32, for ops of which some are [`RoundResult::Joined`].
    ///
    /// # Errors
    /// No result of the op is joined.
    fn join(&self, builder: &mut Builder<'_>, before: &[Value], next: &[Value]) -> Result<Vec<Value>, String> {
        let _ = (builder, before, next);
        Err("no result of the op is joined".to_string())
    }
}

/// The rounds of an op: what each computes, and how their results become those of the op.
#[derive(Clone, PartialEq, Debug)]
pub struct Rounds {
    /// The op of a round, on blocks.
    pub op: Op,
    /// The operands that go from rank to rank.
    pub travelling: &'static [usize],
    /// The first of the operands that only the first round reads.
    pub once_from: usize,
    /// By result, the use of those of the rounds.
    pub results: &'static [RoundResult],
}

/// The use of a result of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundResult {
    /// It is joined to that of the rounds before: see [`InRounds::join`].
    Joined,
    /// It is added to that of the rounds before.
    Summed,
    /// It is added to that of the rounds before, which has travelled with the operands and goes home in the end.
    Travelling,
}

/// The slices of an op that depends on the position in the sequence.
pub trait Positioned: std::fmt::Debug {
    /// The op on a slice of the sequence.
    fn on_piece(&self, piece: Piece) -> Op;
}

/// The evaluation of an op that draws random numbers.
pub trait Random: std::fmt::Debug {
    /// The op that replaces this one in an evaluation.
    fn in_evaluation(&self) -> Op;
}
