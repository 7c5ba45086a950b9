//! The properties that every op declares. Each default is the conservative one.

use super::{Attr, Equation, Op, OpClass, Piece, Ragged};
use crate::graph::{Block, Span, Stmt};
use crate::ids::Value;
use crate::types::{DType, Type};
use smallvec::SmallVec;
use std::fmt::Debug;

/// The tensors around a statement while it is parsed. Ops whose result shape is a choice (reshape, broadcast) read it here.
pub struct Shapes<'a> {
    /// Types of the operands.
    pub operands: &'a [&'a Type],
    /// Stated types of the results.
    pub results: &'a [Type],
}

/// The request that `gradient` answers.
pub struct Cotangents<'a> {
    /// The operands of the statement.
    pub operands: &'a [Value],
    /// Its results.
    pub results: &'a [Value],
    /// The cotangent of each result; `None` is zero.
    pub given: &'a [Option<Value>],
    /// Per operand, true if its cotangent is needed.
    pub needed: &'a [bool],
}

/// The rows that an op treats alike. Each row of its results depends on one row of some operands and on all of the others; or its
/// results are sums over the rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    /// The leading dims that number the rows in all tensors that have rows; `None`: any division of the elements, in any storage.
    pub dims: Option<usize>,
    /// Per operand, true if it has rows; the others are read whole.
    pub operands: SmallVec<[bool; 8]>,
    /// True if the results are sums over the rows.
    pub sums: bool,
    /// The leading dims of the result of a product that come from its first operand, if all others come from its second one.
    pub product: Option<usize>,
}

impl Rows {
    /// Single elements of all operands.
    pub fn elements(operands: usize) -> Rows {
        Rows { dims: None, operands: SmallVec::from_elem(true, operands), sums: false, product: None }
    }

    /// Rows along the last dim of the first operand.
    pub fn last(operands: &[&Type], have_rows: &[bool]) -> Rows {
        Rows {
            dims: Some(operands[0].rank() - 1),
            operands: SmallVec::from_slice(have_rows),
            sums: false,
            product: None,
        }
    }

    /// Sums over the rows of all operands, which are numbered by this many leading dims.
    pub fn sums(dims: usize, operands: usize) -> Rows {
        Rows { dims: Some(dims), operands: SmallVec::from_elem(true, operands), sums: true, product: None }
    }

    /// A product of two operands, each read whole, whose elements are complete one after the other.
    pub fn product(dims: usize) -> Rows {
        Rows { dims: None, operands: SmallVec::from_elem(false, 2), sums: false, product: Some(dims) }
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

/// An op on a sequence that ranks share, in rounds: in each, blocks of some operands have gone one rank on.
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
    /// It is joined to that of the rounds before: see [`OpDef::join`].
    Joined,
    /// It is added to that of the rounds before.
    Summed,
    /// It is added to that of the rounds before, which has travelled with the operands and goes home in the end.
    Travelling,
}

/// The definition of an op.
pub trait OpDef: Debug {
    /// Its name in the text form.
    fn name(&self) -> &'static str;

    /// Its attributes in the text form; `parse` reads them back.
    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        Vec::new()
    }

    /// Its class.
    fn class(&self) -> OpClass {
        OpClass::Other
    }

    /// The logical types of the results.
    ///
    /// # Errors
    /// The op does not accept the operands; the message has the reason.
    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String>;

    /// The sharding rule for tensors of these shapes: see [`crate::rule`].
    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String;

    /// The groups of operands in which the op is jointly linear. All operands of one group may be partial together, and no
    /// others.
    fn linear(&self, operands: usize) -> Vec<Vec<usize>> {
        let _ = operands;
        Vec::new()
    }

    /// True if the result is the sum of the operands.
    fn is_sum(&self) -> bool {
        false
    }

    /// Emits the cotangents of the operands that are needed.
    ///
    /// # Errors
    /// The op has no gradient.
    fn gradient(&self, builder: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let _ = (builder, call);
        Err(format!("`{}` has no gradient", self.name()))
    }

    /// Floating-point operations on tensors of these local element counts: one per result element unless stated.
    fn flops(&self, operands: &[&Type], results: &[&Type]) -> u64 {
        let _ = operands;
        results.iter().map(|ty| ty.elements()).sum()
    }

    /// Bytes read and written: every operand once, every result once, unless stated.
    fn bytes(&self, operands: &[&Type], results: &[&Type]) -> u64 {
        operands.iter().chain(results).map(|ty| ty.bytes()).sum()
    }

    /// Bytes of its tensors that it does not touch: of a table, the rows that no id names.
    fn untouched(&self, operands: &[&Type], results: &[&Type]) -> u64 {
        let all: u64 = operands.iter().chain(results).map(|ty| ty.bytes()).sum();
        all.saturating_sub(self.bytes(operands, results))
    }

    /// True if the result has the bytes of the operand in their order, so that both may share a buffer without a copy.
    fn is_view(&self) -> bool {
        false
    }

