//! `cross_entropy(%logits, %labels)` over the last dim, and its gradient. Labels below 0 are ignored.

use crate::ids::Value;
use crate::ops::{
    Attrs, Binary, BinaryKind, Builder, Cotangents, OpDef, OpFacts, Pick, Rows, Shapes, SumExp, TokenLoss, Unary,
    UnaryKind, Work, operands, rows::rowwise::Rowwise,
};
use crate::types::{DType, PartialKind, Type};

/// `(logits [*m, v], labels i32[*m]) -> loss f32[], lse f32[*m]`: `lse` is the natural log of the sum of exponentials of a
/// row, `loss` the SUM of `lse - logits[label]` over the rows whose label is not ignored.
#[derive(Clone, PartialEq, Debug)]
pub struct CrossEntropy;

impl CrossEntropy {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["cross_entropy"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<CrossEntropy, String> {
        Ok(CrossEntropy)
    }

    fn graph(&self, b: &mut Builder<'_>, logits: Value, labels: Value) -> Result<Vec<Value>, String> {
        let mut rows = Rowwise::new(b, logits);
        let max = rows.reduce(PartialKind::Max, logits)?;
        let max = rows.cast(max, DType::F32)?;
        let sum = b.one(SumExp, &[logits, max])?;
        let log = b.one(Unary(UnaryKind::Log), &[sum])?;
        let lse = b.one(Binary::of(BinaryKind::Add), &[log, max])?;
        let picked = b.one(Pick, &[logits, labels])?;
        Ok(vec![b.one(TokenLoss, &[lse, picked, labels])?, lse])
    }
}

impl OpDef for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [logits, labels] = operands::take(operands, "logits, labels")?;
        let logits = logits.logical();
        operands::float("logits", &logits)?;
        let (rows, _) = operands::rows_and_last("logits", &logits)?;
        operands::expect("labels", labels, DType::I32, rows)?;
        Ok(vec![Type::scalar(DType::F32), Type::new(DType::F32, rows.to_vec())])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m+ v!, *m+ -> (), *m".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        operands::no_cotangent("lse", call.given[1])?;
        let (Some(dloss), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None; 2]) };
        let operands = [call.operands[0], call.operands[1], call.results[1], dloss];
        Ok(vec![Some(b.one(CrossEntropyGrad, &operands)?), None])
    }

    /// Four operations per logit: maximum, difference, exponential, sum.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(4 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        Some(self.graph(b, operands[0], operands[1]))
    }
}

/// `cross_entropy_grad(%logits, %labels, %lse, %dloss)`: `(exp(logits - lse) - [label]) dloss`, 0 in ignored rows. A shard of
/// the vocabulary uses the lse of the full vocabulary.
#[derive(Clone, PartialEq, Debug)]
pub struct CrossEntropyGrad;

impl CrossEntropyGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["cross_entropy_grad"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<CrossEntropyGrad, String> {
        Ok(CrossEntropyGrad)
    }
}

impl OpDef for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [logits, labels, lse, dloss] = operands::take(operands, "logits, labels, lse, dloss")?;
        operands::float("logits", logits)?;
        let (rows, _) = operands::rows_and_last("logits", logits)?;
        operands::expect("labels", labels, DType::I32, rows)?;
        operands::expect("lse", lse, DType::F32, rows)?;
        operands::expect("dloss", dloss, DType::F32, &[])?;
        Ok(vec![logits.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m v, *m, *m, () -> *m v".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true, true, true, false]))
    }

    /// Three operations per logit: difference, exponential, product.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(3 * operands[0].elements(), operands, results)
    }
}
