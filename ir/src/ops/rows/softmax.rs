//! `softmax(%x)` over the last dim, and its gradient.

use crate::ids::Value;
use crate::ops::{
    Attrs, BinaryKind, Builder, Cotangents, OpDef, OpFacts, Rows, Shapes, UnaryKind, Work, operands,
    rows::rowwise::Rowwise,
};
use crate::types::{DType, PartialKind, Type};

/// `y = exp(x - max x) / sum exp(x - max x)` over the last dim.
#[derive(Clone, PartialEq, Debug)]
pub struct Softmax;

impl Softmax {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["softmax"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<Softmax, String> {
        Ok(Softmax)
    }

    fn graph(&self, b: &mut Builder<'_>, x: Value) -> Result<Vec<Value>, String> {
        let mut rows = Rowwise::new(b, x);
        let (_, dtype) = rows.last(x);
        let x = rows.cast(x, DType::F32)?;
        let max = rows.reduce(PartialKind::Max, x)?;
        let shifted = rows.with_row(BinaryKind::Sub, x, max)?;
        let exp = rows.unary(UnaryKind::Exp, shifted)?;
        let sum = rows.reduce(PartialKind::Sum, exp)?;
        let y = rows.with_row(BinaryKind::Div, exp, sum)?;
        Ok(vec![rows.cast(y, dtype)?])
    }
}

impl OpDef for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        operands::float("x", x)?;
        operands::rows_and_last("x", x)?;
        Ok(vec![x.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m n! -> *m n!".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        Ok(vec![Some(b.one(SoftmaxGrad, &[call.results[0], dy])?)])
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true]))
    }

    /// Five operations per element: maximum, difference, exponential, sum, quotient.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(5 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        Some(self.graph(b, operands[0]))
    }
}

/// `softmax_grad(%y, %dy)`: `dx = y (dy - sum(y dy))` over the last dim.
#[derive(Clone, PartialEq, Debug)]
pub struct SoftmaxGrad;

impl SoftmaxGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["softmax_grad"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<SoftmaxGrad, String> {
        Ok(SoftmaxGrad)
    }

    fn graph(&self, b: &mut Builder<'_>, y: Value, dy: Value) -> Result<Vec<Value>, String> {
        let mut rows = Rowwise::new(b, y);
        let (_, dtype) = rows.last(y);
        let y = rows.cast(y, DType::F32)?;
        let dy = rows.cast(dy, DType::F32)?;
        let product = rows.binary(BinaryKind::Mul, y, dy)?;
        let sum = rows.reduce(PartialKind::Sum, product)?;
        let centred = rows.with_row(BinaryKind::Sub, dy, sum)?;
        let dx = rows.binary(BinaryKind::Mul, y, centred)?;
        Ok(vec![rows.cast(dx, dtype)?])
    }
}

impl OpDef for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [y, dy] = operands::take(operands, "y, dy")?;
        let dtype = operands::float("y", y)?;
        operands::rows_and_last("y", y)?;
        operands::expect("dy", dy, dtype, &y.dims)?;
        Ok(vec![y.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m n!, *m n! -> *m n!".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true; 2]))
    }

    /// Four operations per element: product, sum, difference, product.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(4 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        Some(self.graph(b, operands[0], operands[1]))
    }
}
