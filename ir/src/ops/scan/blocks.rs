//! Ops that carry a state, on sequences in equal blocks: the statements that hand on states from block to block.
//!
//! | op | becomes |
//! |---|---|
//! | `scan` | `scan_state`, `carry`, `scan` with the state before |
//! | `scan_grad` | `scan_dstart`, `carry` in reverse, `scan_grad` with the gradient by the state behind |
//! | `short_conv` | last rows of the block before, `short_conv` with these |
//! | `short_conv_dx` | `short_conv_dstart`, that of the next block, `short_conv_dx` with it |
//!
//! `carry`, and a shift by a block, read all blocks, so that ranks which share a sequence gather what they read there.

use super::{Carry, Scan, ScanDstart, ScanGrad, ScanSettings, ScanState};
use super::{ShortConv, ShortConvDstart, ShortConvDw, ShortConvDx};
use crate::ids::Value;
use crate::ops::{Builder, Op, OpResult, Pad, Reshape, Slice};
use crate::types::{Dim, Type};

/// The dims of rows within sequences, and of the blocks of a sequence.
const SEQUENCE: usize = 1;
const BLOCKS: usize = 1;

/// An op on the rows of sequences, which reads earlier ones through a state.
pub trait InBlocks: std::fmt::Debug {
    /// The least rows of a block: those that the next one reads.
    fn least_rows(&self, operands: &[&Type]) -> u64 {
        let _ = operands;
        1
    }

    /// Emits what hands on states between blocks, and returns the op that reads them.
    ///
    /// # Errors
    /// The op does not accept the operands, or blocks do not divide a sequence.
    fn in_blocks(&self, b: &mut Builder<'_>, operands: &[Value], states: &mut BlockStates) -> OpResult<OpInBlocks>;
}

/// An op on blocks, and its operands.
#[derive(Clone, PartialEq, Debug)]
pub struct OpInBlocks {
    /// The op.
    pub op: Op,
    /// Its operands, states among them.
    pub operands: Vec<Value>,
}

/// Blocks of sequences, and the values that statements so far carry from one to the next. Later sections read them, too.
#[derive(Debug)]
pub struct BlockStates {
    blocks: u64,
    made: Vec<Made>,
}

/// The values that an op and its operands led to.
#[derive(Debug)]
struct Made {
    by: Op,
    of: Vec<Value>,
    values: Vec<Value>,
}

impl BlockStates {
    /// No values so far, for this number of blocks of each sequence.
    pub fn new(blocks: u64) -> BlockStates {
        BlockStates { blocks, made: Vec::new() }
    }

    /// The rows of a block of a value's sequences.
    fn length(&self, b: &Builder<'_>, rows: Value) -> u64 {
        b.ty(rows).dims[SEQUENCE].size / self.blocks
    }

    /// The values of an op and its operands, if they are made already.
    fn made(&self, by: &Op, of: &[Value]) -> Option<&[Value]> {
        self.made.iter().find(|made| made.by == *by && made.of == of).map(|made| made.values.as_slice())
    }

    /// The state before each block of a scan, and what each block makes of a state.
    fn of_scan(&mut self, b: &mut Builder<'_>, settings: ScanSettings, scan: &[Value]) -> OpResult<[Value; 2]> {
        let (by, of) = (Op::from(ScanState(settings)), ScanState::operands(scan));
        if let Some(&[start, through]) = self.made(&by, of) {
            return Ok([start, through]);
        }
        let &[end, through] = b.op(by.clone(), of)?.as_slice() else { return Err("has two results".to_string()) };
        let values = [b.one(Carry { reverse: false }, &[end, through])?, through];
        self.made.push(Made { by, of: of.to_vec(), values: values.to_vec() });
        Ok(values)
    }

