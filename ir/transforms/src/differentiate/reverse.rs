//! The reverse walk: each statement of `F`, last to first, propagates the cotangents of its results to its operands.

use super::DifferentiateError;
use crate::build_error::BuildError;
use ir::entity::{EntitySet, SecondaryMap};
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Binary, BinaryKind, Builder, Cotangents, Unary, UnaryKind};

/// The result of the walk: one list of statements, before dead ones are dropped and the rest is distributed over sections.
pub(super) struct Backward {
    /// The cotangents of the block's differentiable results, in order: the arguments.
    pub given: Vec<Value>,
    /// The statements, in an executable order.
    pub stmts: Vec<Stmt>,
    /// The cotangents of the block's differentiable arguments, in order.
    pub args: Vec<Value>,
    /// Each parameter that has a gradient, with it.
    pub params: Vec<(Value, Value)>,
}

/// Walks a block's `F` backwards. The `frozen` parameters get no gradient.
///
/// # Errors
/// An op on the path from a differentiable argument or parameter to a differentiable result has no gradient.
pub(super) fn backward(block: &mut Block, frozen: &EntitySet<Value>) -> Result<Backward, DifferentiateError> {
    let records = records(block, frozen);
    let active = active(block, frozen, &records);
    let forward = block[SectionKind::F].stmts.clone();
    let mut walk = Walk { builder: Builder::new(block), parts: SecondaryMap::new() };
    let given = walk.feed();
    for stmt in forward.iter().rev() {
        walk.note(stmt, &records);
        walk.statement(stmt, &active).map_err(|why| DifferentiateError::in_statement(walk.builder.block, stmt, why))?;
    }
    let ends = walk.arguments().and_then(|args| Ok((args, walk.parameters()?)));
    let (args, params) = ends.map_err(|why| DifferentiateError::in_block(walk.builder.block, why))?;
    Ok(Backward { given, stmts: walk.builder.stmts, args, params })
}

/// The values that a differentiable argument or a trained parameter reaches: only they have a cotangent.
fn active(block: &Block, frozen: &EntitySet<Value>, records: &EntitySet<Value>) -> EntitySet<Value> {
    let mut active = EntitySet::new();
    let trained = trained(block, frozen).filter(|&param| !records.contains(param));
    active.extend(block.differentiable_args().chain(trained));
    for stmt in block[SectionKind::F].stmts.iter().filter(|stmt| stmt.op.facts().noted.is_none()) {
        if needed(stmt, &active).contains(&true) {
            active.extend(stmt.results.iter().copied().filter(|&value| is_float(block, value)));
        }
    }
    active
}

/// By operand of a statement, true if its cotangent is needed.
fn needed(stmt: &Stmt, active: &EntitySet<Value>) -> Vec<bool> {
    let constants = stmt.op.facts().constants;
    let operands = stmt.operands.iter().enumerate();
    operands.map(|(place, &value)| active.contains(value) && !constants.contains(&place)).collect()
}

/// The parameters that note results: nothing else is their gradient.
fn records(block: &Block, frozen: &EntitySet<Value>) -> EntitySet<Value> {
    let mut records = EntitySet::new();
    let stmts = block[SectionKind::F].stmts.iter();
    let noted = stmts.filter_map(|stmt| stmt.op.facts().noted.map(|noted| stmt.operands[noted.record]));
    records.extend(noted.filter(|&record| trained(block, frozen).any(|param| param == record)));
    records
}

fn trained(block: &Block, frozen: &EntitySet<Value>) -> impl Iterator<Item = Value> {
    block.args_of(ArgKind::Param).filter(|&param| is_float(block, param) && !frozen.contains(param))
}

fn is_float(block: &Block, value: Value) -> bool {
    block.ty(value).dtype.is_float()
}

struct Walk<'a> {
    builder: Builder<'a>,
    /// The contribution of each use of a value to its cotangent.
    parts: SecondaryMap<Value, Vec<Value>>,
}

