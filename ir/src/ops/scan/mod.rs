//! Ops that carry a state along the sequence: `scan`, whose state is a matrix for each head, and `short_conv`, whose state is the last
//! rows.
//!
//! A row whose position `%pos` is 0 begins with a zero state. So documents of one sequence are apart, and whether a row continues is known
//! from the row alone.
//!
//! With `block=2048` a sequence is cut into blocks of as many rows, each with a state before it of its own: an op on a block reads no row of
//! another one. So ranks may share a sequence. [`ScanState`] gives what each block does to a state, and [`Carry`] the state before each.

mod carry;
mod grad;
mod settings;
mod short_conv;
mod state;

pub use carry::Carry;
pub use grad::ScanGrad;
pub use settings::{ScanKind, ScanSettings};
pub use short_conv::{ShortConv, ShortConvDstart, ShortConvDw, ShortConvDx};
pub use state::{ScanDstart, ScanState};

use self::settings::Signature;
use super::{Attr, Attrs, Builder, Cotangents, OpDef, OpFacts, Shapes, Work, operands};
use crate::ids::Value;
use crate::types::{DType, Dim, Type};

/// `scan(%q, %k, %v, %decay, [%rates or %beta,] %pos, [%start,] kind=linear, scale=1.0, chunk=64)` with
/// `q, k [b, s, g, k]`, `v [b, s, g, r, c]`, `pos i32[b, s]` `-> o [b, s, g, r, c]`.
///
/// Each of the `g r` heads has a state S of `k c` numbers in f32, 0 before a row with position 0. A row multiplies it by `a = exp(decay)`,
/// then adds `k u^T`, and reads it: `o = scale S^T q`. See [`ScanKind`] for `u`. `decay` is `f32[b, s, g, r]`, a number for each head, or
/// `f32[b, s, g, r, k]`, one for each row of the state; it is at most 0 where the state is not to grow. With blocks
/// `start f32[b, n, g, r, k, c]` is the state before each of the n blocks.
#[derive(Clone, PartialEq, Debug)]
pub struct Scan(pub ScanSettings);

impl Scan {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["scan"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Scan, String> {
        ScanSettings::parse(attrs).map(Scan)
    }
}

impl OpDef for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { carries_state: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        self.0.check()?;
        let Signature { dtype, values, .. } = self.0.signature(operands)?;
        Ok(vec![Type::new(dtype, values)])
    }

    /// Columns of a state are independent, and so are heads; its rows are not.
    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let mut rules = self.0.rules(operands, "");
        let values = rules[2].clone();
        rules.extend(self.0.block.map(|_| self.0.of_states("")));
        format!("{} -> {values}", rules.join(", "))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let mut cotangents = vec![None; call.operands.len()];
        let (Some(dout), true) = (call.given[0], call.needed.contains(&true)) else { return Ok(cotangents) };
        let operands = [call.operands, &[dout]].concat();
        for (operand, value) in b.op(ScanGrad(self.0), &operands)?.into_iter().enumerate() {
            cotangents[operand] = call.needed[operand].then_some(value);
        }
        let start = call.operands.len() - 1;
        if self.0.block.is_some() && call.needed[start] {
            cotangents[start] = Some(b.one(ScanDstart(self.0), &ScanDstart::operands(&call.operands[..start], dout))?);
        }
        Ok(cotangents)
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(self.0.flops(operands, settings::ScanPass::Forward), operands, results)
    }
}

/// The blocks of this length in rows of a sequence, as a dim.
fn blocks_of(rows: u64, block: u64) -> Result<Dim, String> {
    if block > 0 && rows.is_multiple_of(block) {
        return Ok(Dim::sized(rows / block));
    }
    Err(format!("blocks of {block} rows do not cut {rows} evenly"))
}

/// Checks that positions are `i32[b, s]`.
fn expect_positions(pos: &Type, x: &Type) -> Result<(), String> {
    match x.dims.get(..2) {
        Some(rows) => operands::expect("pos", pos, DType::I32, rows),
        None => Err(format!("the first operand must begin with dims b and s, its rank is {}", x.rank())),
    }
}
