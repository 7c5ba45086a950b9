//! `embedding(%ids, %table, pad=0)`: rows of a table, and the gradient that adds rows up.

use super::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Rows, Shapes, Work, operands};
use crate::ids::Value;
use crate::types::{DType, Dim, Type};
use smallvec::SmallVec;

/// `(ids i32[*m], table [v, h]) -> y [*m, h]`: the row of each id. On a rank with a shard of `v`, ids outside of it give
/// zeros, so the result is a partial sum.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Embedding {
    /// The padding id: its positions add no gradient to the table.
    pub pad: Option<u64>,
}

impl Embedding {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["embedding"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Embedding, String> {
        Ok(Embedding { pad: attrs.optional_int("pad")? })
    }
}

impl OpDef for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.pad.map(|pad| ("pad", Attr::int(pad))).into_iter().collect()
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [ids, table] = operands::take(operands, "ids, table")?;
        let (ids, table) = (ids.logical(), table.logical());
        operands::expect("ids", &ids, DType::I32, &ids.dims)?;
        let dtype = operands::float("table", &table)?;
        let [_, h] = operands::dims("table", &table, "v, h")?;
        Ok(vec![Type::new(dtype, [ids.dims, vec![h.clone()]].concat())])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m, v+ h -> *m h".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[1]) else { return Ok(vec![None; 2]) };
        let (ids, table) = (call.operands[0], b.ty(call.operands[1]).logical());
        let [rows, _] = operands::dims("table", &table, "v, h")?;
        Ok(vec![None, Some(b.one(EmbeddingGrad { rows: rows.clone(), pad: self.pad }, &[ids, dy])?)])
    }

    /// A row for each id; the table is read where ids say.
    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        let dims = Some(operands[0].rank()).filter(|&dims| dims > 0)?;
        Some(Rows { dims: Some(dims), operands: SmallVec::from_slice(&[true, false]), sums: false, product: None })
    }

    /// The ids, and of the table only the rows that are read.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work { flops: 0, bytes: operands[0].bytes() + 2 * results[0].bytes() }
    }
}

/// `embedding_grad(%ids, %dy, pad=0)`: `(ids i32[*m], dy [*m, h]) -> [v, h]`, at each row the sum of the dy of its ids.
/// The stated result type gives v.
#[derive(Clone, PartialEq, Debug)]
pub struct EmbeddingGrad {
    /// The first dim of the table, logical.
    pub rows: Dim,
    /// The padding id, which is skipped.
    pub pad: Option<u64>,
}

impl EmbeddingGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["embedding_grad"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<EmbeddingGrad, String> {
        let table = shapes.results.first().ok_or("has no result")?.logical();
        let [rows, _] = operands::dims("the result", &table, "v, h")?;
        Ok(EmbeddingGrad { rows: rows.clone(), pad: attrs.optional_int("pad")? })
    }
}

impl OpDef for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.pad.map(|pad| ("pad", Attr::int(pad))).into_iter().collect()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[1]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [ids, dy] = operands::take(operands, "ids, dy")?;
        let dy = dy.logical();
        let dtype = operands::float("dy", &dy)?;
        let (rows, h) = operands::rows_and_last("dy", &dy)?;
        operands::expect("ids", ids, DType::I32, rows)?;
        Ok(vec![Type::new(dtype, vec![self.rows.clone(), h.clone()])])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m+, *m+ h -> v h".to_string()
    }

    /// One sum per element of dy. The ids, dy, the zeros of the table, and the rows that are read and written.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work {
            flops: operands[1].elements(),
            bytes: operands[0].bytes() + 3 * operands[1].bytes() + results[0].bytes(),
        }
    }
}