impl Walk<'_> {
    /// Creates the cotangents of the block results.
    fn feed(&mut self) -> Vec<Value> {
        let results: Vec<Value> = self.builder.block.differentiable_results().map(|(_, value)| value).collect();
        let mut given = Vec::new();
        for result in results {
            let ty = self.builder.ty(result).logical();
            let name = self.free_name(result).unwrap_or_default();
            let cotangent = self.builder.block.add_value(&name, ty);
            self.parts[result].push(cotangent);
            given.push(cotangent);
        }
        given
    }

    /// The result of a statement that notes it is the gradient of the record.
    fn note(&mut self, stmt: &Stmt, records: &EntitySet<Value>) {
        let record = stmt.op.facts().noted.map(|noted| stmt.operands[noted.record]);
        if let Some(record) = record.filter(|&record| records.contains(record)) {
            self.parts[record].push(stmt.results[0]);
        }
    }

    fn statement(&mut self, stmt: &Stmt, active: &EntitySet<Value>) -> Result<(), BuildError> {
        let needed = needed(stmt, active);
        if !needed.contains(&true) {
            return Ok(());
        }
        let given = stmt.results.iter().map(|&value| self.total(value)).collect::<Result<Vec<_>, _>>()?;
        if given.iter().all(Option::is_none) {
            return Ok(());
        }
        let def = stmt.op.def().ok_or(BuildError::Reshard)?;
        let call = Cotangents { operands: &stmt.operands, results: &stmt.results, given: &given, needed: &needed };
        let cotangents = def.gradient(&mut self.builder, &call)?;
        for ((&operand, cotangent), needed) in stmt.operands.iter().zip(cotangents).zip(needed) {
            if let (Some(cotangent), true) = (cotangent, needed) {
                debug_assert!(self.builder.ty(cotangent).same_tensor(self.builder.ty(operand)));
                self.parts[operand].push(cotangent);
            }
        }
        Ok(())
    }

    /// The total cotangent of a value, named `%x.d` after it. `None` is zero.
    fn total(&mut self, value: Value) -> Result<Option<Value>, BuildError> {
        let Some(sum) = self.sum(value)? else { return Ok(None) };
        let made_here = self.builder.block.value_name(sum).parse::<u32>().is_ok();
        if let (true, Some(name)) = (made_here, self.free_name(value)) {
            self.builder.block.values[sum].name = name;
        }
        Ok(Some(sum))
    }

    fn sum(&mut self, value: Value) -> Result<Option<Value>, BuildError> {
        let mut parts = std::mem::take(&mut self.parts[value]).into_iter();
        let Some(mut sum) = parts.next() else { return Ok(None) };
        for part in parts {
            sum = self.builder.one(Binary::of(BinaryKind::Add), &[sum, part])?;
        }
        Ok(Some(sum))
    }

    fn free_name(&self, value: Value) -> Option<String> {
        let name = format!("{}.d", self.builder.block.value_name(value));
        self.builder.block.find(&name).is_none().then_some(name)
    }

    /// The cotangents of the arguments; zeros for an unused argument.
    fn arguments(&mut self) -> Result<Vec<Value>, BuildError> {
        let args: Vec<Value> = self.builder.block.differentiable_args().collect();
        let mut cotangents = Vec::new();
        for arg in args {
            cotangents.push(match self.total(arg)? {
                Some(cotangent) => cotangent,
                None => self.builder.one(Unary(UnaryKind::Scale(0.0)), &[arg])?,
            });
        }
        Ok(cotangents)
    }

    fn parameters(&mut self) -> Result<Vec<(Value, Value)>, BuildError> {
        let params: Vec<Value> = self.builder.block.args_of(ArgKind::Param).collect();
        let mut gradients = Vec::new();
        for param in params {
            gradients.extend(self.sum(param)?.map(|gradient| (param, gradient)));
        }
        Ok(gradients)
    }
}
