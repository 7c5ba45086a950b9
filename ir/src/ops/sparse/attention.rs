//! `sparse_attention(%q, %k, %v, %index, scale=0.125)`: attention of grouped queries to chosen keys, and its gradient.

use super::choices;
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, OpClass, OpDef, OpFacts, OpResult, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// `(q [b, s, g, r, d], k [b, t, g, d], v [b, t, g, c], index i32[b, s, j]) -> out [b, s, g, r, c], lse f32[b, s, g, r]`: softmax over
/// the chosen keys of the scores `scale q k`, times v; lse is the natural log of the sum of exponentials. All heads of a query have
/// one choice. A query without a key gives 0 and `-inf`.
#[derive(Clone, PartialEq, Debug)]
pub struct SparseAttention {
    /// The factor that multiplies the products of queries and keys.
    pub scale: f64,
}

/// The dims of queries and of results.
pub(super) struct QueryHeads {
    pub(super) dtype: DType,
    pub(super) queries: Vec<Dim>,
}

/// Checks `q [b, s, g, r, d]` and `k [b, t, g, d]` of one type, and the choice.
pub(super) fn heads(q: &Type, k: &Type, index: &Type) -> OpResult<QueryHeads> {
    let [q, k] = [q, k].map(Type::logical);
    let dtype = operands::float("q", &q)?;
    let [b, s, g, r, d] = operands::dims("q", &q, "b, s, g, r, d")?;
    let [_, t, _, _] = operands::dims("k", &k, "b, t, g, d")?;
    operands::expect("k", &k, dtype, &[b.clone(), t.clone(), g.clone(), d.clone()])?;
    choices(index, b, s)?;
    Ok(QueryHeads { dtype, queries: vec![b.clone(), s.clone(), g.clone(), r.clone()] })
}

/// The results of attention, out and lse, for values `[b, t, g, c]`.
fn results(q: &Type, k: &Type, v: &Type, index: &Type) -> OpResult<[Type; 2]> {
    let QueryHeads { dtype, queries } = heads(q, k, index)?;
    let (k, v) = (k.logical(), v.logical());
    let [_, _, _, c] = operands::dims("v", &v, "b, t, g, c")?;
    operands::expect("v", &v, dtype, &[&k.dims[..3], std::slice::from_ref(c)].concat())?;
    let out = [queries.as_slice(), std::slice::from_ref(c)].concat();
    Ok([Type::new(dtype, out), Type::new(DType::F32, queries)])
}

/// Pairs of a query of a head and a chosen key.
fn pairs(q: &Type, index: &Type) -> u64 {
    q.dims.iter().take(4).map(|dim| dim.size).fold(last(index), u64::saturating_mul)
}

/// The size of the last dim.
fn last(ty: &Type) -> u64 {
    ty.dims.last().map_or(1, |dim| dim.size)
}

impl SparseAttention {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["sparse_attention"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> OpResult<SparseAttention> {
        Ok(SparseAttention { scale: attrs.float("scale")? })
    }
}

impl OpDef for SparseAttention {
    fn name(&self) -> &'static str {
        "sparse_attention"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("scale", Attr::Float(self.scale))]
    }

    /// Choices are places of keys that are not later.
    fn facts(&self) -> OpFacts {
        OpFacts { class: OpClass::Attention, causal_operands: &[1, 2], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [q, k, v, index] = operands::take(operands, "q, k, v, index")?;
        Ok(results(q, k, v, index)?.into())
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s g r d!, b t! g d!, b t! g c!, b s j! -> b s g r c!, b s g r".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> OpResult<Vec<Option<Value>>> {
        operands::no_cotangent("lse", call.given[1])?;
        let mut cotangents = vec![None; 4];
        let (Some(dout), true) = (call.given[0], call.needed[..3].contains(&true)) else { return Ok(cotangents) };
        let operands = [&call.operands[..3], &call.results[..2], &[dout, call.operands[3]]].concat();
        for (operand, value) in b.op(SparseAttentionGrad { scale: self.scale }, &operands)?.into_iter().enumerate() {
            cotangents[operand] = call.needed[operand].then_some(value);
        }
        Ok(cotangents)
    }

    /// `2 b s j g r (d + c)` for the scores and the weighted sum of values.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let (pairs, d, c) = (pairs(operands[0], operands[3]), last(operands[1]), last(operands[2]));
        Work::of(pairs.saturating_mul(2 * (d + c)), operands, results)
    }
}

/// `sparse_attention_grad(%q, %k, %v, %out, %lse, %dout, %index, scale=0.125) -> dq, dk, dv`.
#[derive(Clone, PartialEq, Debug)]
pub struct SparseAttentionGrad {
    /// The factor that multiplies the products of queries and keys.
    pub scale: f64,
}

impl SparseAttentionGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["sparse_attention_grad"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> OpResult<SparseAttentionGrad> {
        Ok(SparseAttentionGrad { scale: attrs.float("scale")? })
    }
}

impl OpDef for SparseAttentionGrad {
    fn name(&self) -> &'static str {
        "sparse_attention_grad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("scale", Attr::Float(self.scale))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { class: OpClass::Attention, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [q, k, v, out, lse, dout, index] = operands::take(operands, "q, k, v, out, lse, dout, index")?;
        let [of_out, of_lse] = results(q, k, v, index)?;
        operands::expect("out", out, of_out.dtype, &of_out.dims)?;
        operands::expect("lse", lse, of_lse.dtype, &of_lse.dims)?;
        operands::expect("dout", dout, of_out.dtype, &of_out.dims)?;
        Ok([q, k, v].map(Type::logical).into())
    }

    /// The factors of the forward: dk and dv are partial sums over s and r.
    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        let queries = "b s+ g r+ c!, b s+ g r+, b s+ g r+ c!, b s+ j!";
        format!("b s+ g r+ d!, b t! g d!, b t! g c!, {queries} -> b s g r d!, b t! g d!, b t! g c!")
    }

    /// Five products, as those of the gradient of attention.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let (pairs, d, c) = (pairs(operands[0], operands[6]), last(operands[1]), last(operands[2]));
        Work::of(pairs.saturating_mul(2 * (3 * d + 2 * c)), operands, results)
    }
}
