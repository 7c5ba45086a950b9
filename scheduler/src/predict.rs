//! Seconds and bytes of a step from costs alone: partition, schedule and simulation on numbers, without a program.
//!
//! A stage's section takes the sum of its statements, reshards included: no overlap is assumed. A hop takes as long as the
//! transfer of a block's outputs. The update (R, N, U) follows the last backward of the rank for which both together end
//! last.
//!
//! Parameters that stay gathered are gathered from the beginning of the step on; a rank's step is longer by as much as that takes
//! longer than its wait for its first forward.
//!
//! The bytes of a rank are the sum of five parts: its model states, its gathered parameters, the peak of its saved activations, the scratch of its
//! largest block, and the messages of its stages. Each message has two buffers, one in use and one in flight.

use crate::costs::StageCosts;
use crate::partition::MemoryBudget;
use crate::partition::{PartitionError, balanced, check_starts, hops, of_slice, stage_cost, stage_costs};
use crate::partition::{stage_runs, starts_named, starts_of};
use crate::placement::Pipeline;
use crate::schedules::{self, ScheduleKind, UnknownSchedule};
use crate::simulate::{SimulateError, Timeline, simulate};
use ir::costs::{BlockCosts, ModelCosts, PredictedStep};
use ir::options::ParallelConfig;
use ir::schedule::{Kind, Schedule};
use ir::staged::Staged;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// An error of a prediction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// No schedule has the configuration's name.
    #[error(transparent)]
    UnknownSchedule(#[from] UnknownSchedule),
    /// The schedule kind rejects the pipeline.
    #[error("{0}")]
    Schedule(String),
    /// The model has no such partition.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The schedule deadlocks or is invalid.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Ranks of each stage and, with a memory limit, micro-batches in flight of each stage.
type PartitionKey = (Vec<Vec<u32>>, Option<Vec<u64>>);

/// Predictor for configurations that differ in their pipeline. Each partition and each configuration is computed once.
#[derive(Debug)]
pub struct Predictor<'a> {
    costs: &'a ModelCosts,
    partitions: HashMap<PartitionKey, Vec<usize>>,
    steps: HashMap<ParallelConfig, PredictedStep>,
}

/// Predicts seconds and bytes of a step under one configuration.
///
/// # Errors
///
/// Returns an error if the schedule does not exist, does not support the configuration, or the model has too few blocks for its
/// stages.
pub fn predict(costs: &ModelCosts, parallel: &ParallelConfig) -> Result<PredictedStep, PredictError> {
    Predictor::new(costs).predict(parallel)
}

/// Returns the schedule kind of a configuration and its pipeline.
///
/// # Errors
///
/// Returns an error if no kind has the name, or the kind does not support that number of stages per rank.
pub fn pipeline_of(
    parallel: &ParallelConfig,
    microbatches: u32,
) -> Result<(&'static ScheduleKind, Pipeline), PredictError> {
    let kind = schedules::find(&parallel.schedule)?;
    let ranks = u32::try_from(parallel.pp).unwrap_or(u32::MAX);
    let pipeline = kind.pipeline(ranks, parallel.vp, microbatches);
    let chosen = pipeline.and_then(|pipeline| kind.choose(pipeline, parallel.group, parallel.slices));
    let pipeline = chosen.map_err(|why| PredictError::Schedule(format!("`{}`: {why}", kind.name)))?;
    Ok((kind, pipeline))
}

/// Predicts a step with given stages and a given order. The stages take what `costs` say, which may be those of another platform than
/// the stages were made for.
///
/// # Errors
///
/// Returns an error if the schedule cannot be simulated.
pub fn predict_staged(costs: &ModelCosts, staged: &Staged, schedule: &Schedule) -> Result<PredictedStep, PredictError> {
    let (starts, owners) = (starts_of(staged), staged.stages.iter().map(|stage| stage.ranks.clone()).collect());
    let of_stages = costs_from(&starts, costs, costs.run_slices() as u32);
    Stages { costs, starts, owners }.step(schedule, &of_stages)
}

/// Returns the costs of the stages that begin at these runs.
fn costs_from(starts: &[usize], costs: &ModelCosts, slices: u32) -> StageCosts {
    let runs = stage_runs(starts, costs.runs().count());
    let stages: Vec<_> = runs.iter().map(|runs| stage_cost(costs, runs)).collect();
    of_slice(stage_costs(&stages, hops(starts, costs)), slices)
}

