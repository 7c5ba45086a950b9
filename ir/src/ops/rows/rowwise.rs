//! Builders of statements over the last dim, for the decompositions of softmax, cross-entropy and the norms.

use crate::ids::Value;
use crate::ops::{Binary, BinaryKind, Builder, Reduce, Unary, UnaryKind};
use crate::types::{DType, PartialKind};

/// Builds on tensors `[rows.., n]`, `[rows..]` and `[n]`.
pub(in crate::ops) struct Rowwise<'b, 'a> {
    b: &'b mut Builder<'a>,
    rows: String,
}

impl<'b, 'a> Rowwise<'b, 'a> {
    /// On tensors with the dims of this one.
    pub(in crate::ops) fn new(b: &'b mut Builder<'a>, like: Value) -> Rowwise<'b, 'a> {
        let rows: Vec<String> = (1..b.ty(like).rank()).map(|place| format!("m{place}")).collect();
        Rowwise { b, rows: rows.join(" ") }
    }

    /// The size of the last dim and the element type of a value.
    pub(in crate::ops) fn last(&self, x: Value) -> (u64, DType) {
        let ty = self.b.ty(x);
        (ty.dims.last().map_or(1, |dim| dim.size), ty.dtype)
    }

    /// The value in an element type; a cast where it has another.
    pub(in crate::ops) fn cast(&mut self, x: Value, to: DType) -> Result<Value, String> {
        if self.b.ty(x).dtype == to { Ok(x) } else { self.unary(UnaryKind::Cast(to), x) }
    }

    /// An elementwise function.
    pub(in crate::ops) fn unary(&mut self, kind: UnaryKind, x: Value) -> Result<Value, String> {
        self.b.one(Unary(kind), &[x])
    }

    /// An elementwise function of two values of the same dims.
    pub(in crate::ops) fn binary(&mut self, kind: BinaryKind, x: Value, y: Value) -> Result<Value, String> {
        self.b.one(Binary::of(kind), &[x, y])
    }

    /// An elementwise function of `[rows.., n]` and `[rows..]`.
    pub(in crate::ops) fn with_row(&mut self, kind: BinaryKind, x: Value, row: Value) -> Result<Value, String> {
        let rows = &self.rows;
        self.b.one(Binary::spread(kind, &format!("{rows} n, {rows} -> {rows} n"))?, &[x, row])
    }

    /// An elementwise function of `[rows.., n]` and `[n]`.
    pub(in crate::ops) fn with_column(&mut self, kind: BinaryKind, x: Value, column: Value) -> Result<Value, String> {
        let rows = &self.rows;
        self.b.one(Binary::spread(kind, &format!("{rows} n, n -> {rows} n"))?, &[x, column])
    }

    /// The sum or maximum of each row.
    pub(in crate::ops) fn reduce(&mut self, kind: PartialKind, x: Value) -> Result<Value, String> {
        let rows = &self.rows;
        self.b.one(Reduce::new(kind, &format!("{rows} n -> {rows}"))?, &[x])
    }

    /// The mean of each row.
    pub(in crate::ops) fn mean(&mut self, x: Value) -> Result<Value, String> {
        let (size, _) = self.last(x);
        let sum = self.reduce(PartialKind::Sum, x)?;
        self.unary(UnaryKind::Scale(1.0 / size as f64), sum)
    }
}
