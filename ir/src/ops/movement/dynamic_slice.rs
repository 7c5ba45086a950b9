//! `dynamic_slice(%x, %start, dim=1, length=4)`: a range of one dim from a start known at run time, and
//! `dynamic_pad`, which puts the range back among zeros. A start out of bounds is clamped to the nearest valid one.

use super::slice::{factors, resized, sliced_dim};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// `(x [*m, n, *h], start i32[]) -> [*m, length, *h]`.
#[derive(Clone, PartialEq, Debug)]
pub struct DynamicSlice {
    /// The dim.
    pub dim: usize,
    /// The number of elements, at least 1.
    pub length: u64,
}

impl DynamicSlice {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["dynamic_slice"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<DynamicSlice, String> {
        Ok(DynamicSlice { dim: attrs.int("dim")? as usize, length: attrs.int("length")? })
    }
}

/// The fault of a range of `length` that does not fit a dim of `size`.
fn fault(length: u64, size: u64) -> Option<String> {
    let fits = (1..=size).contains(&length);
    (!fits).then(|| format!("{length} is not a range of a dim of {size}"))
}

/// The rule of an op that makes `j` of `i` at a dim, and reads a scalar.
fn rule(rank: usize, dim: usize) -> String {
    format!("{}, () -> {}", factors(rank, dim, "i"), factors(rank, dim, "j"))
}

impl OpDef for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("dim", Attr::int(self.dim as u64)), ("length", Attr::int(self.length))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, start] = operands::take(operands, "x, start")?;
        operands::float("x", x)?;
        operands::expect("start", start, DType::I32, &[])?;
        fault(self.length, sliced_dim(x, self.dim)?.size).map_or(Ok(()), Err)?;
        Ok(vec![resized(x, self.dim, self.length)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        rule(operands[0].rank(), self.dim)
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None; 2]) };
        let whole = b.ty(call.operands[0]).logical().dims[self.dim].clone();
        Ok(vec![Some(b.one(DynamicPad { dim: self.dim, whole }, &[dy, call.operands[1]])?), None])
    }

    /// Only the range is read.
    fn work(&self, _: &[&Type], results: &[&Type]) -> Work {
        Work { flops: 0, bytes: 2 * results[0].bytes() }
    }
}

/// `(y [*m, length, *h], start i32[]) -> [*m, n, *h]`: zeros but for the range. The stated result type gives n. The transpose
/// of [`DynamicSlice`].
#[derive(Clone, PartialEq, Debug)]
pub struct DynamicPad {
    /// The dim.
    pub dim: usize,
    /// The dim n, logical.
    pub whole: Dim,
}

impl DynamicPad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["dynamic_pad"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<DynamicPad, String> {
        let dim = attrs.int("dim")? as usize;
        let result = shapes.results.first().ok_or("has no result")?.logical();
        Ok(DynamicPad { dim, whole: sliced_dim(&result, dim)?.clone() })
    }
}

impl OpDef for DynamicPad {
    fn name(&self) -> &'static str {
        "dynamic_pad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("dim", Attr::int(self.dim as u64))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [y, start] = operands::take(operands, "y, start")?;
        operands::float("y", y)?;
        operands::expect("start", start, DType::I32, &[])?;
        fault(sliced_dim(y, self.dim)?.size, self.whole.size).map_or(Ok(()), Err)?;
        let mut ty = y.logical();
        ty.dims[self.dim] = self.whole.clone();
        Ok(vec![ty])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        rule(operands[0].rank(), self.dim)
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dx), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None; 2]) };
        let (y, start) = (call.operands[0], call.operands[1]);
        let dims = b.ty(y).logical().dims;
        let length = sliced_dim(b.ty(y), self.dim)?.size;
        let dy = b.one(DynamicSlice { dim: self.dim, length }, &[dx, start])?;
        b.block.values[dy].ty.dims = dims;
        Ok(vec![Some(dy), None])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
