//! Checks that counts of filled rows count the rows that they stand for. Invariants:
//!
//! 1. The counts of a ragged all-to-all, before and after, are those of one routing: they come from the op that fills rows by some choices,
//!    through collectives that move whole tensors.
//! 2. Rows that move have zeros where the same choices fill none, or only ops read them that read what these choices fill.
//! 3. The first operand of a product of filled rows has zeros where its counts say so.

use super::rules::Wrong;
use crate::catalogue::Code;
use crate::graph::{Block, SectionKind, Stmt};
use crate::ids::Value;
use crate::ops::{Collective, Op, Ragged, RoutedRows};
use std::collections::HashMap;

/// The numbers of rows that some choices fill in chunks of a number of rows.
type Numbers = (Value, u64);

/// Counts and rows of the statements of a block so far.
#[derive(Default)]
pub(super) struct Known {
    /// The values that count rows.
    counts: HashMap<Value, Numbers>,
    /// Tensors of chunks whose other rows are zeros.
    filled: HashMap<Value, Numbers>,
}

impl Known {
    /// Checks a statement against those before it, and notes what it says.
    pub(super) fn check(&mut self, block: &Block, stmt: &Stmt) -> Result<(), Wrong> {
        if let Some(filled) = self.of(block, stmt)? {
            self.filled.insert(stmt.results[0], filled);
        }
        Ok(())
    }

    /// The numbers of rows in the first result, if the others are zeros.
    fn of(&mut self, block: &Block, stmt: &Stmt) -> Result<Option<Numbers>, Wrong> {
        let Some(&first) = stmt.operands.first() else { return Ok(None) };
        let facts = match &stmt.op {
            Op::Collective(change) => {
                let Some([before, after]) = change.counts(&stmt.operands) else {
                    // All but a shift leave a reduced tensor the same, elsewhere.
                    let stays = !matches!(change, Collective::Shift { .. }) && block.ty(first).partial.is_none();
                    if stmt.operands.len() == 1 && stays {
                        stmt.results.iter().for_each(|&result| self.pass(first, result));
                    }
                    return Ok(None);
                };
                let numbers = self.counted(block, *before, Code::BadCollective)?;
                if self.counted(block, *after, Code::BadCollective)? != numbers {
                    let names = [before, after].map(|value| block.value_name(*value));
                    let message = format!("`%{}` and `%{}` count rows of two routings", names[0], names[1]);
                    return Err(Wrong::new(Code::BadCollective, message));
                }
                let are_zeros = change.moved(&stmt.operands).iter().all(|rows| self.filled.get(rows) == Some(&numbers));
                if !are_zeros && !stmt.results.iter().all(|&result| reads_filled(block, result, numbers)) {
                    let (rows, counts) = (block.value_name(first), block.value_name(*before));
                    let message = format!("`%{counts}` does not count the rows of `%{rows}`");
                    return Err(Wrong::new(Code::BadCollective, message));
                }
                return Ok(are_zeros.then_some(numbers));
            }
            Op::Kernel(op) => op.def().facts(),
            Op::Reshard => return Ok(None),
        };
        if let Some(routed) = facts.routed.filter(|routed| routed.rows == RoutedRows::Filled) {
            let dims = &block.ty(stmt.results[0]).dims;
            let numbers = (stmt.operands[routed.choices], dims[dims.len() - 2].size);
            self.counts.insert(stmt.results[1], numbers);
            return Ok(Some(numbers));
        }
        match facts.counts {
            None => Ok(facts.keeps_zeros.iter().find_map(|operands| self.kept(block, stmt, operands))),
            Some(Ragged { rows, .. }) => {
                let counts = *stmt.operands.last().unwrap_or(&first);
                let numbers = self.counted(block, counts, Code::OperandMismatch)?;
                if self.filled.get(&first) != Some(&numbers) {
                    let (rows, counts) = (block.value_name(first), block.value_name(counts));
                    let message = format!("`%{rows}` may have rows that `%{counts}` does not count");
                    return Err(Wrong::new(Code::OperandMismatch, message));
                }
                let [from, to] = [first, stmt.results[0]].map(|value| block.ty(value).sizes());
                Ok((from.get(..=rows) == to.get(..=rows)).then_some(numbers))
            }
        }
    }

    /// The numbers of rows that some operands have in common, if each has the sizes of the first result.
    fn kept(&self, block: &Block, stmt: &Stmt, operands: &[usize]) -> Option<Numbers> {
        let numbers = self.filled.get(&stmt.operands[*operands.first()?]).copied()?;
        let sizes = block.ty(stmt.results[0]).sizes();
        let mut values = operands.iter().map(|&operand| stmt.operands[operand]);
        let are_alike =
            values.all(|value| self.filled.get(&value) == Some(&numbers) && block.ty(value).sizes() == sizes);
        are_alike.then_some(numbers)
    }

    /// Lets a value have the numbers of another.
    fn pass(&mut self, from: Value, to: Value) {
        for known in [&mut self.counts, &mut self.filled] {
            if let Some(&numbers) = known.get(&from) {
                known.insert(to, numbers);
            }
        }
    }

    fn counted(&self, block: &Block, counts: Value, code: Code) -> Result<Numbers, Wrong> {
        let known = self.counts.get(&counts).copied();
        known.ok_or_else(|| Wrong::new(code, format!("`%{}` counts the rows of no routing", block.value_name(counts))))
    }
}

/// True if all readers of a value read only rows that these choices fill, at once or after exchanges of such rows.
fn reads_filled(block: &Block, rows: Value, numbers: Numbers) -> bool {
    let is_returned = block.sections.iter().any(|section| section.ret.contains(&rows));
    let stmts = [SectionKind::F, SectionKind::I, SectionKind::W, SectionKind::U].into_iter();
    let mut readers = stmts.flat_map(|kind| &block[kind].stmts).filter(|stmt| stmt.operands.contains(&rows));
    !is_returned
        && readers.all(|stmt| match &stmt.op {
            Op::Collective(change) if change.ragged().is_some() => {
                stmt.results.iter().all(|&result| reads_filled(block, result, numbers))
            }
            _ => routed_numbers(block, stmt, rows) == Some(numbers),
        })
}

/// The numbers of rows that a statement reads of a value, if it reads only what its choices fill.
fn routed_numbers(block: &Block, stmt: &Stmt, rows: Value) -> Option<Numbers> {
    let routed = stmt.op.facts().routed?;
    let RoutedRows::Read(place) = routed.rows else { return None };
    let mut places = stmt.operands.iter().enumerate().filter(|(_, operand)| **operand == rows);
    if places.next()?.0 != place || places.next().is_some() {
        return None;
    }
    let dims = &block.ty(rows).dims;
    Some((stmt.operands[routed.choices], dims[dims.len() - 2].size))
}
