//! The sequence dim of each value of a block, and the rows of each operand that a slice needs.

use super::SequenceSplit;
use super::unsliced::{Unsliced, UnslicedStatement};
use ir::graph::{ArgKind, Block, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::OpDef;
use ir::rule::{Instance, Rule, RuleError, holds};
use ir::types::{PartialKind, Type};
use std::collections::{HashMap, HashSet};

/// The part of an operand that a slice needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum SequencePart {
    /// The entire operand, which has no sequence dim.
    Same,
    /// The rows of the slice.
    Rows,
    /// The rows of the slice and of all earlier slices.
    UpTo,
}

/// The sequence analysis of a block's forward.
#[derive(Default)]
pub(super) struct Along {
    /// The sequence dim of each value that has one.
    pub(super) dim: HashMap<Value, usize>,
    /// Per statement of `F`, the part of each operand.
    pub(super) parts: Vec<Vec<SequencePart>>,
    /// The values that each slice passes to later slices, in the order of their first use.
    pub(super) passed: Vec<Value>,
    /// The values with only their own rows in each slice; the others have all rows.
    sliced: HashSet<Value>,
    /// Sums over the sequence.
    sums: HashSet<Value>,
}

impl Along {
    /// Analyses a block for a sliced sequence.
    ///
    /// # Errors
    /// A statement of the block needs rows after the end of a slice.
    pub(super) fn of(block: &Block, split: &SequenceSplit) -> Result<Along, Unsliced> {
        let mut along = Along::default();
        for arg in &block.args {
            let dims = block.ty(arg.value).dims.iter().enumerate().filter(|(_, dim)| dim.name == Some(split.dim));
            let places: Vec<usize> = dims.map(|(place, _)| place).collect();
            match places.as_slice() {
                [] => {}
                [dim] => drop(along.dim.insert(arg.value, *dim)),
                _ => return Err(Unsliced::TwoDims(block.value_name(arg.value).to_string())),
            }
            if arg.kind == ArgKind::Value {
                along.sliced.insert(arg.value);
            }
        }
        for stmt in &block[SectionKind::F].stmts {
            let parts = along.statement(block, stmt).map_err(|why| {
                let names: Vec<String> =
                    stmt.results.iter().map(|&value| format!("%{}", block.value_name(value))).collect();
                Unsliced::Statement(format!("{} = {}(..)", names.join(", "), stmt.op.name()), why)
            })?;
            along.parts.push(parts);
        }
        along.results(block)?;
        Ok(along)
    }

    /// True if each slice has only its own rows of a value.
    pub(super) fn is_sliced(&self, value: Value) -> bool {
        self.sliced.contains(&value)
    }

    fn statement(&mut self, block: &Block, stmt: &Stmt) -> Result<Vec<SequencePart>, UnslicedStatement> {
        let def = stmt.op.def().ok_or(UnslicedStatement::Reshard)?;
        let instance = instance(block, stmt, def).map_err(UnslicedStatement::Rule)?;
        let (mut parts, mut split) = (Vec::new(), None);
        for (place, &operand) in stmt.operands.iter().enumerate() {
            let Some(&dim) = self.dim.get(&operand) else {
                parts.push(SequencePart::Same);
                continue;
            };
            let &[factor] = instance.operands[place][dim].as_slice() else {
                return Err(UnslicedStatement::OperandMerges);
            };
            if !instance.factors[factor].replicated {
                if *split.get_or_insert(factor) != factor {
                    return Err(UnslicedStatement::TwoFactors);
                }
                parts.push(SequencePart::Rows);
            } else if def.facts().causal_operands.contains(&place) {
                parts.push(SequencePart::UpTo);
                if self.is_sliced(operand) && !self.passed.contains(&operand) {
                    self.passed.push(operand);
                }
            } else {
                return Err(UnslicedStatement::Whole);
            }
        }
        self.made(stmt, &instance, split)?;
        self.summed(stmt, def, &parts)?;
        Ok(parts)
    }

    /// The sequence dims of the results, given the factor of the operands that is the sequence.
    fn made(&mut self, stmt: &Stmt, instance: &Instance, split: Option<usize>) -> Result<(), UnslicedStatement> {
        self.sliced.extend(&stmt.results);
        let Some(factor) = split else { return Ok(()) };
        for (place, &result) in stmt.results.iter().enumerate() {
            let dims = &instance.results[place];
            if let Some(dim) = dims.iter().position(|factors| factors.as_slice() == [factor]) {
                self.dim.insert(result, dim);
            } else if holds(dims, factor) {
                return Err(UnslicedStatement::ResultMerges);
            } else if instance.factors[factor].partial == Some(PartialKind::Sum) {
                self.sums.insert(result);
            } else {
                return Err(UnslicedStatement::Determined);
            }
        }
        Ok(())
    }

    /// A sum over the sequence is partial on each slice, so only linear ops may use it.
    fn summed(&mut self, stmt: &Stmt, def: &dyn OpDef, parts: &[SequencePart]) -> Result<(), UnslicedStatement> {
        let sums: Vec<usize> =
            (0..stmt.operands.len()).filter(|&place| self.sums.contains(&stmt.operands[place])).collect();
        if sums.is_empty() {
            return Ok(());
        }
        if !def.facts().linear.groups(stmt.operands.len()).contains(&sums) || parts.contains(&SequencePart::Rows) {
            return Err(UnslicedStatement::PartOfSum);
        }
        self.sums.extend(&stmt.results);
        Ok(())
    }

    /// Values are passed slice by slice; results that accumulate over micro-batches must be sums over slices too.
    fn results(&self, block: &Block) -> Result<(), Unsliced> {
        for (kind, value) in block.results.iter().zip(&block[SectionKind::F].ret) {
            let name = block.value_name(*value);
            match (kind, self.sums.contains(value)) {
                (ResultKind::Value, true) => return Err(Unsliced::Sum(name.to_string())),
                (ResultKind::Value, false) | (_, true) => {}
                (_, false) => return Err(Unsliced::NoSum(name.to_string())),
            }
        }
        Ok(())
    }
}

fn instance(block: &Block, stmt: &Stmt, def: &dyn OpDef) -> Result<Instance, RuleError> {
    let operands: Vec<Type> = stmt.operands.iter().map(|&value| block.ty(value).logical()).collect();
    let results: Vec<Type> = stmt.results.iter().map(|&value| block.ty(value).logical()).collect();
    let (operands, results): (Vec<&Type>, Vec<&Type>) = (operands.iter().collect(), results.iter().collect());
    Rule::parse(&def.rule(&operands, &results))?.instantiate(&operands, &results)
}
