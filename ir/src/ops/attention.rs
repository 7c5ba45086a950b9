//! `attention(%q, %k, %v, %qpos, %kpos, %qseg, %kseg, scale=0.125, causal=true)` with grouped queries, and its gradient.
//!
//! `q [b, s, g, r, d]`, `k [b, t, g, d]`, `v [b, t, g, c]`, positions and segments `i32[b, s]` and `i32[b, t]`. With
//! `p=0.1, path="layer.o"` weights are dropped as [`Dropout`] drops elements: weight `[b, s, g, r, t]` by its coordinates,
//! b being the global sample.
//!
//! With `origin=64, whole=128` the queries are a slice of a sequence of 128 positions, and the keys end where the slice ends.

use super::{Attr, Attrs, Builder, Cotangents, Dropout, Op, OpClass, OpDef, Piece, Shapes, operands};
use crate::ids::Value;
use crate::types::{DType, Dim, Type};

/// `-> out [b, s, g, r, c], lse f32[b, s, g, r]`: softmax over the visible keys of `scale q k`, times v; lse is the natural
/// log of the sum of exponentials. A key is visible iff the segments are equal and (not causal or `kpos <= qpos`). A query
/// that sees no key gives 0 and `-inf`. Dropout applies to the softmax; lse ignores it.
#[derive(Clone, PartialEq, Debug)]
pub struct Attention {
    /// The factor that multiplies the scores.
    pub scale: f64,
    /// True if a query sees no later keys.
    pub causal: bool,
    /// Dropout of the softmax, if any; its place is that of the queries.
    pub dropout: Option<Dropout>,
    /// The slice of the sequence that the queries are; `None`: the entire sequence.
    pub piece: Option<Piece>,
}

/// The rule of the operands that both ops have.
struct Heads {
    dtype: DType,
    queries: Vec<Dim>,
    out: Vec<Dim>,
}

/// Checks q, k and v and the four index operands.
fn heads(qkv: [&Type; 3], indices: [&Type; 4]) -> Result<Heads, String> {
    let [q, k, v] = qkv.map(Type::logical);
    let dtype = operands::float("q", &q)?;
    let [b, s, g, r, d] = operands::dims("q", &q, "b, s, g, r, d")?;
    let [_, t, _, _] = operands::dims("k", &k, "b, t, g, d")?;
    let [_, _, _, c] = operands::dims("v", &v, "b, t, g, c")?;
    operands::expect("k", &k, dtype, &[b.clone(), t.clone(), g.clone(), d.clone()])?;
    operands::expect("v", &v, dtype, &[b.clone(), t.clone(), g.clone(), c.clone()])?;
    let (rows, keys) = ([b.clone(), s.clone()], [b.clone(), t.clone()]);
    for (name, ty, dims) in [
        ("qpos", indices[0], &rows),
        ("kpos", indices[1], &keys),
        ("qseg", indices[2], &rows),
        ("kseg", indices[3], &keys),
    ] {
        operands::expect(name, ty, DType::I32, dims)?;
    }
    let queries = vec![b.clone(), s.clone(), g.clone(), r.clone()];
    let out = [queries.clone(), vec![c.clone()]].concat();
    Ok(Heads { dtype, queries, out })
}

/// The attributes of both ops.
fn attrs(scale: f64, causal: bool, dropout: Option<&Dropout>, piece: Option<Piece>) -> Vec<(&'static str, Attr)> {
    let mut attrs = vec![("scale", Attr::Float(scale)), ("causal", Attr::flag(causal))];
    attrs.extend(dropout.into_iter().flat_map(Dropout::attrs));
    attrs.extend(Piece::attrs(piece));
    attrs
}

/// Reads [`attrs`]; a probability of 0 is no dropout.
fn settings(attrs: &mut Attrs) -> Result<(f64, bool, Option<Dropout>, Option<Piece>), String> {
    let (scale, causal, piece) = (attrs.float("scale")?, attrs.flag("causal")?, Piece::parse(attrs)?);
    let Some(p) = attrs.optional_float("p")? else { return Ok((scale, causal, None, piece)) };
    let dropout = Dropout { p, path: attrs.string("path")?, piece: None };
    Ok((scale, causal, (p != 0.0).then_some(dropout), piece))
}

/// Checks dropout, and the places of queries and keys in their sequence.
fn check(dropout: Option<&Dropout>, piece: Option<Piece>, [q, k]: [&Type; 2]) -> Result<(), String> {
    dropout.map_or(Ok(()), Dropout::check)?;
    Piece::check(piece, q.dims[1].size)?;
    Piece::check(piece.map(|piece| Piece { origin: 0, ..piece }), k.dims[1].size)
}

/// The pairs of a query and a key, and the two head sizes. A query has all t keys; if causal, on average half of the keys of
/// its slice and all before it: `(origin + t) / 2`.
fn pairs_and_heads(causal: bool, piece: Option<Piece>, q: &Type, k: &Type, v: &Type) -> (u64, u64, u64) {
    let size = |ty: &Type, dim: usize| ty.dims.get(dim).map_or(1, |dim| dim.size);
    let before = piece.map_or(0, |piece| piece.origin);
    let pairs = |keys: u64| q.dims.iter().take(4).map(|dim| dim.size).fold(keys, u64::saturating_mul);
    (if causal { pairs(before + size(k, 1)) / 2 } else { pairs(size(k, 1)) }, size(q, 4), size(v, 3))
}

