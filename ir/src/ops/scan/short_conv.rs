//! `short_conv(%x, %w, %pos)`: a causal convolution of a few rows, each channel by itself, and its gradients. The state of a block is the
//! rows before it that its own rows read.

use super::{blocks_of, expect_positions};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{Dim, Type};

/// `(x [b, s, *h], w [*h, i], pos i32[b, s][, start [b, n, i - 1, *h]]) -> [b, s, *h]`: `y[t] = sum over j < i of w[i - 1 - j] x[t - j]`, of
/// the rows of the sequence that are at most `pos[t]` before t: a document sees no row of another one. With blocks `start` has the rows
/// before each of the n blocks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ShortConv {
    /// The rows of a block; `None`: nothing is before a sequence.
    pub block: Option<u64>,
}

/// The number of FLOPs of a convolution, forward or by one of its operands: a product and a sum for each row and tap.
fn work(x: &Type, taps: u64, operands: &[&Type], results: &[&Type]) -> Work {
    Work::of(x.elements().saturating_mul(2 * taps), operands, results)
}

fn taps(w: &Type) -> u64 {
    w.dims.last().map_or(1, |dim| dim.size)
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

/// The rows that a block of `x` reads before it: `[b, n, taps - 1, *h]`.
fn states(x: &Type, block: u64, taps: u64) -> Result<Type, String> {
    let blocks = blocks_of(x.dims[1].size, block)?;
    if taps < 2 || block + 1 < taps {
        return Err(format!("{taps} taps read no rows before blocks of {block} rows, or more than one block"));
    }
    Ok(Type::new(x.dtype, [&x.dims[..1], &[blocks, Dim::sized(taps - 1)], &x.dims[2..]].concat()))
}

/// Checks the operand behind the others, which blocks have, as rows before blocks of `x`.
fn expect_states(name: &str, found: &[&Type], x: &Type, block: Option<u64>, taps: u64) -> Result<(), String> {
    match (found, block) {
        ([], None) => Ok(()),
        ([found], Some(block)) => operands::expect(name, found, x.dtype, &states(x, block, taps)?.dims),
        (_, Some(_)) => Err(format!("takes 4 operands with blocks, the last is `{name}`, not {}", 3 + found.len())),
        (_, None) => Err(format!("takes 3 operands without blocks, not {}", 3 + found.len())),
    }
}

/// The first three operands, and those behind them.
fn apart<'o, 't>(operands: &'o [&'t Type], names: &str) -> Result<([&'t Type; 3], &'o [&'t Type]), String> {
    match operands {
        [first, second, third, others @ ..] => Ok(([first, second, third], others)),
        _ => Err(format!("takes 3 operands ({names}), not {}", operands.len())),
    }
}

/// The factors of the dims `b, s`; `partial` marks the batch and the blocks. A block is on one rank.
fn rows(block: Option<u64>, partial: &str) -> String {
    match block {
        None => format!("b{partial} s!"),
        Some(block) => format!("b{partial} (n{partial} s!={block})"),
    }
}

/// The factors of rows before blocks, if there are such, behind a comma.
fn of_states(block: Option<u64>, partial: &str) -> String {
    block.map_or_else(String::new, |_| format!(", b{partial} n{partial} j! *h"))
}

fn attrs(block: Option<u64>) -> Vec<(&'static str, Attr)> {
    block.map(|block| ("block", Attr::int(block))).into_iter().collect()
}

/// Linear in the first two operands, where no rows before blocks are added.
fn facts(block: Option<u64>) -> OpFacts {
    let linear = if block.is_none() { Linear::Each(&[0, 1]) } else { Linear::No };
    OpFacts { linear, carries_state: true, ..OpFacts::default() }
}

impl ShortConv {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ShortConv, String> {
        Ok(ShortConv { block: attrs.optional_int("block")? })
    }
}

impl OpDef for ShortConv {
    fn name(&self) -> &'static str {
        "short_conv"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        attrs(self.block)
    }

    fn facts(&self) -> OpFacts {
        facts(self.block)
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let ([x, w, pos], start) = apart(operands, "x, w, pos")?;
        let x = check("x", x, Some(w), pos)?;
        expect_states("start", start, &x, self.block, taps(w))?;
        Ok(vec![x])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        let rows = rows(self.block, "");
        format!("{rows} *h, *h i!, {rows}{} -> {rows} *h", of_states(self.block, ""))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), &[x, w, pos, ref start @ ..]) = (call.given[0], call.operands) else {
            return Ok(vec![None; call.operands.len()]);
        };
        let block = self.block;
        let dx = if call.needed[0] { Some(b.one(ShortConvDx { block }, &[dy, w, pos])?) } else { None };
        let taps = b.ty(w).logical().dims.last().cloned().ok_or("`w` is a scalar")?;
        let by_w = [&[x, dy, pos], start].concat();
        let dw = if call.needed[1] { Some(b.one(ShortConvDw { taps, block }, &by_w)?) } else { None };
        let mut cotangents = vec![dx, dw, None];
        if let (Some(block), Some(true)) = (block, call.needed.get(3)) {
            cotangents.push(Some(b.one(ShortConvDstart { block }, &[dy, w, pos])?));
        }
        cotangents.resize(call.operands.len(), None);
        Ok(cotangents)
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        work(operands[0], taps(operands[1]), operands, results)
    }
}

