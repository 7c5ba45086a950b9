//! Forward and backward pass of one micro-batch through all calls.

use super::block::BlockRun;
use super::model::{MicroBatch, Reference, not_bound};
use super::real::Real;
use super::tensor::{Array, Tensor};
use ir::entity::SecondaryMap;
use ir::graph::{ArgKind, Block, Call, LossMean, ResultKind, STEP_SCALARS, SectionKind};
use ir::ids::{ModelValue, Value};

/// The runs of each call on one micro-batch.
pub(super) struct Pass<'m, R: Clone> {
    /// In the order of the calls.
    runs: Vec<Vec<BlockRun<'m, R>>>,
    /// The sum of all losses.
    pub(super) loss: R,
}

/// The cotangents of losses, by what their means are of.
#[derive(Clone, Copy)]
pub(super) struct Seeds<R> {
    pub(super) labels: R,
    pub(super) microbatches: R,
}

impl<'m, R: Real> Reference<'m, R> {
    /// `F` of every run of every call.
    pub(super) fn forward(&self, index: u64, inputs: &MicroBatch<R>) -> Result<Pass<'m, R>, String> {
        let mut env: SecondaryMap<ModelValue, Option<Array<R>>> = SecondaryMap::new();
        for input in &self.model.inputs {
            let name = &self.model.values[input.value];
            let array = inputs.inputs.get(name).ok_or_else(|| format!("micro-batch {index} has no `%{name}`"))?;
            env[input.value] = Some(array.clone());
        }
        let mut pass = Pass { runs: Vec::new(), loss: R::zero() };
        for call in &self.model.calls {
            let runs = self.forward_call(call, &mut env, index, inputs)?;
            for run in &runs {
                pass.loss += losses(run)?;
            }
            pass.runs.push(runs);
        }
        Ok(pass)
    }

    /// `F` of the runs of a call, each carrying its value results into the leading arguments of the next.
    fn forward_call(
        &self,
        call: &Call,
        env: &mut SecondaryMap<ModelValue, Option<Array<R>>>,
        index: u64,
        inputs: &MicroBatch<R>,
    ) -> Result<Vec<BlockRun<'m, R>>, String> {
        let mut args = Vec::with_capacity(call.args.len());
        for &value in &call.args {
            args.push(env[value].clone().ok_or_else(|| format!("`%{}` is not known", self.model.values[value]))?);
        }
        let (mut runs, mut carried) = (Vec::new(), Vec::new());
        for instance in 0..call.instances() {
            let mut run = self.bind(call, instance, index)?;
            args.iter_mut().zip(carried).for_each(|(arg, value)| *arg = value);
            for (value, arg) in flowing_args(run.block()).zip(&args) {
                run.set(value, arg.clone())?;
            }
            self.bind_constants(call, &mut run, inputs)?;
            let results = run.block().results.iter().zip(run.forward()?);
            carried = results.filter(|(kind, _)| **kind == ResultKind::Value).map(|(_, value)| value).collect();
            runs.push(run);
        }
        call.results.iter().zip(carried).for_each(|(&result, value)| env[result] = Some(value));
        Ok(runs)
    }

    /// `I` and `W` of every run in reverse.
    pub(super) fn backward_pass(&mut self, pass: Pass<'m, R>, seeds: Seeds<R>) -> Result<(), String> {
        let mut cotangents: SecondaryMap<ModelValue, Option<Tensor<R>>> = SecondaryMap::new();
        for (call, runs) in self.model.calls.iter().zip(pass.runs).rev() {
            let mut carried: Vec<_> = call.results.iter().map(|&result| cotangents[result].take()).collect();
            for (instance, mut run) in (0..call.instances()).zip(runs).rev() {
                let back = run.input_grad(given(&run, carried, seeds)?)?;
                carried = vec![None; call.results.len()];
                for (place, cotangent) in differentiable_places(run.block()).zip(back) {
                    let slot = match carried.get_mut(place) {
                        Some(slot) if instance > 0 => slot,
                        _ => &mut cotangents[call.args[place]],
                    };
                    add_to(slot, cotangent);
                }
                self.accumulate(call, instance, &mut run)?;
            }
        }
        Ok(())
    }

    fn accumulate(&mut self, call: &Call, instance: u32, run: &mut BlockRun<'m, R>) -> Result<(), String> {
        let names = self.param_names(call, instance);
        for (param, gradient) in run.weight_grad()? {
            let name = names.get(&param).ok_or_else(|| not_bound(run.block(), param))?;
            match self.gradients.get_mut(name) {
                Some(sum) => sum.add(&gradient),
                None => drop(self.gradients.insert(name.clone(), gradient)),
            }
        }
        Ok(())
    }

    /// The constants that a call passes; those of the step are not known yet.
    fn bind_constants(&self, call: &Call, run: &mut BlockRun<'m, R>, inputs: &MicroBatch<R>) -> Result<(), String> {
        let passed = call.params.iter().filter_map(|reference| inputs.inputs.get(&reference.name));
        let block = run.block();
        let read: Vec<Value> = block.args_of(ArgKind::Const).filter(|&value| !self.is_implicit(block, value)).collect();
        read.into_iter().zip(passed).try_for_each(|(value, array)| run.set(value, array.clone()))
    }

    /// True if a constant is a scalar of the run, which calls do not pass.
    fn is_implicit(&self, block: &Block, value: Value) -> bool {
        let name = block.value_name(value);
        let returned = self.model.step.as_ref().is_some_and(|step| {
            step.graph[SectionKind::F].ret.iter().any(|&returned| step.graph.value_name(returned) == name)
        });
        returned || STEP_SCALARS.contains(&name)
    }
}

