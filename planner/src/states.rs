//! Ranks that share a sequence hand on the states that ops carry along it (as in DeltaNet's and Mamba-2's context parallelism, whose source is
//! the chunked form of Dao and Gu 2024, section 6, with a rank for a chunk).
//!
//! Each rank has a block of the sequence. It computes what its block does to a state, and ranks gather that. From it follows the state before
//! each block, with which a rank runs its scan. The gradient goes the other way: what the results of a block alone say of the state before it,
//! and from that the gradient by the state behind each block. A short convolution hands on its last rows.
//!
//! | op | becomes |
//! |---|---|
//! | `scan` | `scan_state`, `carry`, `scan` with the state before |
//! | `scan_grad` | `scan_dstart`, `carry` in reverse, `scan_grad` with the gradient by the state behind |
//! | `short_conv` | last rows of the block before, `short_conv` with these |
//! | `short_conv_dx` | `short_conv_dstart`, that of the next block, `short_conv_dx` with it |
//!
//! The operands of `carry` may not be sharded over blocks, so the planner gathers them, and its results are sliced.

use crate::PlanError;
use crate::fault::Fault;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Builder, Carry, KernelOp, Op, OpResult, Pad, Reshape, ScanDstart, ScanGrad, ScanSettings, ScanState};
use ir::ops::{Scan, ShortConv, ShortConvDstart, ShortConvDw, ShortConvDx, Slice};
use ir::options::ParallelConfig;
use ir::types::{Dim, Type};

/// The dims of rows within sequences, and of the blocks of a sequence.
const SEQUENCE: usize = 1;
const BLOCKS: usize = 1;

/// Cuts the sequences of all ops that carry a state into a block for each rank of cp.
///
/// # Errors
/// The ranks cannot share the sequences: see [`check_states`].
pub(crate) fn in_blocks(model: &mut Model, parallel: &ParallelConfig) -> Result<(), PlanError> {
    check_states(model, parallel)?;
    if parallel.cp <= 1 {
        return Ok(());
    }
    for block in model.blocks.values_mut() {
        let mut carried = Carried { ranks: parallel.cp, states: Vec::new(), rows: Vec::new() };
        for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
            for stmt in std::mem::take(&mut block[kind].stmts) {
                let stmts = carried.statement(block, stmt).map_err(|why| Fault::Op(why).in_pass("annotate"))?;
                block[kind].stmts.extend(stmts);
            }
        }
    }
    Ok(())
}

/// Checks that ranks share sequences in equal blocks, each of which has the rows that the next one reads.
///
/// # Errors
/// They do not.
pub(crate) fn check_states(model: &Model, parallel: &ParallelConfig) -> Result<(), PlanError> {
    let cp = parallel.cp;
    let stmts =
        model.blocks.values().flat_map(|block| block[SectionKind::F].stmts.iter().map(move |stmt| (block, stmt)));
    for (block, stmt) in stmts.filter(|(_, stmt)| cp > 1 && stmt.op.facts().carries_state) {
        let (rows, least) = (block.ty(stmt.operands[0]).dims[SEQUENCE].size, least_rows(block, stmt));
        if !rows.is_multiple_of(cp) || rows / cp < least {
            return Err(PlanError::StateOverRanks { cp, rows, least, op: stmt.op.name() });
        }
    }
    Ok(())
}

/// The least tokens of the equal blocks in which ranks share a sequence; `None` if no op carries a state from one to the next.
pub fn least_block(model: &Model) -> Option<u64> {
    carrying(model).map(|(block, stmt)| least_rows(block, stmt)).max()
}

/// The statements that carry a state, with their blocks.
fn carrying(model: &Model) -> impl Iterator<Item = (&Block, &Stmt)> {
    let stmts =
        model.blocks.values().flat_map(|block| block[SectionKind::F].stmts.iter().map(move |stmt| (block, stmt)));
    stmts.filter(|(_, stmt)| stmt.op.facts().carries_state)
}

/// The least rows of a block: those that the taps of a convolution read before the next one.
fn least_rows(block: &Block, stmt: &Stmt) -> u64 {
    match (&stmt.op, stmt.operands.get(1)) {
        (Op::Kernel(KernelOp::ShortConv(_)), Some(&taps)) => block.ty(taps).dims.last().map_or(1, |taps| taps.size - 1),
        _ => 1,
    }
    .max(1)
}

/// The state before each block of a scan, and what each block makes of a state.
struct States {
    /// Its operands but the queries, of which states are made, and its settings.
    of: Vec<Value>,
    settings: ScanSettings,
    start: Value,
    through: Value,
}

/// The rows before each block of a convolution.
struct RowsBefore {
    of: Value,
    taps: u64,
    start: Value,
}

/// What the statements so far carry from block to block. Later sections read it, too.
struct Carried {
    ranks: u64,
    states: Vec<States>,
    rows: Vec<RowsBefore>,
}