impl Predictor<'_> {
    /// Creates a predictor with empty caches.
    pub fn new(costs: &ModelCosts) -> Predictor<'_> {
        Predictor { costs, partitions: HashMap::new(), steps: HashMap::new() }
    }

    /// Predicts a step under a configuration.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`predict`].
    pub fn predict(&mut self, parallel: &ParallelConfig) -> Result<PredictedStep, PredictError> {
        if let Some(step) = self.steps.get(parallel) {
            return Ok(step.clone());
        }
        let (kind, pipeline) = pipeline_of(parallel, self.costs.microbatches)?;
        let starts = self.starts(parallel, kind, &pipeline)?;
        let costs = costs_from(&starts, self.costs, pipeline.slices);
        let schedule = made(kind, &costs, &pipeline)?;
        let step = Stages { costs: self.costs, starts, owners: pipeline.owners() }.step(&schedule, &costs)?;
        self.steps.insert(parallel.clone(), step.clone());
        Ok(step)
    }

    fn starts(
        &mut self,
        parallel: &ParallelConfig,
        kind: &ScheduleKind,
        pipeline: &Pipeline,
    ) -> Result<Vec<usize>, PredictError> {
        if !parallel.stages.is_empty() {
            let starts = starts_named(&parallel.stages, self.costs);
            check_starts(&starts, pipeline, self.costs)?;
            return Ok(starts);
        }
        let budget = self.costs.limit.map(|limit| memory_budget(self.costs, limit, kind, pipeline)).transpose()?;
        let key = (pipeline.owners(), budget.as_ref().map(|budget| budget.in_flight.clone()));
        if let Some(starts) = self.partitions.get(&key) {
            return Ok(starts.clone());
        }
        let starts = balanced(self.costs, pipeline, budget.as_ref())?;
        self.partitions.insert(key, starts.clone());
        Ok(starts)
    }
}

fn made(kind: &ScheduleKind, costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, PredictError> {
    kind.make(costs, pipeline).map_err(|error| PredictError::Schedule(error.to_string()))
}

/// Returns the memory budget of each rank, with the micro-batches in flight of a schedule whose stages cost the same.
/// Parameters that several block instances bind count at each of them.
fn memory_budget(
    costs: &ModelCosts,
    limit: u64,
    kind: &ScheduleKind,
    pipeline: &Pipeline,
) -> Result<MemoryBudget, PredictError> {
    let even = StageCosts::uniform(pipeline.stages(), 1.0, 1.0, 1.0, 0.0);
    let schedule = made(kind, &even, pipeline)?;
    let mut model_states = per_run(costs, |block| block.model_states.total() + block.gathered);
    for shared in &costs.shared {
        let binders: BTreeSet<usize> = shared.runs.iter().map(|run| run / costs.run_slices()).collect();
        binders.into_iter().for_each(|run| model_states[run] += shared.model_states.total());
    }
    let inside = costs.runs().map(|block| block.transient + 4 * block.output).max().unwrap_or(0);
    Ok(MemoryBudget {
        model_states,
        saved: per_run(costs, |block| block.saved),
        in_flight: in_flight(&schedule, pipeline),
        limit: limit.saturating_sub(inside),
    })
}

/// Returns the bytes of each block instance, summed over its slices.
fn per_run(costs: &ModelCosts, bytes: impl Fn(&BlockCosts) -> u64) -> Vec<u64> {
    let bytes: Vec<u64> = costs.runs().map(bytes).collect();
    bytes.chunks(costs.run_slices()).map(|run| run.iter().sum()).collect()
}

/// Returns the peak number of micro-batches of each stage, on one of its ranks, between forward and backward. Slices are
/// rounded up to micro-batches.
fn in_flight(schedule: &Schedule, pipeline: &Pipeline) -> Vec<u64> {
    let stages = pipeline.stages();
    let mut most = vec![0; stages as usize];
    for row in &schedule.rows {
        let mut now = vec![0_u64; stages as usize];
        for item in row.iter().flat_map(|action| action.items()) {
            let Some(stage) = item.stage.map(|stage| stage as usize) else { continue };
            match item.kind {
                Kind::F => now[stage] += 1,
                Kind::B | Kind::W => now[stage] = now[stage].saturating_sub(1),
                _ => {}
            }
            most[stage] = most[stage].max(now[stage]);
        }
    }
    most.into_iter().map(|most: u64| most.div_ceil(pipeline.slices.into())).collect()
}

/// A model partitioned into stages.
struct Stages<'a> {
    costs: &'a ModelCosts,
    starts: Vec<usize>,
    /// Ranks of each stage.
    owners: Vec<Vec<u32>>,
}

