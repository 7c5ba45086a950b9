//! `short_conv(%x, %w, %pos)`: a causal convolution of a few rows, each channel by itself, and its gradients.

use super::expect_positions;
use crate::ids::Value;
use crate::ops::{Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{Dim, Type};

/// `(x [b, s, *h], w [*h, n], pos i32[b, s]) -> [b, s, *h]`: `y[t] = sum over i < n of w[n - 1 - i] x[t - i]`, of the rows of the sequence
/// that are at most `pos[t]` before t: a document sees no row of another one.
#[derive(Clone, PartialEq, Debug)]
pub struct ShortConv;

/// The number of FLOPs of a convolution, forward or by one of its operands: a product and a sum for each row and tap.
fn work(x: &Type, taps: u64, operands: &[&Type], results: &[&Type]) -> Work {
    Work::of(x.elements().saturating_mul(2 * taps), operands, results)
}

/// Checks `x` or its gradient, the taps if they are read, and the positions.
fn check(name: &str, x: &Type, w: Option<&Type>, pos: &Type) -> Result<Type, String> {
    let x = x.logical();
    let dtype = operands::float(name, &x)?;
    expect_positions(pos, &x)?;
    let Some(w) = w else { return Ok(x) };
    let (channels, _) = operands::rows_and_last("w", w)?;
    let is_alike = w.dtype == dtype && channels.iter().map(|dim| dim.size).eq(x.dims[2..].iter().map(|dim| dim.size));
    if is_alike {
        return Ok(x);
    }
    Err(format!(
        "`w` {:?} must be the channels {:?} of `{name}` and a dim of taps, in its type",
        w.sizes(),
        &x.sizes()[2..]
    ))
}

impl ShortConv {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<ShortConv, String> {
        Ok(ShortConv)
    }
}

impl OpDef for ShortConv {
    fn name(&self) -> &'static str {
        "short_conv"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0, 1]), carries_state: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, w, pos] = operands::take(operands, "x, w, pos")?;
        Ok(vec![check("x", x, Some(w), pos)?])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s! *h, *h n!, b s! -> b s! *h".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), &[x, w, pos]) = (call.given[0], call.operands) else { return Ok(vec![None; 3]) };
        let dx = if call.needed[0] { Some(b.one(ShortConvDx, &[dy, w, pos])?) } else { None };
        let taps = b.ty(w).logical().dims.last().cloned().ok_or("`w` is a scalar")?;
        let dw = if call.needed[1] { Some(b.one(ShortConvDw { taps }, &[x, dy, pos])?) } else { None };
        Ok(vec![dx, dw, None])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        work(operands[0], taps(operands[1]), operands, results)
    }
}

fn taps(w: &Type) -> u64 {
    w.dims.last().map_or(1, |dim| dim.size)
}

/// `short_conv_dx(%dy, %w, %pos)`: the gradient by x, of its type.
#[derive(Clone, PartialEq, Debug)]
pub struct ShortConvDx;

impl ShortConvDx {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv_dx"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<ShortConvDx, String> {
        Ok(ShortConvDx)
    }
}

impl OpDef for ShortConvDx {
    fn name(&self) -> &'static str {
        "short_conv_dx"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0, 1]), carries_state: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [dy, w, pos] = operands::take(operands, "dy, w, pos")?;
        Ok(vec![check("dy", dy, Some(w), pos)?])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s! *h, *h n!, b s! -> b s! *h".to_string()
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        work(operands[0], taps(operands[1]), operands, results)
    }
}

/// `short_conv_dw(%x, %dy, %pos)`: the gradient by w. The stated result type gives the taps.
#[derive(Clone, PartialEq, Debug)]
pub struct ShortConvDw {
    /// The last dim of w, logical.
    pub taps: Dim,
}

impl ShortConvDw {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv_dw"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, shapes: &Shapes<'_>) -> Result<ShortConvDw, String> {
        let result = shapes.results.first().ok_or("has no result")?.logical();
        let (_, taps) = operands::rows_and_last("the result", &result)?;
        Ok(ShortConvDw { taps: taps.clone() })
    }
}

impl OpDef for ShortConvDw {
    fn name(&self) -> &'static str {
        "short_conv_dw"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0, 1]), carries_state: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, dy, pos] = operands::take(operands, "x, dy, pos")?;
        let x = check("x", x, None, pos)?;
        operands::expect("dy", dy, x.dtype, &x.dims)?;
        Ok(vec![Type::new(x.dtype, [&x.dims[2..], std::slice::from_ref(&self.taps)].concat())])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b+ s! *h, b+ s! *h, b+ s! -> *h n!".to_string()
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        work(operands[0], self.taps.size, operands, results)
    }
}