/// The arguments that a call's `args` bind, in order.
fn flowing_args(block: &Block) -> impl Iterator<Item = Value> + '_ {
    let flowing = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
    flowing.map(|arg| arg.value)
}

/// Indices of the differentiable arguments among those.
fn differentiable_places(block: &Block) -> impl Iterator<Item = usize> + '_ {
    block.differentiable_args().filter_map(|value| flowing_args(block).position(|arg| arg == value))
}

/// The sum of a run's loss results.
fn losses<R: Real>(run: &BlockRun<'_, R>) -> Result<R, String> {
    let block = run.block();
    let results = block.results.iter().zip(&block[SectionKind::F].ret).filter(|(kind, _)| **kind == ResultKind::Loss);
    results.map(|(_, &value)| Ok(run.get(value)?.real()?.data[0])).sum()
}

/// The cotangents of a run's differentiable results: the seed of a loss, for a value the sum that later runs left, or zeros.
fn given<R: Real>(
    run: &BlockRun<'_, R>,
    carried: Vec<Option<Tensor<R>>>,
    seeds: Seeds<R>,
) -> Result<Vec<Tensor<R>>, String> {
    let block = run.block();
    let mut carried = carried.into_iter();
    let results = block.results.iter();
    let later = results.map(|kind| if *kind == ResultKind::Value { carried.next().flatten() } else { None });
    let mut later: Vec<Option<Tensor<R>>> = later.collect();
    let mut cotangents = Vec::new();
    for (index, value) in block.differentiable_results() {
        cotangents.push(match (block.results[index].mean(), later[index].take()) {
            (Some(LossMean::Labels), _) => Tensor::scalar(seeds.labels),
            (Some(LossMean::Microbatches), _) => Tensor::scalar(seeds.microbatches),
            (None, Some(cotangent)) => cotangent,
            (None, None) => Tensor::zeros(run.get(value)?.dims()),
        });
    }
    Ok(cotangents)
}

fn add_to<R: Real>(slot: &mut Option<Tensor<R>>, cotangent: Tensor<R>) {
    match slot {
        Some(sum) => sum.add(&cotangent),
        None => *slot = Some(cotangent),
    }
}