    /// The rows that the taps of each block read before it: the last ones of the block before, and zeros before the first.
    fn rows_before(&mut self, b: &mut Builder<'_>, x: Value, taps: u64) -> OpResult<Value> {
        let (rows, length, read) = (b.ty(x).logical(), self.length(b, x), taps - 1);
        let by = Op::from(Slice { dim: BLOCKS + 1, start: length - read, length: read });
        if let Some(&[start]) = self.made(&by, &[x]) {
            return Ok(start);
        }
        let blocks = [Dim::sized(self.blocks), Dim::sized(length)];
        let dims = [&rows.dims[..SEQUENCE], &blocks, &rows.dims[SEQUENCE + 1..]].concat();
        let blocks = b.one(Reshape { dims }, &[x])?;
        let last = b.one(by.clone(), &[blocks])?;
        let others = b.one(Slice { dim: BLOCKS, start: 0, length: self.blocks - 1 }, &[last])?;
        let start = b.one(Pad { dim: BLOCKS, before: 1, after: 0 }, &[others])?;
        self.made.push(Made { by, of: vec![x], values: vec![start] });
        Ok(start)
    }
}

impl InBlocks for Scan {
    fn in_blocks(&self, b: &mut Builder<'_>, scan: &[Value], states: &mut BlockStates) -> OpResult<OpInBlocks> {
        let settings = self.0.in_blocks(Some(states.length(b, scan[0])));
        let [start, _] = states.of_scan(b, settings, scan)?;
        Ok(OpInBlocks { op: Scan(settings).into(), operands: [scan, &[start]].concat() })
    }
}

impl InBlocks for ScanGrad {
    fn in_blocks(&self, b: &mut Builder<'_>, operands: &[Value], states: &mut BlockStates) -> OpResult<OpInBlocks> {
        let (scan, dout) = operands.split_at(self.0.operands());
        let settings = self.0.in_blocks(Some(states.length(b, scan[0])));
        let [start, through] = states.of_scan(b, settings, scan)?;
        let dstart = b.one(ScanDstart(settings), &ScanDstart::operands(scan, dout[0]))?;
        let dend = b.one(Carry { reverse: true }, &[dstart, through])?;
        Ok(OpInBlocks { op: ScanGrad(settings).into(), operands: [scan, &[start], dout, &[dend]].concat() })
    }
}

fn taps(w: &Type) -> u64 {
    w.dims.last().map_or(1, |dim| dim.size)
}

impl InBlocks for ShortConv {
    fn least_rows(&self, operands: &[&Type]) -> u64 {
        taps(operands[1]).saturating_sub(1).max(1)
    }

    fn in_blocks(&self, b: &mut Builder<'_>, operands: &[Value], states: &mut BlockStates) -> OpResult<OpInBlocks> {
        let taps = taps(b.ty(operands[1]));
        if taps < 2 {
            return Ok(OpInBlocks { op: self.clone().into(), operands: operands.to_vec() });
        }
        let block = Some(states.length(b, operands[0]));
        let start = states.rows_before(b, operands[0], taps)?;
        Ok(OpInBlocks { op: ShortConv { block }.into(), operands: [operands, &[start]].concat() })
    }
}

impl InBlocks for ShortConvDw {
    fn in_blocks(&self, b: &mut Builder<'_>, operands: &[Value], states: &mut BlockStates) -> OpResult<OpInBlocks> {
        if self.taps.size < 2 {
            return Ok(OpInBlocks { op: self.clone().into(), operands: operands.to_vec() });
        }
        let block = Some(states.length(b, operands[0]));
        let start = states.rows_before(b, operands[0], self.taps.size)?;
        Ok(OpInBlocks { op: ShortConvDw { block, ..self.clone() }.into(), operands: [operands, &[start]].concat() })
    }
}

impl InBlocks for ShortConvDx {
    fn in_blocks(&self, b: &mut Builder<'_>, operands: &[Value], states: &mut BlockStates) -> OpResult<OpInBlocks> {
        if taps(b.ty(operands[1])) < 2 {
            return Ok(OpInBlocks { op: self.clone().into(), operands: operands.to_vec() });
        }
        let block = states.length(b, operands[0]);
        let dstart = b.one(ShortConvDstart { block }, operands)?;
        // Nothing reads the last rows of the last block.
        let others = b.one(Slice { dim: BLOCKS, start: 1, length: states.blocks - 1 }, &[dstart])?;
        let dend = b.one(Pad { dim: BLOCKS, before: 0, after: 1 }, &[others])?;
        Ok(OpInBlocks { op: ShortConvDx { block: Some(block) }.into(), operands: [operands, &[dend]].concat() })
    }
}