impl Attention {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["attention"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Attention, String> {
        let (scale, causal, dropout, piece) = settings(attrs)?;
        Ok(Attention { scale, causal, dropout, piece })
    }
}

impl OpDef for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        attrs(self.scale, self.causal, self.dropout.as_ref(), self.piece)
    }

    fn class(&self) -> OpClass {
        OpClass::Attention
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [q, k, v, qpos, kpos, qseg, kseg] = operands::take(operands, "q, k, v, qpos, kpos, qseg, kseg")?;
        let heads = heads([q, k, v], [qpos, kpos, qseg, kseg])?;
        check(self.dropout.as_ref(), self.piece, [q, k])?;
        Ok(vec![Type::new(heads.dtype, heads.out), Type::new(DType::F32, heads.queries)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s+ g r+ d!, b t! g d!, b t! g c!, b s+, b t!, b s+, b t! -> b s g r c!, b s g r".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        operands::no_cotangent("lse", call.given[1])?;
        let mut cotangents = vec![None; 7];
        let (Some(dout), true) = (call.given[0], call.needed.contains(&true)) else { return Ok(cotangents) };
        let (qkv, indices) = call.operands.split_at(3);
        let operands = [qkv, &call.results[..2], &[dout], indices].concat();
        let (scale, causal, dropout, piece) = (self.scale, self.causal, self.dropout.clone(), self.piece);
        let op = AttentionGrad { scale, causal, dropout, piece };
        for (operand, value) in b.op(op, &operands)?.into_iter().enumerate() {
            cotangents[operand] = call.needed[operand].then_some(value);
        }
        Ok(cotangents)
    }

    /// Keys, values and their indices, if the attention is causal.
    fn causal_operands(&self) -> &'static [usize] {
        if self.causal { &[1, 2, 4, 6] } else { &[] }
    }

    fn on_piece(&self, piece: Piece) -> Option<Op> {
        Some(Attention { piece: Some(piece), ..self.clone() }.into())
    }

    /// Without dropout.
    fn in_evaluation(&self) -> Option<Op> {
        self.dropout.as_ref().map(|_| Attention { dropout: None, ..self.clone() }.into())
    }

    /// `2 b s t g r (d + c)` for the scores and the weighted sum of values; half of it if causal.
    fn flops(&self, operands: &[&Type], _: &[&Type]) -> u64 {
        let (pairs, d, c) = pairs_and_heads(self.causal, self.piece, operands[0], operands[1], operands[2]);
        pairs.saturating_mul(2 * (d + c))
    }
}

/// `attention_grad(%q, %k, %v, %out, %lse, %dout, %qpos, %kpos, %qseg, %kseg) -> dq, dk, dv`.
#[derive(Clone, PartialEq, Debug)]
pub struct AttentionGrad {
    /// As in the forward.
    pub scale: f64,
    /// As in the forward.
    pub causal: bool,
    /// As in the forward.
    pub dropout: Option<Dropout>,
    /// As in the forward.
    pub piece: Option<Piece>,
}

impl AttentionGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["attention_grad"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<AttentionGrad, String> {
        let (scale, causal, dropout, piece) = settings(attrs)?;
        Ok(AttentionGrad { scale, causal, dropout, piece })
    }
}

impl OpDef for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        attrs(self.scale, self.causal, self.dropout.as_ref(), self.piece)
    }

    fn class(&self) -> OpClass {
        OpClass::Attention
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [q, k, v, out, lse, dout, qpos, kpos, qseg, kseg] =
            operands::take(operands, "q, k, v, out, lse, dout, qpos, kpos, qseg, kseg")?;
        let heads = heads([q, k, v], [qpos, kpos, qseg, kseg])?;
        check(self.dropout.as_ref(), self.piece, [q, k])?;
        operands::expect("out", out, heads.dtype, &heads.out)?;
        operands::expect("lse", lse, DType::F32, &heads.queries)?;
        operands::expect("dout", dout, heads.dtype, &heads.out)?;
        Ok(vec![q.logical(), k.logical(), v.logical()])
    }

    /// The factors of the forward: dk and dv are partial sums over s and r.
    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        let queries = "b s+ g r+ c!, b s+ g r+, b s+ g r+ c!, b s+, b t!, b s+, b t!";
        format!("b s+ g r+ d!, b t! g d!, b t! g c!, {queries} -> b s g r d!, b t! g d!, b t! g c!")
    }

    /// Five products: recomputed scores, dq and dk by d, dv and the scores' cotangents by c: 2.5 times the forward where d
    /// = c.
    fn flops(&self, operands: &[&Type], _: &[&Type]) -> u64 {
        let (pairs, d, c) = pairs_and_heads(self.causal, self.piece, operands[0], operands[1], operands[2]);
        pairs.saturating_mul(2 * (3 * d + 2 * c))
    }
}
