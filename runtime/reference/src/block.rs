//! One instance of a block: its sections in order, with every value saved.

use super::ops::Context;
use super::real::Real;
use super::round::{Rounding, Within};
use super::tensor::{Array, Tensor};
use ir::entity::SecondaryMap;
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::types::DType;
use std::collections::BTreeSet;

/// A block with the values that are known so far.
#[derive(Clone, Debug)]
pub struct BlockRun<'a, R: Clone> {
    block: &'a Block,
    context: Context,
    rounding: Rounding,
    /// Numbers that have been rounded.
    rounded: u64,
    values: SecondaryMap<Value, Option<Array<R>>>,
}

impl<'a, R: Real> BlockRun<'a, R> {
    /// A run without values yet.
    pub fn new(block: &'a Block, context: Context) -> BlockRun<'a, R> {
        BlockRun { block, context, rounding: Rounding::Nearest, rounded: 0, values: SecondaryMap::new() }
    }

    /// Changes the rounding of the run.
    #[must_use]
    pub fn rounding(self, rounding: Rounding) -> BlockRun<'a, R> {
        BlockRun { rounding, ..self }
    }

    /// The block.
    pub fn block(&self) -> &'a Block {
        self.block
    }

    /// Gives a value: an argument, a gradient, a scalar of the step. Floats are rounded to its type.
    ///
    /// # Errors
    /// The sizes are not those of its type, or floats replace integers.
    pub fn set(&mut self, value: Value, array: impl Into<Array<R>>) -> Result<(), String> {
        let (array, ty) = (array.into(), self.block.ty(value));
        let sizes: Vec<usize> = ty.sizes().iter().map(|&size| size as usize).collect();
        let is_float = matches!(array, Array::Real(_));
        if sizes != array.dims() || is_float != ty.dtype.is_float() {
            let sort = if is_float { "floats" } else { "integers" };
            return Err(format!(
                "`%{}` of block `{}` is {}{sizes:?}, but was given {sort} {:?}",
                self.block.value_name(value),
                self.block.name,
                ty.dtype.name(),
                array.dims()
            ));
        }
        self.values[value] = Some(match array {
            Array::Real(tensor) if ty.dtype != DType::F32 => {
                let first = self.rounded;
                self.rounded += tensor.data.len() as u64;
                let numbered = tensor.data.iter().zip(first..);
                let data = numbered.map(|(x, index)| R::of(self.rounding.round(ty.dtype, x.to_f64(), index)));
                Array::Real(Tensor { data: data.collect(), dims: tensor.dims })
            }
            array => array,
        });
        Ok(())
    }

    /// A value that is known.
    ///
    /// # Errors
    /// It is not.
    pub fn get(&self, value: Value) -> Result<&Array<R>, String> {
        self.values[value]
            .as_ref()
            .ok_or_else(|| format!("`%{}` of block `{}` is not known", self.block.value_name(value), self.block.name))
    }

    /// Runs `G`, then `F`, from the arguments; gives the block's results.
    ///
    /// # Errors
    /// A statement reads what is not known, or its operands do not fit.
    pub fn forward(&mut self) -> Result<Vec<Array<R>>, String> {
        self.section(SectionKind::G)?;
        self.section(SectionKind::F)
    }

    /// Runs `I` from the cotangents of the differentiable results; gives those of the differentiable arguments.
    ///
    /// # Errors
    /// As [`BlockRun::forward`].
    pub fn input_grad(&mut self, cotangents: Vec<Tensor<R>>) -> Result<Vec<Tensor<R>>, String> {
        for (&arg, cotangent) in self.block[SectionKind::I].args.iter().zip(cotangents) {
            self.set(arg, cotangent)?;
        }
        self.section(SectionKind::I)?.into_iter().map(Array::into_real).collect()
    }

    /// Runs `W`; gives this run's gradient of each parameter that has one, not added to any other.
    ///
    /// # Errors
    /// As [`BlockRun::forward`].
    pub fn weight_grad(&mut self) -> Result<Vec<(Value, Tensor<R>)>, String> {
        self.section(SectionKind::W)?;
        let sums = self.block[SectionKind::W].stmts.iter().filter(|stmt| stmt.accumulate).flat_map(|s| &s.results);
        let mut gradients = Vec::new();
        for &gradient in sums {
            let owner = self.block.owner_of(gradient).ok_or_else(|| {
                format!("`%{}` of block `{}` belongs to no parameter", self.block.value_name(gradient), self.block.name)
            })?;
            gradients.push((owner, self.get(gradient)?.real()?.clone()));
        }
        Ok(gradients)
    }

    /// Runs the part of `U` that its results need; gives them. The gradients must have been set to their sums over the step.
    ///
    /// # Errors
    /// As [`BlockRun::forward`].
    pub fn norm(&mut self) -> Result<Vec<Tensor<R>>, String> {
        let needed = self.needed_by_norm();
        let section = &self.block[SectionKind::U];
        for (stmt, _) in section.stmts.iter().zip(needed).filter(|(_, needed)| *needed) {
            self.statement(stmt)?;
        }
        section.ret.iter().map(|&value| Ok(self.get(value)?.real()?.clone())).collect()
    }

    /// Runs the rest of `U` after [`BlockRun::norm`]; gives the parameters and states that it stored.
    ///
    /// # Errors
    /// As [`BlockRun::forward`].
    pub fn update(&mut self) -> Result<Vec<(Value, Tensor<R>)>, String> {
        let needed = self.needed_by_norm();
        let mut stored = BTreeSet::new();
        for (stmt, _) in self.block[SectionKind::U].stmts.iter().zip(needed).filter(|(_, needed)| !needed) {
            self.statement(stmt)?;
            let results = stmt.results.iter().copied();
            stored.extend(
                results.filter(|&value| matches!(self.block.arg_kind(value), Some(ArgKind::Param | ArgKind::State))),
            );
        }
        stored.into_iter().map(|value| Ok((value, self.get(value)?.real()?.clone()))).collect()
    }

    /// Per statement of `U`, whether the norm depends on it.
    fn needed_by_norm(&self) -> Vec<bool> {
        let section = &self.block[SectionKind::U];
        let mut wanted: BTreeSet<Value> = section.ret.iter().copied().collect();
        let mut needed = vec![false; section.stmts.len()];
        for (stmt, needed) in section.stmts.iter().zip(&mut needed).rev() {
            *needed = stmt.results.iter().any(|result| wanted.contains(result));
            if *needed {
                wanted.extend(&stmt.operands);
            }
        }
        needed
    }

    fn section(&mut self, kind: SectionKind) -> Result<Vec<Array<R>>, String> {
        let section = &self.block[kind];
        section.stmts.iter().try_for_each(|stmt| self.statement(stmt))?;
        section.ret.iter().map(|&value| self.get(value).cloned()).collect()
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<(), String> {
        let results = self.results(stmt).map_err(|why| {
            let names: Vec<String> =
                stmt.results.iter().map(|&value| format!("%{}", self.block.value_name(value))).collect();
            format!("block `{}`, `{} = {}(..)`: {why}", self.block.name, names.join(", "), stmt.op.name())
        })?;
        stmt.results.iter().zip(results).try_for_each(|(&value, result)| self.set(value, result))
    }

    fn results(&self, stmt: &Stmt) -> Result<Vec<Array<R>>, String> {
        let types: Vec<_> = stmt.operands.iter().map(|&value| self.block.ty(value).logical()).collect();
        let inferred = stmt.op.infer(&types.iter().collect::<Vec<_>>())?;
        let dims: Vec<Vec<usize>> =
            inferred.iter().map(|ty| ty.sizes().iter().map(|&size| size as usize).collect()).collect();
        let operands = stmt.operands.iter().map(|&value| self.get(value)).collect::<Result<Vec<_>, _>>()?;
        let dtype = stmt.operands.first().map_or(DType::F32, |&value| self.block.ty(value).dtype);
        let context = Context { within: Within { rounding: self.rounding, dtype }, ..self.context };
        R::evaluate(&stmt.op, &operands, &dims, context)
    }
}
