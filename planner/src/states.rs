//! Ranks that share a sequence hand on the states that ops carry along it: the chunked form of Dao and Gu 2024, section 6, with a rank for a
//! chunk.
//!
//! Each rank has a block of the sequence. It computes what its block makes of a state, and ranks gather that. From it follows the state before
//! each block, with which a rank runs its scan. The gradient goes the other way ([`ir::ops::InBlocks`]).

use crate::PlanError;
use crate::fault::Fault;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ops::{BlockStates, Builder, OpInBlocks, OpResult};
use ir::options::ParallelConfig;

/// The dim of rows within sequences.
const SEQUENCE: usize = 1;

/// Gives each rank of cp a block of the sequences of all ops that carry a state.
///
/// # Errors
/// The ranks cannot share the sequences: see [`check_states`].
pub(crate) fn in_blocks(model: &mut Model, parallel: &ParallelConfig) -> Result<(), PlanError> {
    check_states(model, parallel)?;
    if parallel.cp <= 1 {
        return Ok(());
    }
    for block in model.blocks.values_mut() {
        let mut states = BlockStates::new(parallel.cp);
        for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
            for stmt in std::mem::take(&mut block[kind].stmts) {
                let stmts = statement(block, stmt, &mut states);
                block[kind].stmts.extend(stmts.map_err(|why| Fault::Op(why).in_pass("annotate"))?);
            }
        }
    }
    Ok(())
}

/// A statement on blocks, behind those that hand on what it reads of other blocks.
fn statement(block: &mut Block, mut stmt: Stmt, states: &mut BlockStates) -> OpResult<Vec<Stmt>> {
    let mut builder = Builder::new(block);
    let OpInBlocks { op, operands } = match stmt.op.extras().in_blocks {
        Some(of) => of.in_blocks(&mut builder, &stmt.operands, states)?,
        None => return Ok(vec![stmt]),
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

/// Checks that ranks share sequences in equal blocks, each of which has the rows that the next one reads.
///
/// # Errors
/// They do not.
pub(crate) fn check_states(model: &Model, parallel: &ParallelConfig) -> Result<(), PlanError> {
    let cp = parallel.cp;
    for carrying in carrying(model).filter(|_| cp > 1) {
        let Carrying { rows, least, op } = carrying;
        if !rows.is_multiple_of(cp) || rows / cp < least {
            return Err(PlanError::StateOverRanks { cp, rows, least, op });
        }
    }
    Ok(())
}

/// The least tokens of the equal blocks in which ranks share a sequence; `None` if no op carries a state from one to the next.
pub fn least_block(model: &Model) -> Option<u64> {
    carrying(model).map(|carrying| carrying.least).max()
}

/// A statement of a forward that carries a state.
struct Carrying {
    op: &'static str,
    /// Rows of a sequence.
    rows: u64,
    /// The least rows of a block.
    least: u64,
}

impl Carrying {
    fn of(block: &Block, stmt: &Stmt) -> Option<Carrying> {
        let in_blocks = stmt.op.extras().in_blocks?;
        let types: Vec<_> = stmt.operands.iter().map(|&value| block.ty(value)).collect();
        let (rows, least) = (types[0].dims[SEQUENCE].size, in_blocks.least_rows(&types));
        Some(Carrying { op: stmt.op.name(), rows, least })
    }
}

fn carrying(model: &Model) -> impl Iterator<Item = Carrying> {
    model.carrying().filter_map(|(block, stmt)| Carrying::of(block, stmt))
}
