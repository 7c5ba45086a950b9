//! Code generation for the end of a step: N and U.

use super::stream::{Invocation, StreamBuilder, ValueKey};
use super::{Bodies, CodegenError};
use ir::graph::SectionKind;
use ir::ids::{BodyId, Reg};
use ir::program::{BodyKind, Instr, Transfer};
use std::collections::BTreeMap;

/// Ranks that take part in the sums at the end of a step.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Those with a total of the name.
    pub(super) totals: BTreeMap<String, Vec<u32>>,
    /// Those whose R returns sums for the step graph.
    pub(super) squares: Vec<u32>,
}

impl StreamBuilder<'_> {
    /// The runs whose parameters this rank updates.
    fn own_runs(&self) -> Vec<usize> {
        (0..self.flow.runs.len()).filter(|&run| self.flow.runs[run].ranks[0] == self.rank).collect()
    }

    /// N: the sums over all instances, then the step graph on every rank that updates.
    pub(super) fn norm(&mut self, bodies: &mut Bodies, members: &Members) -> Result<(), CodegenError> {
        self.begin_states(bodies);
        self.give_totals(bodies, &members.totals);
        self.reduced();
        let (Some(body), Some(step)) = (bodies.step, &self.model.step) else { return Ok(()) };
        let section = &step.graph[SectionKind::F];
        let args = std::mem::take(&mut self.squares);
        if args.is_empty() && !step.graph.args.is_empty() {
            return Ok(());
        }
        for (&reg, arg) in args.iter().zip(&step.graph.args) {
            if self.regs[reg].ty.as_ref() != Some(step.graph.ty(arg.value)) {
                return Err(CodegenError::Boundary { run: "step".to_string(), what: "the type of an argument" });
            }
            self.sum(reg, &members.squares);
        }
        let mut results = Vec::new();
        for &value in &section.ret {
            results.push(self.reg(step.graph.value_name(value).to_string(), Some(step.graph.ty(value))));
        }
        self.run(body, Invocation { args: args.clone(), results: results.clone(), ..Invocation::default() });
        for (&value, &reg) in section.ret.iter().zip(&results) {
            self.instrs.push(Instr::Out { name: step.graph.value_name(value).to_string(), reg });
        }
        args.into_iter().chain(results).for_each(|reg| self.release(reg));
        self.free();
        Ok(())
    }

    /// The runs whose parameters this rank updates, each with its `U`.
    pub(super) fn updates(&self, bodies: &Bodies) -> Vec<(usize, BodyId)> {
        let runs = self.own_runs().into_iter();
        runs.filter_map(|run| Some((run, bodies.get(self.flow.runs[run].block, BodyKind::U)?))).collect()
    }

    /// U: every block updates what it owns; then owners give shared parameters to the other holders.
    pub(super) fn update(&mut self, bodies: &Bodies) -> Result<(), CodegenError> {
        let holders = self.holders;
        self.begin_states(bodies);
        for (index, body) in self.updates(bodies) {
            let run = &self.flow.runs[index];
            let is_away = !bodies.all[body].keeps.is_empty();
            let states = if is_away { self.loaded_states(index) } else { None };
            let keep = is_away.then(|| self.reg(format!("{}.U", run.name), None));
            let bundle = self.bundle(ValueKey::Reduced(index), bodies, run.block, BodyKind::R)?;
            let bundles: Vec<Reg> = bundle.into_iter().chain(states).collect();
            let (call, instance, given) = (run.call, run.instance, bundles.clone());
            self.run(body, Invocation { call, instance, bundles: given, keep, ..Invocation::default() });
            bundles.into_iter().for_each(|reg| self.release(reg));
            self.free();
            keep.into_iter().for_each(|reg| self.store_states(index, reg));
        }
        self.stored_states();
        for (&(param, instance), &from) in &holders.owner {
            let ranks = holders.of((param, instance));
            if ranks.len() > 1 && ranks.contains(&self.rank) {
                self.transfer(Transfer::ShareParam { param, instance, from, ranks }, None);
            }
        }
        Ok(())
    }
}
