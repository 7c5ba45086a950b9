//! Blocks of rows by what they make of a state: the state behind a block from a zero state, and its transition. And the same in reverse.
//!
//! A scan is linear in its state: behind a block it is `through S + end`, with S the state before it. The gradient by the state before a
//! block is `through^T dS + dstart`, with dS that by the state behind it.

use super::settings::ScanPass;
use super::{ScanKind, ScanSettings};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, OpDef, OpResult, Shapes, Work};
use crate::types::{DType, Dim, Type};

/// The place of queries, values and decays among the operands of a scan.
const QUERIES: usize = 0;
const VALUES: usize = 2;
const DECAYS: usize = 3;

/// `scan_state(%k, %v, %decay, [%rates or %beta,] %pos, block=2048) -> end f32[b, n, g, r, k, c], through`.
///
/// `through` is a number for each head, `f32[b, n, g, r]`, where a head has one decay; a number for each row of the state,
/// `f32[b, n, g, r, k]`, where each has its own; and with the delta rule a matrix, `f32[b, n, g, r, k, k]`.
#[derive(Clone, PartialEq, Debug)]
pub struct ScanState(pub ScanSettings);

impl ScanState {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["scan_state"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> OpResult<ScanState> {
        ScanSettings::parse(attrs).map(ScanState)
    }

    /// Its operands, of those of a scan without blocks.
    pub fn operands(scan: &[Value]) -> &[Value] {
        &scan[QUERIES + 1..]
    }
}

/// `scan_dstart(%q, %k, %decay, [%rates or %beta,] %pos, %dout, block=2048) -> f32[b, n, g, r, k, c]`: the gradient by the state before each
/// block, through the results of that block alone.
#[derive(Clone, PartialEq, Debug)]
pub struct ScanDstart(pub ScanSettings);

impl ScanDstart {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["scan_dstart"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> OpResult<ScanDstart> {
        ScanSettings::parse(attrs).map(ScanDstart)
    }

    /// Its operands, of those of a scan without blocks and the gradient by its results.
    pub fn operands(scan: &[Value], dout: Value) -> Vec<Value> {
        let others = scan.iter().enumerate().filter(|(place, _)| *place != VALUES);
        others.map(|(_, &value)| value).chain([dout]).collect()
    }
}

/// The operands of a scan without blocks, of those of [`ScanState`]: keys stand for queries, whose type they have.
fn with_queries<'t>(operands: &[&'t Type]) -> Vec<&'t Type> {
    [&operands[..1], operands].concat()
}

/// The same of those of [`ScanDstart`]: the gradient by the results stands for values, whose type it has.
fn with_values<'t>(operands: &[&'t Type]) -> Vec<&'t Type> {
    let mut scan = operands.to_vec();
    if let Some(dout) = scan.pop() {
        scan.insert(VALUES.min(scan.len()), dout);
    }
    scan
}

impl ScanSettings {
    /// Types of the states of blocks, for the operands of a scan without blocks.
    fn states(&self, scan: &[&Type]) -> OpResult<Type> {
        self.check()?;
        let of_scan = self.in_blocks(None).signature(scan)?;
        let block = self.block.ok_or("`block=..` is missing")?;
        let [b, s, g, r, c] = of_scan.values.as_slice() else {
            return Err("`v` must have dims b, s, g, r, c".to_string());
        };
        let keys = scan[1].logical().dims.last().cloned().ok_or("`k` is a scalar")?;
        let blocks = super::blocks_of(s.size, block)?;
        Ok(Type::new(DType::F32, vec![b.clone(), blocks, g.clone(), r.clone(), keys, c.clone()]))
    }
}

impl OpDef for ScanState {
    fn name(&self) -> &'static str {
        "scan_state"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let wanted = self.0.kind.operands() - 1;
        if operands.len() != wanted {
            return Err(format!("takes {wanted} operands, not {}", operands.len()));
        }
        let scan = with_queries(operands);
        let end = self.0.states(&scan)?;
        let of_keys = match (self.0.kind, scan[DECAYS].rank()) {
            (ScanKind::Delta, _) => vec![end.dims[4].clone(), Dim::sized(end.dims[4].size)],
            (ScanKind::Linear, 4) => Vec::new(),
            (ScanKind::Linear | ScanKind::Selective, _) => vec![end.dims[4].clone()],
        };
        let through = Type::new(DType::F32, [&end.dims[..4], &of_keys].concat());
        Ok(vec![end, through])
    }

    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String {
        let scan = with_queries(operands);
        let through = &["", " k!", " k! l!"][results[1].rank() - 4];
        let rules = self.0.rules(&scan, "");
        format!("{} -> {}, b n g r{through}", rules[QUERIES + 1..].join(", "), self.0.of_states(""))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let scan = with_queries(operands);
        Work::of(self.0.flops(&scan, ScanPass::State), operands, results)
    }
}

impl OpDef for ScanDstart {
    fn name(&self) -> &'static str {
        "scan_dstart"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        Ok(vec![self.0.states(&with_values(operands))?])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let mut rules = self.0.rules(&with_values(operands), "");
        let dout = rules.remove(VALUES);
        rules.push(dout);
        format!("{} -> {}", rules.join(", "), self.0.of_states(""))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(self.0.flops(&with_values(operands), ScanPass::StateBackward), operands, results)
    }
}
