//! Which dim of each value of a block runs along the sequence, and what each operand must be on a slice.

use super::Cut;
use crate::graph::{ArgKind, Block, ResultKind, SectionKind, Stmt};
use crate::ids::Value;
use crate::ops::OpDef;
use crate::rule::{Instance, Rule, holds};
use crate::types::{PartialKind, Type};
use std::collections::{HashMap, HashSet};

/// What an operand is on a slice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    /// As it is: it does not run along the sequence.
    Same,
    /// The rows of the slice.
    Rows,
    /// The rows of the slice and of all before it.
    UpTo,
}

/// How a block's forward runs along the sequence.
#[derive(Default)]
pub(super) struct Along {
    /// The dim of the values that run along it.
    pub(super) dim: HashMap<Value, usize>,
    /// Per statement of `F`, what each operand is.
    pub(super) parts: Vec<Vec<Part>>,
    /// What each slice passes on to later ones, in the order of their first use.
    pub(super) passed: Vec<Value>,
    /// Those that each slice has only its own rows of; the others are whole.
    sliced: HashSet<Value>,
    /// Sums over the sequence.
    sums: HashSet<Value>,
}

impl Along {
    /// How a block runs along the sequence that is cut.
    ///
    /// # Errors
    /// What of the block needs more than the rows up to a slice's end.
    pub(super) fn of(block: &Block, cut: &Cut) -> Result<Along, String> {
        let mut along = Along::default();
        for arg in &block.args {
            let named = |place: &usize| block.ty(arg.value).dims[*place].name == Some(cut.dim);
            let dims: Vec<usize> = (0..block.ty(arg.value).rank()).filter(named).collect();
            match dims.as_slice() {
                [] => {}
                [dim] => drop(along.dim.insert(arg.value, *dim)),
                _ => return Err(format!("`%{}` has the sequence twice", block.value_name(arg.value))),
            }
            if arg.kind == ArgKind::Value {
                along.sliced.insert(arg.value);
            }
        }
        for stmt in &block[SectionKind::F].stmts {
            let parts = along.statement(block, stmt).map_err(|why| {
                let names: Vec<String> =
                    stmt.results.iter().map(|&value| format!("%{}", block.value_name(value))).collect();
                format!("`{} = {}(..)` {why}", names.join(", "), stmt.op.name())
            })?;
            along.parts.push(parts);
        }
        along.results(block)?;
        Ok(along)
    }

    /// Whether each slice has only its own rows of a value.
    pub(super) fn is_sliced(&self, value: Value) -> bool {
        self.sliced.contains(&value)
    }

    fn statement(&mut self, block: &Block, stmt: &Stmt) -> Result<Vec<Part>, String> {
        let def = stmt.op.def().ok_or("changes a layout, which is decided later")?;
        let instance = instance(block, stmt, def)?;
        let (mut parts, mut cut) = (Vec::new(), None);
        for (place, &operand) in stmt.operands.iter().enumerate() {
            let Some(&dim) = self.dim.get(&operand) else {
                parts.push(Part::Same);
                continue;
            };
            let &[letter] = instance.operands[place][dim].as_slice() else {
                return Err("merges the sequence with another dim, or splits it".to_string());
            };
            if !instance.letters[letter].whole {
                if *cut.get_or_insert(letter) != letter {
                    return Err("runs along the sequence in two ways".to_string());
                }
                parts.push(Part::Rows);
            } else if def.sees_before().contains(&place) {
                parts.push(Part::UpTo);
                if self.is_sliced(operand) && !self.passed.contains(&operand) {
                    self.passed.push(operand);
                }
            } else {
                return Err("needs the whole sequence".to_string());
            }
        }
        self.made(stmt, &instance, cut)?;
        self.summed(stmt, def, &parts)?;
        Ok(parts)
    }

    /// What the results are along the sequence, where one letter of the operands is.
    fn made(&mut self, stmt: &Stmt, instance: &Instance, cut: Option<usize>) -> Result<(), String> {
        self.sliced.extend(&stmt.results);
        let Some(letter) = cut else { return Ok(()) };
        for (place, &result) in stmt.results.iter().enumerate() {
            let dims = &instance.results[place];
            if let Some(dim) = dims.iter().position(|letters| letters.as_slice() == [letter]) {
                self.dim.insert(result, dim);
            } else if holds(dims, letter) {
                return Err("merges the sequence with another dim".to_string());
            } else if instance.letters[letter].partial == Some(PartialKind::Sum) {
                self.sums.insert(result);
            } else {
                return Err("gives what only the whole sequence determines".to_string());
            }
        }
        Ok(())
    }

    /// A sum over the sequence has a part on each slice, and so only ops may use it that are linear in it.
    fn summed(&mut self, stmt: &Stmt, def: &dyn OpDef, parts: &[Part]) -> Result<(), String> {
        let sums: Vec<usize> =
            (0..stmt.operands.len()).filter(|&place| self.sums.contains(&stmt.operands[place])).collect();
        if sums.is_empty() {
            return Ok(());
        }
        if !def.linear(stmt.operands.len()).contains(&sums) || parts.contains(&Part::Rows) {
            return Err("uses a sum over the sequence, of which a slice has only a part".to_string());
        }
        self.sums.extend(&stmt.results);
        Ok(())
    }

    /// Values are passed on slice by slice; what is added up over micro-batches must be a sum over slices too.
    fn results(&self, block: &Block) -> Result<(), String> {
        for (kind, value) in block.results.iter().zip(&block[SectionKind::F].ret) {
            let name = block.value_name(*value);
            match (kind, self.sums.contains(value)) {
                (ResultKind::Value, true) => return Err(format!("`%{name}` is a sum over the sequence")),
                (ResultKind::Value, false) | (_, true) => {}
                (_, false) => return Err(format!("`%{name}` is no sum over the sequence")),
            }
        }
        Ok(())
    }
}

fn instance(block: &Block, stmt: &Stmt, def: &dyn OpDef) -> Result<Instance, String> {
    let logical = |values: &[Value]| values.iter().map(|&value| block.ty(value).logical()).collect::<Vec<Type>>();
    let (operands, results) = (logical(&stmt.operands), logical(&stmt.results));
    let (operands, results): (Vec<&Type>, Vec<&Type>) = (operands.iter().collect(), results.iter().collect());
    Rule::parse(&def.rule(&operands, &results))?.instantiate(&operands, &results)
}
