//! R in an instruction stream. Each reduction starts when the last gradient that it reads is available, and overlaps with
//! the remaining backwards.

use super::Bodies;
use super::flow::{Flow, Holders};
use super::stream::{Invocation, StreamBuilder, ValueKey};
use ir::graph::{ArgKind, Model, ParamInstance, SectionKind};
use ir::ids::{Reg, Token, Value};
use ir::program::{BodyKind, Instr, Source, Transfer};
use ir::schedule::{Action, Kind};
use std::collections::{BTreeMap, VecDeque};

/// Started instances of R, and the backwards that the others wait for.
#[derive(Debug, Default)]
pub(super) struct Reductions {
    /// Runs of W or B still to come on the rank that add to the gradient.
    to_come: BTreeMap<ParamInstance, usize>,
    /// Gradients that are still to be summed over their holders. All ranks sum them in this order.
    shared: VecDeque<(ParamInstance, Vec<u32>)>,
    /// The sums over holders that are under way.
    sums: Vec<Token>,
    /// The runs with an R that has not started, with the gradients that it reads.
    left: BTreeMap<usize, Vec<ParamInstance>>,
    /// The runs whose R is under way: what its wait names, and what it returns.
    started: BTreeMap<usize, (Token, Vec<Reg>)>,
}

impl Reductions {
    /// Reductions of a rank at the end of its actions.
    pub(super) fn new(
        model: &Model,
        flow: &Flow<'_>,
        holders: &Holders,
        bodies: &Bodies,
        rank: u32,
        actions: &[Action],
    ) -> Reductions {
        let mut reductions = Reductions::default();
        for item in actions.iter().flat_map(Action::items).filter(|item| matches!(item.kind, Kind::B | Kind::W)) {
            for param in flow.runs_of(&item).into_iter().flat_map(|run| added(model, flow, bodies, run)) {
                *reductions.to_come.entry(param).or_default() += 1;
            }
        }
        let shared = holders.gradients.iter().filter(|(_, ranks)| ranks.len() > 1 && ranks.contains(&rank));
        reductions.shared = shared.map(|(&param, ranks)| (param, ranks.iter().copied().collect())).collect();
        for run in (0..flow.runs.len()).filter(|&run| flow.runs[run].ranks[0] == rank) {
            reductions.left.extend(reduced(model, flow, bodies, run).map(|params| (run, params)));
        }
        reductions
    }

    fn is_whole(&self, param: &ParamInstance) -> bool {
        self.to_come.get(param).is_none_or(|&count| count == 0)
    }
}

/// The parameters that a run binds to some of its block's.
fn bound(model: &Model, flow: &Flow<'_>, run: usize, wanted: impl Fn(Value) -> bool) -> Vec<ParamInstance> {
    let run = &flow.runs[run];
    let params = model.blocks[run.block].args_of(ArgKind::Param).zip(&run.params);
    params.filter(|(value, _)| wanted(*value)).map(|(_, &param)| param).collect()
}

/// The parameters to whose gradients a run's W or B adds.
fn added(model: &Model, flow: &Flow<'_>, bodies: &Bodies, run: usize) -> Vec<ParamInstance> {
    let gradients = &bodies.blocks[&flow.runs[run].block].gradients;
    bound(model, flow, run, |value| gradients.contains(&value))
}

/// The parameters whose gradients a run's R reads; `None` if it has no R.
fn reduced(model: &Model, flow: &Flow<'_>, bodies: &Bodies, run: usize) -> Option<Vec<ParamInstance>> {
    let id = flow.runs[run].block;
    let body = &bodies.all[bodies.get(id, BodyKind::R)?];
    let gradients = body.args.iter().filter(|arg| arg.source == Source::Gradient);
    let owners: Vec<Value> = gradients.filter_map(|arg| model.blocks[id].owner_of(arg.value)).collect();
    Some(bound(model, flow, run, |value| owners.contains(&value)))
}

impl StreamBuilder<'_> {
    /// Records that a run's W or B has added to its gradients. Reductions that wait for no other run start: sums over holders in their order, and R of
    /// runs whose gradients this rank holds alone. Those of others are summed first, and not before the row has to wait.
    pub(super) fn gradients_added(&mut self, bodies: &Bodies, run: usize) {
        let mut whole = false;
        for param in added(self.model, self.flow, bodies, run) {
            if let Some(count) = self.reductions.to_come.get_mut(&param) {
                *count -= 1;
                whole |= *count == 0;
            }
        }
        if whole {
            self.start_reductions(bodies, &self.shared_gradients());
            self.sum_gradients(false);
        }
    }

    /// R: what has not started yet. Gradients with several holders are summed among them before.
    pub(super) fn reduce(&mut self, bodies: &Bodies) {
        self.sum_gradients(true);
        for token in std::mem::take(&mut self.reductions.sums) {
            self.instrs.push(Instr::Wait { token, result: None });
        }
        self.reductions.to_come.clear();
        self.start_reductions(bodies, &[]);
    }

    /// Waits for every R, and adds up what they return for the step graph, in the order of the model.
    pub(super) fn reduced(&mut self) {
        for (token, results) in std::mem::take(&mut self.reductions.started).into_values() {
            self.instrs.push(Instr::Wait { token, result: None });
            if self.squares.is_empty() {
                self.squares = results;
            } else {
                for (into, from) in self.squares.clone().into_iter().zip(results) {
                    self.add(into, from);
                }
            }
            self.free();
        }
    }

    /// The gradients that are not this rank's alone.
    fn shared_gradients(&self) -> Vec<ParamInstance> {
        self.holders.gradients.iter().filter(|(_, ranks)| ranks.len() > 1).map(|(&param, _)| param).collect()
    }

    /// Starts sums over holders: all, or those whose turn it is and whose gradients are whole.
    fn sum_gradients(&mut self, all: bool) {
        while let Some(&(param, _)) = self.reductions.shared.front()
            && (all || self.reductions.is_whole(&param))
            && let Some(((param, instance), ranks)) = self.reductions.shared.pop_front()
        {
            let token = self.start(Transfer::SumGradient { param, instance, ranks }, None);
            self.reductions.sums.push(token);
        }
    }

    /// Starts R of all runs whose gradients are whole, the last run first, but for those that read any of these.
    fn start_reductions(&mut self, bodies: &Bodies, but: &[ParamInstance]) {
        let left = self.reductions.left.iter().rev();
        let starting = left
            .filter(|(_, params)| params.iter().all(|param| self.reductions.is_whole(param) && !but.contains(param)));
        let runs: Vec<usize> = starting.map(|(&run, _)| run).collect();
        for run in runs {
            self.reductions.left.remove(&run);
            self.start_reduction(bodies, run);
        }
    }

    fn start_reduction(&mut self, bodies: &Bodies, index: usize) {
        let run = &self.flow.runs[index];
        let Some(body) = bodies.get(run.block, BodyKind::R) else { return };
        let block = &self.model.blocks[run.block];
        let mut results = Vec::new();
        for &value in &block[SectionKind::U].ret {
            results.push(self.reg(format!("{}.{}", run.name, block.value_name(value)), Some(block.ty(value))));
        }
        let keeps = !bodies.all[body].keeps.is_empty();
        let keep = keeps.then(|| self.reg(format!("{}.R", run.name), None));
        self.held.extend(keep.map(|reg| (ValueKey::Reduced(index), reg)));
        let (call, instance, given) = (run.call, run.instance, results.clone());
        let token = self.start_run(body, Invocation { call, instance, results: given, keep, ..Invocation::default() });
        self.reductions.started.insert(index, (token, results));
    }
}
