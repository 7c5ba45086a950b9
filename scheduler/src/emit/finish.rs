//! The end of a step: R, N and U.

use super::flow::Holders;
use super::row::{Invoke, Key, Row};
use super::{Bodies, EmitError};
use ir::graph::SectionKind;
use ir::program::{BodyKind, Instr, Transfer};
use std::collections::BTreeMap;

/// Which ranks take part in the sums at the end of a step.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Those with a total of the name.
    pub(super) totals: BTreeMap<String, Vec<u32>>,
    /// Those whose R returns sums for the step graph.
    pub(super) squares: Vec<u32>,
}

impl Row<'_> {
    fn own_runs(&self) -> Vec<usize> {
        (0..self.flow.runs.len()).filter(|&run| self.flow.runs[run].rank == self.rank).collect()
    }

    /// R: gradients of shared parameters are summed among their holders, then each block reduces its own and adds to the
    /// sums that the step graph reads.
    pub(super) fn reduce(&mut self, bodies: &Bodies, holders: &Holders) -> Result<(), EmitError> {
        for (&(param, instance), ranks) in &holders.gradients {
            if ranks.len() > 1 && ranks.contains(&self.rank) {
                let ranks = ranks.iter().copied().collect();
                self.transfer(Transfer::SumGradient { param, instance, ranks }, None, None);
            }
        }
        for index in self.own_runs() {
            let run = &self.flow.runs[index];
            let Some(body) = bodies.get(run.block, BodyKind::R) else { continue };
            let block = &self.model.blocks[run.block];
            let mut results = Vec::new();
            for &value in &block[SectionKind::U].ret {
                results.push(self.reg(format!("{}.{}", run.name, block.value_name(value)), Some(block.ty(value))));
            }
            let keeps = !bodies.all[body].keeps.is_empty();
            let keep = keeps.then(|| self.reg(format!("{}.R", run.name), None));
            let (call, instance, given) = (run.call, run.instance, results.clone());
            self.run(body, Invoke { call, instance, results: given, keep, ..Invoke::default() });
            self.held.extend(keep.map(|reg| (Key::Reduced(index), reg)));
            if self.squares.is_empty() {
                self.squares = results;
            } else {
                for (into, from) in self.squares.clone().into_iter().zip(results) {
                    self.add(into, from);
                }
            }
            self.free();
        }
        Ok(())
    }

    /// N: the sums over all instances, then the step graph on every rank that updates.
    pub(super) fn norm(&mut self, bodies: &mut Bodies, members: &Members) -> Result<(), EmitError> {
        self.give_totals(bodies, &members.totals);
        let (Some(body), Some(step)) = (bodies.step, &self.model.step) else { return Ok(()) };
        let section = &step.graph[SectionKind::F];
        let args = std::mem::take(&mut self.squares);
        if args.is_empty() && !step.graph.args.is_empty() {
            return Ok(());
        }
        for (&reg, arg) in args.iter().zip(&step.graph.args) {
            if self.regs[reg].ty.as_ref() != Some(step.graph.ty(arg.value)) {
                return Err(EmitError::Boundary { run: "step".to_string(), what: "the type of an argument" });
            }
            self.sum(reg, &members.squares);
        }
        let mut results = Vec::new();
        for &value in &section.ret {
            results.push(self.reg(step.graph.value_name(value).to_string(), Some(step.graph.ty(value))));
        }
        self.run(body, Invoke { args: args.clone(), results: results.clone(), ..Invoke::default() });
        for (&value, &reg) in section.ret.iter().zip(&results) {
            self.instrs.push(Instr::Out { name: step.graph.value_name(value).to_string(), reg });
        }
        args.into_iter().chain(results).for_each(|reg| self.release(reg));
        self.free();
        Ok(())
    }

    /// U: every block updates what it owns; then owners give shared parameters to the other holders.
    pub(super) fn update(&mut self, bodies: &Bodies, holders: &Holders) -> Result<(), EmitError> {
        for index in self.own_runs() {
            let run = &self.flow.runs[index];
            let Some(body) = bodies.get(run.block, BodyKind::U) else { continue };
            let bundle = self.bundle(Key::Reduced(index), bodies, run.block, BodyKind::R)?;
            let (call, instance, bundles) = (run.call, run.instance, bundle.into_iter().collect());
            self.run(body, Invoke { call, instance, bundles, ..Invoke::default() });
            bundle.into_iter().for_each(|reg| self.release(reg));
            self.free();
        }
        for (&(param, instance), &from) in &holders.owner {
            let ranks = holders.of((param, instance));
            if ranks.len() > 1 && ranks.contains(&self.rank) {
                self.transfer(Transfer::ShareParam { param, instance, from, ranks }, None, None);
            }
        }
        Ok(())
    }
}