    /// The operands whose buffer the result may overwrite. They have the same number of bytes as the result, and element i of
    /// the result depends only on their element i.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// The operands that the op updates in place, one per result; none if all results are new.
    fn updates(&self) -> &'static [usize] {
        &[]
    }

    /// Operands used causally: result position `t` reads only positions `<= t`. A sequence slice needs only a prefix of them.
    fn causal_operands(&self) -> &'static [usize] {
        &[]
    }

    /// The equation of a contraction of two operands that [`with_scales`](OpDef::with_scales) can take in 8 bits.
    fn contraction(&self) -> Option<&Equation> {
        None
    }

    /// The contraction of 8-bit operands, which their scales follow; its result has the type `to`.
    fn with_scales(&self, to: DType) -> Option<Op> {
        let _ = to;
        None
    }

    /// The op on a slice of the sequence, if it depends on the position in the sequence; otherwise `None`.
    fn on_piece(&self, piece: Piece) -> Option<Op> {
        let _ = piece;
        None
    }

    /// The op that replaces this one in an evaluation; `None`: the same op.
    fn in_evaluation(&self) -> Option<Op> {
        None
    }

    /// True if backward sections recompute the op instead of saving its result, which is a copy of operands that are live
    /// anyway.
    fn is_recomputed(&self) -> bool {
        false
    }

    /// The rows that the op treats alike, each by itself; `None` if a part of the results needs more than a part of the operands.
    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        let _ = operands;
        None
    }

    /// The op on chunks of rows of its first operand, of which all rows are zeros that the counts, one operand more, leave out.
    fn with_counts(&self, ragged: Ragged) -> Option<Op> {
        let _ = ragged;
        None
    }

    /// The rows of the first operand, if the last operand counts those that are filled.
    fn counts(&self) -> Option<Ragged> {
        None
    }

    /// Groups of operands of the result's shape. An element of the result is zero where those of all operands of a group are.
    fn keeps_zeros(&self) -> &'static [&'static [usize]] {
        &[]
    }

    /// Its part in the routing of tokens; `None` if it has none.
    fn routed(&self) -> Option<Routed> {
        None
    }

    /// The op in rounds over blocks of `length` positions; `None` if its results depend on more than the blocks.
    fn rounds(&self, length: u64) -> Option<Rounds> {
        let _ = length;
        None
    }

    /// Emits the results of two rounds as one, all in f32.
    ///
    /// # Errors
    /// The op has no rounds.
    fn join(&self, builder: &mut Builder<'_>, before: &[Value], next: &[Value]) -> Result<Vec<Value>, String> {
        let _ = (builder, before, next);
        Err(format!("`{}` has no rounds", self.name()))
    }

    /// True if the op may be sharded along a `!` factor; it is then decomposed.
    fn expands_when_sharded(&self) -> bool {
        false
    }

    /// Emits the op as a graph of smaller ops and returns the results. Composite ops use it, and ops with a sharded `!` dim.
    fn expand(&self, builder: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        let _ = (builder, operands);
        None
    }
}

/// Appends statements to a block's values and a list.
pub struct Builder<'a> {
    /// The block whose values grow.
    pub block: &'a mut Block,
    /// The statements so far.
    pub stmts: Vec<Stmt>,
}

impl<'a> Builder<'a> {
    /// A builder with no statements yet.
    pub fn new(block: &'a mut Block) -> Builder<'a> {
        Builder { block, stmts: Vec::new() }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        self.block.ty(value)
    }

    /// Appends a statement whose results take the next free numbers.
    ///
    /// # Errors
    /// The op does not accept the operands.
    pub fn op(&mut self, op: impl Into<Op>, operands: &[Value]) -> Result<Vec<Value>, String> {
        let op = op.into();
        let types: Vec<&Type> = operands.iter().map(|&v| self.block.ty(v)).collect();
        let inferred = op.infer(&types).map_err(|why| format!("`{}`: {why}", op.name()))?;
        let results: Vec<Value> = inferred.into_iter().map(|ty| self.block.add_value("", ty)).collect();
        let operands = operands.to_vec();
        let stmt = Stmt {
            results: results.clone(),
            accumulate: false,
            op,
            operands,
            comments: Vec::new(),
            span: Span::default(),
        };
        self.stmts.push(stmt);
        Ok(results)
    }

    /// The same for an op with one result.
    ///
    /// # Errors
    /// The op does not accept the operands, or it does not have exactly one result.
    pub fn one(&mut self, op: impl Into<Op>, operands: &[Value]) -> Result<Value, String> {
        match self.op(op, operands)?.as_slice() {
            [value] => Ok(*value),
            results => Err(format!("wanted one result, got {}", results.len())),
        }
    }

    /// The same, and names the result.
    ///
    /// # Errors
    /// The op does not accept the operands, or it does not have exactly one result.
    pub fn named(&mut self, name: &str, op: impl Into<Op>, operands: &[Value]) -> Result<Value, String> {
        let value = self.one(op, operands)?;
        self.block.values[value].name = name.to_string();
        Ok(value)
    }
}
