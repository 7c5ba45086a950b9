//! `index_loss(%scores, %mass, %index)`: how far the scores of an indexer are from what attention does, and its gradient.

use crate::ids::Value;
use crate::ops::{Attrs, Builder, Cotangents, OpDef, OpFacts, OpResult, Rows, Shapes, Work, operands};
use crate::types::{DType, Type};

/// `(scores f32[*m, j], mass f32[*m, j], index i32[*m, j]) -> f32[]`: the SUM over rows of the Kullback-Leibler divergence
/// `sum_j p_j ln(p_j / softmax(scores)_j)`, where `p` is the mass divided by its sum, over places with a key (DeepSeek-V3.2, equation
/// 4). A row without mass counts nothing. The mass is a constant: it teaches the indexer.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexLoss;

impl IndexLoss {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["index_loss"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> OpResult<IndexLoss> {
        Ok(IndexLoss)
    }
}

/// Checks scores, mass and index.
fn rows(scores: &Type, mass: &Type, index: &Type) -> OpResult<()> {
    operands::rows_and_last("scores", scores)?;
    let dims = &scores.logical().dims;
    operands::expect("scores", scores, DType::F32, dims)?;
    operands::expect("mass", mass, DType::F32, dims)?;
    operands::expect("index", index, DType::I32, dims)
}

impl OpDef for IndexLoss {
    fn name(&self) -> &'static str {
        "index_loss"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { constants: &[1], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [scores, mass, index] = operands::take(operands, "scores, mass, index")?;
        rows(scores, mass, index)?;
        Ok(vec![Type::scalar(DType::F32)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m+ j!, *m+ j!, *m+ j! -> ()".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> OpResult<Vec<Option<Value>>> {
        let (Some(dloss), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None; 3]) };
        let operands = [call.operands, &[dloss]].concat();
        Ok(vec![Some(b.one(IndexLossGrad, &operands)?), None, None])
    }

    /// Two softmaxes, and for each pair a logarithm, a difference and a product.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(8 * operands[0].elements(), operands, results)
    }
}

/// `index_loss_grad(%scores, %mass, %index, %dloss)`: `(softmax(scores) - p) dloss`, 0 at places without a key and in rows without mass.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexLossGrad;

impl IndexLossGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["index_loss_grad"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> OpResult<IndexLossGrad> {
        Ok(IndexLossGrad)
    }
}

impl OpDef for IndexLossGrad {
    fn name(&self) -> &'static str {
        "index_loss_grad"
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [scores, mass, index, dloss] = operands::take(operands, "scores, mass, index, dloss")?;
        rows(scores, mass, index)?;
        operands::expect("dloss", dloss, DType::F32, &[])?;
        Ok(vec![scores.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m j!, *m j!, *m j!, () -> *m j!".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true, true, true, false]))
    }

    /// A softmax, a quotient, a difference and a product.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(8 * operands[0].elements(), operands, results)
    }
}