impl Stages<'_> {
    fn step(self, schedule: &Schedule, costs: &StageCosts) -> Result<PredictedStep, PredictError> {
        let timeline = simulate(schedule, costs)?;
        let ranks = timeline.rows.len() as u32;
        let ends = timeline.rows.iter().map(|row| row.last().map_or(0.0, |slot| slot.end));
        let ends: Vec<f64> =
            (0..).zip(ends).map(|(rank, end)| end + self.late(rank, &timeline) + self.update(rank)).collect();
        let seconds = ends.iter().copied().fold(0.0, f64::max) + self.costs.norm;
        let bytes = (0..ranks).map(|rank| self.model_states(rank) + self.moment(rank, &timeline)).collect::<Vec<u64>>();
        let why = self.why(seconds, &timeline, &bytes);
        let stage_starts = self.starts.iter().map(|start| start / self.costs.run_slices()).collect();
        Ok(PredictedStep { seconds, bytes, stage_starts, why })
    }

    /// Returns the seconds by which the gathers of a step's beginning delay the first forward of a rank.
    fn late(&self, rank: u32, timeline: &Timeline) -> f64 {
        let begin = timeline.rows[rank as usize].first().map_or(0.0, |slot| slot.start);
        (self.runs(rank, false).map(|(_, block)| block.gather_once).sum::<f64>() - begin).max(0.0)
    }

    /// Yields the block instances of a rank with their numbers: those that it updates, or all that it holds.
    fn runs(&self, rank: u32, updated: bool) -> impl Iterator<Item = (usize, &BlockCosts)> {
        let stages = stage_runs(&self.starts, self.costs.runs().count());
        let own = self
            .owners
            .iter()
            .zip(stages)
            .filter(|(owners, _)| if updated { owners[0] == rank } else { owners.contains(&rank) });
        let own: Vec<Range<usize>> = own.map(|(_, runs)| runs).collect();
        self.costs.runs().enumerate().filter(move |(run, _)| own.iter().any(|runs| runs.contains(run)))
    }

    /// Returns the seconds of R and U, and of gradient sums and parameter copies between the ranks that share a parameter.
    fn update(&self, rank: u32) -> f64 {
        let own = self.runs(rank, true).map(|(_, block)| block.gather + block.reduce + block.update);
        let copied = self.runs(rank, false).filter(|(run, _)| self.holders(&[*run]).len() > 1);
        let shared = self.costs.shared.iter().filter(|shared| {
            let holders = self.holders(&shared.runs);
            holders.len() > 1 && holders.contains(&rank)
        });
        own.chain(copied.map(|(_, block)| block.copy)).chain(shared.map(|shared| shared.copy)).sum()
    }

    /// Returns the ranks that hold any of the block instances.
    fn holders(&self, runs: &[usize]) -> BTreeSet<u32> {
        let stages = runs.iter().map(|run| self.starts.partition_point(|start| start <= run).saturating_sub(1));
        stages.flat_map(|stage| self.owners[stage].iter().copied()).collect()
    }

    /// Returns the bytes of model states on a rank.
    fn model_states(&self, rank: u32) -> u64 {
        let (held, updated): (BTreeSet<usize>, BTreeSet<usize>) =
            (self.runs(rank, false).map(|run| run.0).collect(), self.runs(rank, true).map(|run| run.0).collect());
        let own = self.runs(rank, false).map(|(run, block)| (block.model_states, updated.contains(&run)));
        let bound = self.costs.shared.iter().filter(|shared| shared.runs.iter().any(|run| held.contains(run)));
        let shared = bound.map(|shared| (shared.model_states, updated.contains(&shared.updated_by)));
        own.chain(shared).map(|(states, updates)| states.total() - if updates { 0 } else { states.states }).sum()
    }

    /// Returns the peak bytes of a rank beyond its model states.
    fn moment(&self, rank: u32, timeline: &Timeline) -> u64 {
        let inside = self.runs(rank, false).map(|(_, block)| block.transient).max().unwrap_or(0);
        let gathered: u64 = self.runs(rank, false).map(|(_, block)| block.gathered).sum();
        let passed: Vec<u64> = self.costs.runs().map(|block| block.output).collect();
        let stages = self.owners.iter().zip(stage_runs(&self.starts, passed.len()));
        let messages = stages.filter(|(owners, _)| owners.contains(&rank)).map(|(_, runs)| {
            let given = runs.start.checked_sub(1).map_or(0, |run| passed[run]);
            let gives = if runs.end < passed.len() { passed[runs.end - 1] } else { 0 };
            2 * (given + gives)
        });
        timeline.peak_memory[rank as usize] as u64 + gathered + inside + messages.sum::<u64>()
    }

    fn why(&self, seconds: f64, timeline: &Timeline, bytes: &[u64]) -> String {
        let busiest =
            (0..timeline.busy.len()).max_by(|&a, &b| timeline.busy[a].total_cmp(&timeline.busy[b])).unwrap_or(0);
        let idle = timeline.idle(busiest);

        let fullest = (0..bytes.len()).max_by_key(|&rank| bytes[rank]).unwrap_or(0);
        let above = self.costs.limit.is_some_and(|limit| bytes.iter().any(|&bytes| bytes > limit));
        format!(
            "rank {busiest} is the busiest: {:.1} % of the step in F, I and W, {:.1} % waiting for other ranks, {:.1} % for \
             messages; {:.1} % follow in the update; rank {fullest} holds the most memory{}",
            percent(timeline.busy[busiest], seconds),
            percent(idle.dependency + idle.memory + idle.barrier, seconds),
            percent(idle.latency, seconds),
            percent(seconds - timeline.makespan, seconds),
            if above { ", more than the limit" } else { "" }
        )
    }
}

