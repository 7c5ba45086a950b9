//! The ops that cross-entropy decomposes into if its vocabulary is sharded: `sum_exp`, `pick` and `token_loss`.

use crate::ops::{Attrs, OpDef, Rows, Shapes, Work, operands};
use crate::types::{DType, Type};

/// `sum_exp(%logits, %max)`: `(logits [*m, v], max f32[*m]) -> f32[*m]`, the sum of `exp(logits - max)` of each row.
#[derive(Clone, PartialEq, Debug)]
pub struct SumExp;

impl SumExp {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["sum_exp"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<SumExp, String> {
        Ok(SumExp)
    }
}

impl OpDef for SumExp {
    fn name(&self) -> &'static str {
        "sum_exp"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [logits, max] = operands::take(operands, "logits, max")?;
        operands::float("logits", logits)?;
        let (rows, _) = operands::rows_and_last("logits", logits)?;
        operands::expect("max", max, DType::F32, rows)?;
        Ok(vec![max.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m v+, *m -> *m".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true; 2]))
    }

    /// Three operations per logit: difference, exponential, sum.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(3 * operands[0].elements(), operands, results)
    }
}

/// `pick(%logits, %labels)`: `(logits [*m, v], labels i32[*m]) -> f32[*m]`, the value at the label of each row; 0 where the
/// label is ignored or on another rank.
#[derive(Clone, PartialEq, Debug)]
pub struct Pick;

impl Pick {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["pick"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<Pick, String> {
        Ok(Pick)
    }
}

impl OpDef for Pick {
    fn name(&self) -> &'static str {
        "pick"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [logits, labels] = operands::take(operands, "logits, labels")?;
        operands::float("logits", logits)?;
        let (rows, _) = operands::rows_and_last("logits", logits)?;
        operands::expect("labels", labels, DType::I32, rows)?;
        Ok(vec![Type { dtype: DType::F32, ..labels.logical() }])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m v+, *m -> *m".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true; 2]))
    }

    /// The labels, and one logit of each row.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work { flops: 0, bytes: operands[1].bytes() + 2 * results[0].bytes() }
    }
}

/// `token_loss(%lse, %picked, %labels)`: `(f32[*m], f32[*m], i32[*m]) -> f32[]`, the sum of `lse - picked` over the rows
/// whose label is not ignored.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenLoss;

impl TokenLoss {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["token_loss"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<TokenLoss, String> {
        Ok(TokenLoss)
    }
}

impl OpDef for TokenLoss {
    fn name(&self) -> &'static str {
        "token_loss"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [lse, picked, labels] = operands::take(operands, "lse, picked, labels")?;
        operands::expect("lse", lse, DType::F32, &lse.dims)?;
        operands::expect("picked", picked, DType::F32, &lse.dims)?;
        operands::expect("labels", labels, DType::I32, &lse.dims)?;
        Ok(vec![Type::scalar(DType::F32)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m+, *m+, *m+ -> ()".to_string()
    }

    /// Two operations per row: difference and sum.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(2 * operands[0].elements(), operands, results)
    }
}
