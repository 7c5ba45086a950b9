//! Partition of the block instances into consecutive stages, with the costs of each stage.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::costs::ModelCosts;
use ir::graph::Model;
use ir::staged::{Stage, StageCost, StagePart, Staged};
use std::ops::Range;

mod balance;
mod chain;
mod regular;

pub use balance::MemoryBudget;
pub use chain::{Chain, RunSeconds};

/// An error of a partition into stages.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PartitionError {
    /// The model has no block instances.
    #[error("the model runs no block")]
    Empty,
    /// There are fewer block instances than stages.
    #[error("{stages} stages need at least {stages} block instances, but the model has {runs}")]
    TooMany {
        /// Number of stages in the request.
        stages: u32,
        /// Number of pipeline ranks.
        ranks: u32,
        /// Number of block instances.
        runs: usize,
    },
    /// Given starts do not begin at 0 or do not ascend.
    #[error("{stages} stages must start with run 0 and ascend within the {runs} runs of the model, not at {starts:?}")]
    Starts {
        /// Number of stages.
        stages: u32,
        /// The given starts.
        starts: Vec<usize>,
        /// Number of block instances.
        runs: usize,
    },
}

/// Partitions the block instances into the stages of a pipeline. The objective is the time of the slowest rank (F + I + W of
/// its stages), then of the slowest stage. Exact if each rank has one stage; `balance.rs` describes the other cases.
///
/// # Errors
///
/// Returns an error if there are more stages than block instances, or none of either.
pub fn partition(model: &Model, pipeline: &Pipeline, costs: &ModelCosts) -> Result<Staged, PartitionError> {
    Ok(staged(model, &balanced(costs, pipeline, None)?, pipeline, costs))
}

/// Partitions at given places: `starts[s]` is the first block instance of stage s, counted over all calls and instances.
///
/// # Errors
///
/// Returns an error if `starts` does not have one entry per stage, does not begin with 0, does not ascend, or exceeds the
/// instances.
pub fn partition_at(
    model: &Model,
    starts: &[usize],
    pipeline: &Pipeline,
    costs: &ModelCosts,
) -> Result<Staged, PartitionError> {
    check_starts(starts, pipeline, costs)?;
    Ok(staged(model, starts, pipeline, costs))
}

/// Returns the first block instance of each stage, by costs alone. If the fastest partition exceeds the memory budget of a
/// rank, returns the fastest one within the budget, or else the one that exceeds it least.
///
/// # Errors
///
/// Returns an error if there are more stages than block instances, or none of either.
pub fn balanced(
    costs: &ModelCosts,
    pipeline: &Pipeline,
    budget: Option<&MemoryBudget>,
) -> Result<Vec<usize>, PartitionError> {
    let slices = costs.run_slices();
    let weights: Vec<u128> = weights(costs).chunks(slices).map(|run| run.iter().sum()).collect();
    let (stages, runs) = (pipeline.stages(), weights.len());
    if runs == 0 {
        return Err(PartitionError::Empty);
    }
    if stages == 0 || stages as usize > runs {
        return Err(PartitionError::TooMany { stages, ranks: pipeline.ranks, runs });
    }
    let starts = balance::starts(&weights, &pipeline.owners(), pipeline.ranks, budget);
    Ok(starts.into_iter().map(|start| start * slices).collect())
}

/// Returns the most promising partitions of pipelines that no chain is, from the class that `regular.rs` describes: those of which
/// less than `most` of the seconds of the partition `own` is expected. `layers` are the block instances between the ends of the model.
pub fn regular(
    runs: &[RunSeconds],
    layers: &Range<usize>,
    pipeline: &Pipeline,
    own: &[usize],
    most: f64,
) -> Vec<Vec<usize>> {
    regular::regular(runs, layers, pipeline, own, most)
}

/// Converts the starts of a configuration (all stages but the first) to block instances. A configuration counts all slices of
/// an instance as one.
pub fn starts_named(stages: &[u32], costs: &ModelCosts) -> Vec<usize> {
    [0].iter().chain(stages).map(|&start| start as usize * costs.run_slices()).collect()
}

/// Checks the starts of a pipeline's stages.
///
/// # Errors
///
/// Returns the errors of [`partition_at`].
pub fn check_starts(starts: &[usize], pipeline: &Pipeline, costs: &ModelCosts) -> Result<(), PartitionError> {
    let (runs, slices) = (costs.runs().count(), costs.run_slices());
    if runs == 0 {
        return Err(PartitionError::Empty);
    }
    let ascending = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let together = starts.iter().all(|start| start.is_multiple_of(slices));
    let fits = together && starts.len() == pipeline.stages() as usize && starts.first() == Some(&0);
    if !fits || !ascending || starts.last().is_some_and(|&last| last >= runs) {
        let starts = starts.iter().map(|start| start / slices).collect();
        return Err(PartitionError::Starts { starts, stages: pipeline.stages(), runs: runs / slices });
    }
    Ok(())
}

/// Returns the block instances of each stage.
pub fn stage_runs(starts: &[usize], runs: usize) -> Vec<Range<usize>> {
    let ends = starts.iter().skip(1).copied().chain([runs]);
    starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
}