/// Returns how many percent of the whole a part is.
fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::costs::{CallCosts, ModelStates, SectionSeconds};

    /// Eight equal blocks of 3 seconds and 10 bytes, and the last has the model states of seven others.
    fn costs(limit: Option<u64>) -> ModelCosts {
        let section = SectionSeconds { compute: 1.0, collectives: 0.0 };
        let model_states = ModelStates { parameters: 6, gradients: 4, states: 0 };
        let light = BlockCosts {
            f: section,
            i: section,
            w: section,
            saved: 1,
            model_states,
            update: 0.5,
            ..BlockCosts::default()
        };
        let heavy =
            BlockCosts { model_states: ModelStates { parameters: 70, ..ModelStates::default() }, ..light.clone() };
        let calls = [(0, 7), (1, 1)].map(|(block, instances)| CallCosts { block, instances }).to_vec();
        ModelCosts { microbatches: 4, calls, blocks: vec![light, heavy], norm: 1.0, limit, ..ModelCosts::default() }
    }

    fn parallel(schedule: &str, stages: &[u32]) -> ParallelConfig {
        ParallelConfig { pp: 2, schedule: schedule.to_string(), stages: stages.to_vec(), ..ParallelConfig::default() }
    }

    #[test]
    fn a_step_is_its_schedule_its_update_and_the_norm() {
        let step = predict(&costs(None), &parallel("gpipe", &[])).unwrap();
        // 4 micro-batches and a bubble of one, 12 seconds each; each rank updates four blocks.
        assert_eq!((step.seconds, step.stage_starts), (5.0 * 12.0 + 2.0 + 1.0, vec![0, 4]));
        assert_eq!(step.bytes, [40 + 16, 100 + 16]);
        let given = predict(&costs(None), &parallel("gpipe", &[6])).unwrap();
        assert_eq!((given.stage_starts, given.bytes), (vec![0, 6], vec![60 + 24, 80 + 8]));
        assert!(given.seconds > step.seconds);
    }

    #[test]
    fn the_fastest_cut_within_the_limit_is_taken() {
        for (limit, cut) in [(116, 4), (115, 5), (102, 5), (101, 6)] {
            let step = predict(&costs(Some(limit)), &parallel("gpipe", &[])).unwrap();
            assert_eq!(step.stage_starts, [0, cut], "{limit}: {step:?}");
            assert!(step.bytes.iter().all(|&bytes| bytes <= limit), "{limit}: {step:?}");
        }
        let step = predict(&costs(Some(50)), &parallel("gpipe", &[])).unwrap();
        assert!(step.why.ends_with("more than the limit"), "{step:?}");
        // With fewer micro-batches in flight the first rank saves less.
        let step = predict(&costs(Some(100)), &parallel("1f1b", &[])).unwrap();
        assert!(step.bytes.iter().all(|&bytes| bytes <= 100), "{step:?}");
    }

    #[test]
    fn what_was_worked_out_is_not_worked_out_again() {
        let costs = costs(None);
        let mut predictor = Predictor::new(&costs);
        let configs = [parallel("gpipe", &[]), parallel("1f1b", &[]), parallel("gpipe", &[])];
        let steps = configs.map(|parallel| predictor.predict(&parallel).unwrap());
        assert_eq!(steps[0], steps[2]);
        assert_eq!((predictor.partitions.len(), predictor.steps.len()), (1, 2));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let costs = costs(None);
        let error = |parallel: &ParallelConfig| predict(&costs, parallel).unwrap_err();
        assert!(matches!(error(&parallel("nothing", &[])), PredictError::UnknownSchedule(_)));
        assert!(matches!(error(&ParallelConfig { vp: Some(3), ..parallel("1f1b", &[]) }), PredictError::Schedule(_)));
        assert!(matches!(error(&parallel("1f1b", &[9])), PredictError::Partition(PartitionError::Starts { .. })));
        assert!(matches!(
            error(&ParallelConfig { pp: 9, ..parallel("1f1b", &[]) }),
            PredictError::Partition(PartitionError::TooMany { .. })
        ));
    }
}
