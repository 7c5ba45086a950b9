//! `index_scores(%q, %k, %w, %index)`: the scores by which keys were chosen, and their gradient.

use super::{choices, indexer};
use crate::ids::Value;
use crate::ops::{Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, OpResult, Shapes, Work, operands};
use crate::types::{DType, Type};

/// `(q [b, s, n, d], k [b, t, d], w [b, s, n], index i32[b, s, j]) -> f32[b, s, j]`: `sum_n w_n relu(q_n k)` of each chosen key;
/// 0 where none is chosen. The choice is a constant.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexScores;

impl IndexScores {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["index_scores"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> OpResult<IndexScores> {
        Ok(IndexScores)
    }
}

/// Pairs of a query of all heads and a chosen key, times the size of a head.
fn products(q: &Type, index: &Type) -> u64 {
    let chosen = index.dims.last().map_or(1, |dim| dim.size);
    q.elements().saturating_mul(chosen)
}

impl OpDef for IndexScores {
    fn name(&self) -> &'static str {
        "index_scores"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[2]), causal_operands: &[1], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [q, k, w, index] = operands::take(operands, "q, k, w, index")?;
        let indexer = indexer(q, k, w)?;
        let chosen = choices(index, &indexer.batch, &indexer.queries)?;
        Ok(vec![Type::new(DType::F32, vec![indexer.batch, indexer.queries, chosen])])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s n+ d!, b t! d!, b s n+, b s j! -> b s j!".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> OpResult<Vec<Option<Value>>> {
        let mut cotangents = vec![None; 4];
        let (Some(dscores), true) = (call.given[0], call.needed[..3].contains(&true)) else { return Ok(cotangents) };
        let operands = [call.operands, &[dscores]].concat();
        for (operand, value) in b.op(IndexScoresGrad, &operands)?.into_iter().enumerate() {
            cotangents[operand] = call.needed[operand].then_some(value);
        }
        Ok(cotangents)
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(products(operands[0], operands[3]).saturating_mul(2), operands, results)
    }
}

/// `index_scores_grad(%q, %k, %w, %index, %dscores) -> dq, dk, dw`. At 0 the slope of relu is 0.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexScoresGrad;

impl IndexScoresGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["index_scores_grad"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> OpResult<IndexScoresGrad> {
        Ok(IndexScoresGrad)
    }
}

impl OpDef for IndexScoresGrad {
    fn name(&self) -> &'static str {
        "index_scores_grad"
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [q, k, w, index, dscores] = operands::take(operands, "q, k, w, index, dscores")?;
        let indexer = indexer(q, k, w)?;
        let chosen = choices(index, &indexer.batch, &indexer.queries)?;
        operands::expect("dscores", dscores, DType::F32, &[indexer.batch, indexer.queries, chosen])?;
        Ok([q, k, w].map(Type::logical).into())
    }

    /// dk is a sum over queries and heads.
    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s+ n+ d!, b t! d!, b s+ n+, b s+ j!, b s+ j! -> b s n d!, b t! d!, b s n".to_string()
    }

    /// Three products: the scores again, dq and dk.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(products(operands[0], operands[3]).saturating_mul(6), operands, results)
    }
}
