//! Stage boundaries by predicted time: partitions that are faster than the cost model's own, and a lower bound over all of them.

use super::cost_database::CostDatabase;
use super::error::Error;
use super::evaluator::Evaluator;
use super::layer_room::OpenBoundaries;
use super::pipeline::ScheduledPipeline;
use super::projection::PipelineConfig;
use super::rank_waits::{OpenOrders, with_layers};
use super::relaxation::Relaxation;
use ir::options::{Offload, ParallelConfig, Recompute};
use scheduler::partition::{Chain, RunSeconds, regular};
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules::{self, ScheduleKind};
use std::sync::Arc;

/// Largest share of the step with the default stages that others may take to be of interest. A plan states stages only where they
/// save more than predictions can tell apart.
const WORTH_STATING: f64 = 0.99;

impl Evaluator {
    /// Stage boundaries, in the form of [`ParallelConfig::stages`], with which the step of a configuration is predicted to be
    /// shorter than with the default ones, if all activations are saved on the device. Returns `None` if none are known.
    ///
    /// In a chain they are those of least paths ([`Chain`]); otherwise the fastest of some regular partitions ([`regular`]).
    pub fn faster_stages(&self, parallel: &ParallelConfig) -> Option<Vec<u32>> {
        let stages = self.database.faster_stages(&self.plain(parallel)).ok()?;
        (!stages.is_empty()).then(|| stages.to_vec())
    }

    /// The boundaries of which [`Evaluator::faster_stages`] are the fastest ones, if a simulation confirms a gain. Returns `None`
    /// if there are none.
    pub fn promising_stages(&self, parallel: &ParallelConfig) -> Option<Vec<Vec<u32>>> {
        let partitions = self.database.promising_stages(&self.plain(parallel)).ok()?;
        (!partitions.is_empty()).then(|| partitions.to_vec())
    }

    /// The pipeline of a configuration with open stage boundaries, if all activations are saved on the device.
    fn plain(&self, parallel: &ParallelConfig) -> PipelineConfig {
        let (recompute, offload) = (Recompute::None, Offload::None);
        let plain = ParallelConfig { recompute, offload, stages: Vec::new(), ..parallel.clone() };
        PipelineConfig::of(&plain, 0, self.microbatches(parallel), self.cores_each(parallel))
    }

    /// Lower bound on the seconds of a step over all stage boundaries, in any of some schedules with the same stages; the first one
    /// saves least. The bound is infinite if no boundaries keep the limits.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn any_stages(
        &self,
        parallel: &ParallelConfig,
        names: &[&str],
        limits: Option<OpenBoundaries<'_>>,
    ) -> Result<f64, Error> {
        let candidate = self.candidate(parallel.clone());
        let (config, blocks) = self.blocks(&candidate)?;
        let schedule = ScheduledPipeline::of(parallel, candidate.microbatches)?;
        let kinds: Vec<&ScheduleKind> = names.iter().filter_map(|name| schedules::find(name).ok()).collect();
        let ahead =
            |rank: u32| kinds.iter().map(|kind| ahead(kind, rank, &schedule.pipeline)).max().unwrap_or(u32::MAX);
        let open = Relaxation::of(&candidate, &blocks);
        let seconds = open.any_stages(&schedule, &ahead);
        let limits = limits.filter(|limits| seconds <= limits.enough);
        let Some(room) = limits.and_then(|limits| open.layer_room(&schedule, &ahead, &limits)) else {
            return Ok(seconds);
        };
        let is_enough = room.is_enough(&[]) || room.is_enough(&room.savings(&*self.database.memory_options(&config)?));
        Ok(if is_enough { seconds } else { f64::INFINITY })
    }
}

/// Upper bound on the forwards of a rank before its first backward in a chain.
fn ahead(kind: &ScheduleKind, rank: u32, pipeline: &Pipeline) -> u32 {
    if kind.has_fixed_order() { kind.min_in_flight(rank, pipeline) } else { pipeline.microbatches }
}