/// Converts the costs of stages to those of a schedule, in seconds and bytes, with the hops between the stages.
pub fn stage_costs<'a>(stages: impl IntoIterator<Item = &'a StageCost>, hops: Vec<f64>) -> StageCosts {
    let stages: Vec<&StageCost> = stages.into_iter().collect();
    let mem_w: Vec<f64> = stages.iter().map(|cost| cost.saved_for_w as f64).collect();
    // Negative if I leaves more memory for W than it frees, as with recomputed layers.
    let mem_i: Vec<f64> = stages.iter().map(|cost| cost.saved as f64 - cost.saved_for_w as f64).collect();
    StageCosts {
        f: stages.iter().map(|cost| cost.f).collect(),
        i: stages.iter().map(|cost| cost.i).collect(),
        w: stages.iter().map(|cost| cost.w).collect(),
        comm: hops,
        mem_f: mem_i.iter().zip(&mem_w).map(|(i, w)| i + w).collect(),
        mem_i,
        mem_w,
        ..StageCosts::uniform(stages.len() as u32, 0.0, 0.0, 0.0, 0.0)
    }
}

/// Returns the costs of a model's stages, with their messages. In a sliced model each cost is that of an average slice.
pub fn costs_of(staged: &Staged, costs: &ModelCosts) -> StageCosts {
    let whole = stage_costs(staged.stages.iter().map(|stage| &stage.cost), hops(&starts_of(staged), costs));
    of_slice(whole, costs.run_slices() as u32)
}

/// Divides the costs of stages by the number of equal slices.
pub fn of_slice(mut costs: StageCosts, slices: u32) -> StageCosts {
    let StageCosts { f, i, w, mem_f, mem_i, mem_w, .. } = &mut costs;
    for figures in [f, i, w, mem_f, mem_i, mem_w] {
        figures.iter_mut().for_each(|figure| *figure /= f64::from(slices));
    }
    costs
}

/// Returns the first block instance of each stage.
pub fn starts_of(staged: &Staged) -> Vec<usize> {
    let runs = staged.stages.iter().map(|stage| stage.parts.iter().map(|part| part.instances.len()).sum::<usize>());
    let ends = runs.scan(0, |end, runs| {
        *end += runs;
        Some(*end)
    });
    [0].into_iter().chain(ends).take(staged.stages.len()).collect()
}

/// Returns the seconds from each stage but the last to the next stage, as if each were on a rank of its own.
pub fn hops(starts: &[usize], costs: &ModelCosts) -> Vec<f64> {
    let hops: Vec<f64> = costs.runs().map(|block| block.hop).collect();
    starts
        .iter()
        .skip(1)
        .map(|&start| start.checked_sub(1).and_then(|run| hops.get(run)).copied().unwrap_or(0.0))
        .collect()
}

/// Sums the costs of a stage's block instances.
pub fn stage_cost(costs: &ModelCosts, runs: &Range<usize>) -> StageCost {
    let mut sum = StageCost::default();
    for block in costs.runs().skip(runs.start).take(runs.len()) {
        sum.f += block.f.total();
        sum.i += block.i.total();
        sum.w += block.w.total();
        sum.saved += block.saved;
        sum.saved_for_w += block.saved_for_w;
        sum.state += block.model_states.total();
    }
    for shared in costs.shared.iter().filter(|shared| shared.runs.iter().any(|run| runs.contains(run))) {
        let states = if runs.contains(&shared.updated_by) { shared.model_states.states } else { 0 };
        sum.state += shared.model_states.parameters + shared.model_states.gradients + states;
    }
    (sum.f, sum.i, sum.w) = (to_picosecond(sum.f), to_picosecond(sum.i), to_picosecond(sum.w));
    sum
}

/// Rounds seconds to picoseconds, so that sums of floats print short.
fn to_picosecond(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e12
}

/// Returns the seconds of the block instances in picoseconds, or in a larger unit in which the sum stays below 2^60, so that
/// its square fits. Integers give equal blocks equal weights, so that ties are exact.
fn weights(costs: &ModelCosts) -> Vec<u128> {
    let seconds: Vec<f64> = costs.runs().map(|block| block.f.total() + block.i.total() + block.w.total()).collect();
    let scale = (2f64.powi(60) / seconds.iter().sum::<f64>()).min(1e12);
    seconds.into_iter().map(|seconds| (seconds * scale).round() as u128).collect()
}

/// Yields the block instances of a model in call order: (call, instance).
pub(crate) fn runs_of(model: &Model) -> impl Iterator<Item = (usize, u32)> + '_ {
    model.calls.iter().enumerate().flat_map(|(index, call)| (0..call.instances()).map(move |i| (index, i)))
}

fn staged(model: &Model, starts: &[usize], pipeline: &Pipeline, costs: &ModelCosts) -> Staged {
    let runs: Vec<(usize, u32)> = runs_of(model).collect();
    let stages = pipeline.owners().into_iter().zip(stage_runs(starts, runs.len())).map(|(ranks, range)| {
        let mut parts: Vec<StagePart> = Vec::new();
        for &(call, instance) in &runs[range.clone()] {
            match parts.last_mut() {
                Some(part) if part.call == call => part.instances.end += 1,
                _ => parts.push(StagePart { call, instances: instance..instance + 1 }),
            }
        }
        Stage { ranks, parts, cost: stage_cost(costs, &range) }
    });
    Staged { name: model.name.clone(), stages: stages.collect() }
}