/// `short_conv_dx(%dy, %w, %pos[, %dend])`: the gradient by x, of its type. With blocks `dend` is the gradient by the last rows of each, as
/// rows before the next; without it that is 0.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ShortConvDx {
    /// The rows of a block.
    pub block: Option<u64>,
}

impl ShortConvDx {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv_dx"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ShortConvDx, String> {
        Ok(ShortConvDx { block: attrs.optional_int("block")? })
    }
}

impl OpDef for ShortConvDx {
    fn name(&self) -> &'static str {
        "short_conv_dx"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        attrs(self.block)
    }

    fn facts(&self) -> OpFacts {
        facts(self.block)
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let ([dy, w, pos], dend) = apart(operands, "dy, w, pos")?;
        let dy = check("dy", dy, Some(w), pos)?;
        if self.block.is_none() || !dend.is_empty() {
            expect_states("dend", dend, &dy, self.block, taps(w))?;
        }
        Ok(vec![dy])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let rows = rows(self.block, "");
        let dend = of_states(self.block.filter(|_| operands.len() > 3), "");
        format!("{rows} *h, *h i!, {rows}{dend} -> {rows} *h")
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        work(operands[0], taps(operands[1]), operands, results)
    }
}

/// `short_conv_dw(%x, %dy, %pos[, %start])`: the gradient by w. The stated result type gives the taps.
#[derive(Clone, PartialEq, Debug)]
pub struct ShortConvDw {
    /// The last dim of w, logical.
    pub taps: Dim,
    /// The rows of a block.
    pub block: Option<u64>,
}

impl ShortConvDw {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv_dw"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<ShortConvDw, String> {
        let result = shapes.results.first().ok_or("has no result")?.logical();
        let (_, taps) = operands::rows_and_last("the result", &result)?;
        Ok(ShortConvDw { taps: taps.clone(), block: attrs.optional_int("block")? })
    }
}

impl OpDef for ShortConvDw {
    fn name(&self) -> &'static str {
        "short_conv_dw"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        attrs(self.block)
    }

    fn facts(&self) -> OpFacts {
        facts(self.block)
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let ([x, dy, pos], start) = apart(operands, "x, dy, pos")?;
        let x = check("x", x, None, pos)?;
        operands::expect("dy", dy, x.dtype, &x.dims)?;
        expect_states("start", start, &x, self.block, self.taps.size)?;
        Ok(vec![Type::new(x.dtype, [&x.dims[2..], std::slice::from_ref(&self.taps)].concat())])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        let rows = rows(self.block, "+");
        format!("{rows} *h, {rows} *h, {rows}{} -> *h i!", of_states(self.block, "+"))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        work(operands[0], self.taps.size, operands, results)
    }
}

/// `short_conv_dstart(%dy, %w, %pos, block=2048) -> [b, n, i - 1, *h]`: the gradient by the rows before each block.
#[derive(Clone, PartialEq, Debug)]
pub struct ShortConvDstart {
    /// The rows of a block.
    pub block: u64,
}

impl ShortConvDstart {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["short_conv_dstart"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ShortConvDstart, String> {
        Ok(ShortConvDstart { block: attrs.int("block")? })
    }
}

impl OpDef for ShortConvDstart {
    fn name(&self) -> &'static str {
        "short_conv_dstart"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        attrs(Some(self.block))
    }

    fn facts(&self) -> OpFacts {
        facts(None)
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [dy, w, pos] = operands::take(operands, "dy, w, pos")?;
        let dy = check("dy", dy, Some(w), pos)?;
        Ok(vec![states(&dy, self.block, taps(w))?])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        let rows = rows(Some(self.block), "");
        format!("{rows} *h, *h i!, {rows} -> b n j! *h")
    }

    /// A product and a sum for each pair of a row before a block and a tap that reads it.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(results[0].elements().saturating_mul(taps(operands[1])), operands, results)
    }
}