impl Relaxation<'_> {
    /// Lower bound over all stage boundaries: of a chain, by the paths through its ranks; of other placements, by the rank with
    /// most work, since layers are indivisible and the ends of the model have their ranks.
    fn any_stages(&self, schedule: &ScheduledPipeline, ahead: &dyn Fn(u32) -> u32) -> f64 {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        let seconds = match pipeline.placement {
            Placement::Chain if pipeline.slices == 1 => {
                let chain = Chain::new(&self.run_seconds(), pipeline, ahead, kind.splits_backward, 0.0);
                chain.fastest().map_or(0.0, |(least, _)| least)
            }
            Placement::Bidirectional => 0.0,
            _ => self.fullest_rank(schedule),
        };
        (seconds + self.platform.fixed()) * self.platform.stragglers(self.parallel.devices())
    }

    /// Seconds of each block instance.
    pub(super) fn run_seconds(&self) -> Vec<RunSeconds> {
        let seconds = |&block: &usize| {
            let profile = &self.fast.profiles[block];
            RunSeconds { f: profile.f.total(), i: profile.i.total(), w: profile.w.total() }
        };
        self.fast.outline.runs.iter().map(seconds).collect()
    }

    /// Seconds of what is before and after the layers, on each rank.
    pub(super) fn model_ends(&self, seconds: &[RunSeconds], pipeline: &Pipeline) -> Vec<RunSeconds> {
        let layers = &self.fast.outline.layers;
        let mut ends = vec![RunSeconds::default(); pipeline.ranks as usize];
        let [first, last] = [0, pipeline.stages() - 1].map(|stage| pipeline.rank(stage, 0) as usize);
        ends[first] = ends[first] + seconds[..layers.start].iter().sum();
        ends[last] = ends[last] + seconds[layers.end..].iter().sum();
        ends
    }

    /// Lower bound on the seconds of a step on the rank with most work. In less time the ranks together have no room for all layers of the
    /// model, next to its ends and the waits of each rank.
    fn fullest_rank(&self, schedule: &ScheduledPipeline) -> f64 {
        let (seconds, layers) = (self.run_seconds(), &self.fast.outline.layers);
        let microbatches = f64::from(schedule.pipeline.microbatches);
        let ends = self.model_ends(&seconds, &schedule.pipeline).into_iter().map(RunSeconds::total);
        let waits = self.rank_waits(OpenOrders::of(schedule));
        let busy: Vec<f64> = ends.zip(&waits).map(|(end, wait)| wait.total() + microbatches * end).collect();
        let each = seconds[layers.clone()].iter().map(|run| run.total()).fold(f64::INFINITY, f64::min);
        let each = if layers.is_empty() { 0.0 } else { microbatches * each };
        with_layers(&busy, layers.len(), each)
    }
}

impl Relaxation<'_> {
    /// First block instances of the stages of partitions that may be faster than the default one.
    fn partitions(&self, own: &[usize], schedule: &ScheduledPipeline) -> Vec<Vec<usize>> {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        let runs = self.run_seconds();
        if pipeline.placement != Placement::Chain {
            return regular(&runs, &self.fast.outline.layers, pipeline, own, WORTH_STATING);
        }
        let chain = Chain::new(&runs, pipeline, |rank| ahead(kind, rank, pipeline), kind.splits_backward, 0.0);
        let fastest = chain.fastest().map(|(_, last)| (chain.longest_path(&last), last));
        let fastest = fastest.filter(|(seconds, _)| *seconds < WORTH_STATING * chain.longest_path(own));
        let both = |(seconds, last)| [Some(last), chain.longest_stages_first(seconds)].into_iter().flatten().collect();
        fastest.map_or_else(Vec::new, both)
    }
}

/// Boundaries of partitions that may be faster than the default one.
pub(super) fn promising_stages(database: &CostDatabase, config: &PipelineConfig) -> Result<Arc<Vec<Vec<u32>>>, Error> {
    database.in_candidate(config, |candidate| {
        let blocks = database.block_costs(&candidate.block_config()?)?;
        let schedule = ScheduledPipeline::of(&candidate.parallel, candidate.microbatches)?;
        let own = database.stage_starts(&[], &candidate.block_config()?, &blocks, &schedule.pipeline)?;
        let partitions = Relaxation::of(&candidate, &blocks).partitions(&own, &schedule);
        let boundaries = |starts: Vec<usize>| starts[1..].iter().map(|&start| start as u32).collect();
        Ok(Arc::new(partitions.into_iter().map(boundaries).collect()))
    })
}

/// The fastest of the promising partitions by a simulated step; empty if the default one is as fast.
pub(super) fn faster_stages(database: &CostDatabase, config: &PipelineConfig) -> Result<Arc<Vec<u32>>, Error> {
    let promising = database.promising_stages(config)?;
    if promising.is_empty() {
        return Ok(Arc::default());
    }
    let seconds = |stages: &[u32]| {
        let parallel = ParallelConfig { stages: stages.to_vec(), ..config.parallel.clone() };
        Ok::<_, Error>(database.simulated(&PipelineConfig { parallel, ..config.clone() })?.seconds)
    };
    let mut best = (seconds(&[])? * WORTH_STATING, &[][..]);
    for stages in promising.iter() {
        let step = seconds(stages)?;
        if step < best.0 {
            best = (step, stages);
        }
    }
    Ok(Arc::new(best.1.to_vec()))
}