impl Carried {
    /// A statement in blocks, behind what it reads of others.
    fn statement(&mut self, block: &mut Block, mut stmt: Stmt) -> OpResult<Vec<Stmt>> {
        let Op::Kernel(op) = &stmt.op else { return Ok(vec![stmt]) };
        let mut builder = Builder::new(block);
        let (op, operands): (Op, Vec<Value>) = match op {
            KernelOp::Scan(Scan(settings)) => self.scan(&mut builder, settings, &stmt.operands)?,
            KernelOp::ScanGrad(ScanGrad(settings)) => self.scan_grad(&mut builder, settings, &stmt.operands)?,
            KernelOp::ShortConv(_) => self.convolution(&mut builder, &stmt.operands)?,
            KernelOp::ShortConvDx(_) => self.by_rows(&mut builder, &stmt.operands)?,
            KernelOp::ShortConvDw(op) => self.by_taps(&mut builder, op, &stmt.operands)?,
            _ => return Ok(vec![stmt]),
        };
        let mut stmts = builder.stmts;
        for &value in stmts.iter().flat_map(|stmt| &stmt.results) {
            block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = true);
        }
        if let Some(first) = stmts.first_mut() {
            first.comments = std::mem::take(&mut stmt.comments);
        }
        stmts.push(Stmt { op, operands, ..stmt });
        Ok(stmts)
    }

    /// The rows of a block of this value.
    fn length(&self, b: &Builder<'_>, rows: Value) -> u64 {
        b.ty(rows).dims[SEQUENCE].size / self.ranks
    }

    fn scan(&mut self, b: &mut Builder<'_>, settings: &ScanSettings, scan: &[Value]) -> OpResult<(Op, Vec<Value>)> {
        let settings = settings.in_blocks(Some(self.length(b, scan[0])));
        let States { start, .. } = self.states(b, settings, scan)?;
        let operands = [scan, &[*start]].concat();
        Ok((Scan(settings).into(), operands))
    }

    fn scan_grad(&mut self, b: &mut Builder<'_>, settings: &ScanSettings, all: &[Value]) -> OpResult<(Op, Vec<Value>)> {
        let (scan, dout) = all.split_at(settings.operands());
        let settings = settings.in_blocks(Some(self.length(b, scan[0])));
        let &States { start, through, .. } = self.states(b, settings, scan)?;
        let dstart = b.one(ScanDstart(settings), &ScanDstart::operands(scan, dout[0]))?;
        let dend = b.one(Carry { reverse: true }, &[dstart, through])?;
        let operands = [scan, &[start], dout, &[dend]].concat();
        Ok((ScanGrad(settings).into(), operands))
    }

    /// The states of a scan, made where no statement has made them.
    fn states(&mut self, b: &mut Builder<'_>, settings: ScanSettings, scan: &[Value]) -> OpResult<&States> {
        let of = ScanState::operands(scan);
        let made = self.states.iter().position(|states| states.of == of && states.settings == settings);
        let place = match made {
            Some(place) => place,
            None => {
                let [end, through]: [Value; 2] =
                    b.op(ScanState(settings), of)?.try_into().map_err(|_| "`scan_state` has two results")?;
                let start = b.one(Carry { reverse: false }, &[end, through])?;
                self.states.push(States { of: of.to_vec(), settings, start, through });
                self.states.len() - 1
            }
        };
        Ok(&self.states[place])
    }

    fn convolution(&mut self, b: &mut Builder<'_>, operands: &[Value]) -> OpResult<(Op, Vec<Value>)> {
        let (block, taps) = (Some(self.length(b, operands[0])), taps(b.ty(operands[1])));
        if taps < 2 {
            return Ok((ShortConv::default().into(), operands.to_vec()));
        }
        let start = self.rows_before(b, operands[0], taps)?;
        Ok((ShortConv { block }.into(), [operands, &[start]].concat()))
    }

    fn by_taps(&mut self, b: &mut Builder<'_>, op: &ShortConvDw, all: &[Value]) -> OpResult<(Op, Vec<Value>)> {
        if op.taps.size < 2 {
            return Ok((op.clone().into(), all.to_vec()));
        }
        let block = Some(self.length(b, all[0]));
        let start = self.rows_before(b, all[0], op.taps.size)?;
        Ok((ShortConvDw { block, ..op.clone() }.into(), [all, &[start]].concat()))
    }

    fn by_rows(&mut self, b: &mut Builder<'_>, operands: &[Value]) -> OpResult<(Op, Vec<Value>)> {
        let block = self.length(b, operands[0]);
        if taps(b.ty(operands[1])) < 2 {
            return Ok((ShortConvDx::default().into(), operands.to_vec()));
        }
        let dstart = b.one(ShortConvDstart { block }, operands)?;
        // Nothing reads the last block's rows behind it.
        let others = b.one(Slice { dim: BLOCKS, start: 1, length: self.ranks - 1 }, &[dstart])?;
        let dend = b.one(Pad { dim: BLOCKS, before: 0, after: 1 }, &[others])?;
        Ok((ShortConvDx { block: Some(block) }.into(), [operands, &[dend]].concat()))
    }

    /// The rows that the taps of each block read before it: the last ones of the block before, and zeros before the first.
    fn rows_before(&mut self, b: &mut Builder<'_>, x: Value, taps: u64) -> OpResult<Value> {
        if let Some(made) = self.rows.iter().find(|made| made.of == x && made.taps == taps) {
            return Ok(made.start);
        }
        let (rows, length, read) = (b.ty(x).logical(), self.length(b, x), taps - 1);
        let blocks = [Dim::sized(self.ranks), Dim::sized(length)];
        let dims = [&rows.dims[..SEQUENCE], &blocks, &rows.dims[SEQUENCE + 1..]].concat();
        let blocks = b.one(Reshape { dims }, &[x])?;
        let last = b.one(Slice { dim: BLOCKS + 1, start: length - read, length: read }, &[blocks])?;
        let others = b.one(Slice { dim: BLOCKS, start: 0, length: self.ranks - 1 }, &[last])?;
        let start = b.one(Pad { dim: BLOCKS, before: 1, after: 0 }, &[others])?;
        self.rows.push(RowsBefore { of: x, taps, start });
        Ok(start)
    }
}

fn taps(w: &Type) -> u64 {
    w.dims.last().map_or(1, |dim| dim.size)
}
