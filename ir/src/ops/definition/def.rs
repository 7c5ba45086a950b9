//! The definition of an op: what each op states of itself, once.

use crate::graph::{Block, Span, Stmt};
use crate::ids::Value;
use crate::ops::{Attr, Extras, Op, OpFacts, Work};
use crate::types::Type;
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

/// The result of what an op checks or emits. The error is the reason, which names operands as the op's signature does.
pub type OpResult<T> = Result<T, String>;

/// The definition of an op.
pub trait OpDef: Debug {
    /// Its name in the text form.
    fn name(&self) -> &'static str;

    /// Its attributes in the text form; `parse` reads them back.
    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        Vec::new()
    }

    /// Its simple properties.
    fn facts(&self) -> OpFacts {
        OpFacts::default()
    }

    /// The logical types of the results.
    ///
    /// # Errors
    /// The op does not accept the operands; the message has the reason.
    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>>;

    /// The sharding rule for tensors of these shapes: see [`crate::rule`].
    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String;

    /// Emits the cotangents of the operands that are needed.
    ///
    /// # Errors
    /// The op has no gradient.
    fn gradient(&self, builder: &mut Builder<'_>, call: &Cotangents<'_>) -> OpResult<Vec<Option<Value>>> {
        let _ = (builder, call);
        Err(format!("`{}` has no gradient", self.name()))
    }

    /// The rows that the op treats alike, each by itself; `None` if a part of the results needs more than a part of the operands.
    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        let _ = operands;
        None
    }

    /// Its work on tensors of these local element counts: one operation per result element, and each tensor once, unless stated.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(results.iter().map(|ty| ty.elements()).sum(), operands, results)
    }

    /// Emits the op as a graph of smaller ops and returns the results. Composite ops use it, and ops with a sharded `!` dim.
    fn expand(&self, builder: &mut Builder<'_>, operands: &[Value]) -> Option<OpResult<Vec<Value>>> {
        let _ = (builder, operands);
        None
    }

    /// Its abilities that few ops have.
    fn extras(&self) -> Extras<'_> {
        Extras::default()
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
    pub fn op(&mut self, op: impl Into<Op>, operands: &[Value]) -> OpResult<Vec<Value>> {
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
    pub fn one(&mut self, op: impl Into<Op>, operands: &[Value]) -> OpResult<Value> {
        match self.op(op, operands)?.as_slice() {
            [value] => Ok(*value),
            results => Err(format!("wanted one result, got {}", results.len())),
        }
    }

    /// The same, and names the result.
    ///
    /// # Errors
    /// The op does not accept the operands, or it does not have exactly one result.
    pub fn named(&mut self, name: &str, op: impl Into<Op>, operands: &[Value]) -> OpResult<Value> {
        let value = self.one(op, operands)?;
        self.block.values[value].name = name.to_string();
        Ok(value)
    }
}
