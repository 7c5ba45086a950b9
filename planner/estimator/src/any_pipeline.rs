//! Lower bound over all pipelines of whole sequences that fit in memory, by the average rank.
//!
//! Let T limit the seconds of the step, and let m micro-batches go through it. The activations that a block instance saves stay until its
//! backward, at least as long as the stages after its own take forward and back. A stage takes at most T/m of a micro-batch, so that this
//! is at least `after - T/m`, where `after` are the seconds of all later instances. On average an instance then holds its activations
//! `m (after - T/m) / T` times (Little 1961), and at some moment once for the same micro-batch on all ranks. Ranks hold no more on average
//! than the budget. What they save less is recomputed, fewest seconds per byte held first, and some rank works as long as the average.

use super::error::Error;
use super::evaluator::Evaluator;
use super::memory::states;
use super::memory_fit::{RecomputeOptions, Saving, cheapest_first};
use super::open_shards::{Sharded, Sharding};
use super::rank_waits::{OpenOrders, average};
use super::relaxation::Relaxation;
use ir::options::ParallelConfig;

/// Pipelines that a search node leaves open, and their limits.
#[derive(Clone, Copy, Debug)]
pub struct OpenPipelines {
    /// Seconds from which on the bound need not be tighter.
    pub enough: f64,
    /// Memory budget of a device, in bytes.
    pub budget: f64,
    /// Orders of their actions.
    pub orders: OpenOrders,
}

impl Evaluator {
    /// Lower bound on step time, in seconds, over all pipelines of configurations at least as fast as `fast` that shard their states as
    /// one of `shards`, run whole sequences and offload nothing.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn any_pipeline(
        &self,
        fast: &ParallelConfig,
        shards: &[Sharding],
        pipelines: &OpenPipelines,
    ) -> Result<f64, Error> {
        let candidate = self.candidate(fast.clone());
        let (config, blocks) = self.blocks(&candidate)?;
        let open = Relaxation::of(&candidate, &blocks);
        let room = open.room(shards, pipelines.budget);
        let held = open.least_held(pipelines);
        let is_within = |times: &[f64]| open.saved(times) <= room;
        let once = vec![1.0; held.len()];
        if open.microbatches < 2 || is_within(&held) && is_within(&once) {
            return Ok(0.0);
        }
        let options = self.database.memory_options(&config)?;
        let more = [held, once].map(|times| open.recomputed(&times, open.saved(&times) - room, &options));
        Ok(open.average_with(more[0].max(more[1]), pipelines.orders))
    }
}

impl Relaxation<'_> {
    /// Bytes that all ranks together may save, under the option for sharding states that leaves most.
    fn room(&self, shards: &[Sharding], budget: f64) -> f64 {
        let traits = &self.platform.stack.traits;
        let elements = self.average_elements();
        let sharded = self.sharded(shards);
        let states = sharded
            .iter()
            .map(|Sharded { replicas, .. }| states(elements, replicas).total() + replicas.held(elements.all));
        let states = states.fold(f64::INFINITY, f64::min);
        self.parallel.pp as f64 * ((budget - traits.memory.context) / traits.memory.reserve - states)
    }

    /// How often each block instance holds its activations on average, in steps that take no longer than enough.
    fn least_held(&self, pipelines: &OpenPipelines) -> Vec<f64> {
        let microbatches = f64::from(self.microbatches);
        let mut after = 0.0;
        let held = |&block: &usize| {
            let profile = &self.fast.profiles[block];
            let held = (microbatches * after / pipelines.enough - 1.0).max(0.0);
            let weights = if pipelines.orders.splits { 0.0 } else { profile.w.total() };
            after += profile.f.total() + profile.i.total() + weights;
            held
        };
        let mut all: Vec<f64> = self.fast.outline.runs.iter().rev().map(held).collect();
        all.reverse();
        all
    }

    /// Bytes that all instances save, each this often.
    fn saved(&self, times: &[f64]) -> f64 {
        let runs = self.fast.outline.runs.iter().zip(times);
        runs.map(|(&block, times)| times * self.fast.profiles[block].saved).sum()
    }

    /// Seconds of recomputation of a micro-batch, if the instances, each of which holds its activations this often, save `excess` bytes
    /// less; infinite if they cannot.
    fn recomputed(&self, times: &[f64], excess: f64, options: &RecomputeOptions) -> f64 {
        let of_block = |block: usize| options.recomputed.iter().filter(move |saving| saving.block == block);
        let runs = self.fast.outline.runs.iter().zip(times).filter(|(_, times)| **times > 0.0);
        let ways = runs.flat_map(|(&block, &times)| of_block(block).map(move |saving| saving.held(times)));
        let (mut left, mut seconds) = (excess, 0.0);
        for Saving { each, .. } in cheapest_first(ways.collect()) {
            if left <= 0.0 {
                return seconds;
            }
            seconds += each.seconds * (left / each.bytes).min(1.0);
            left -= each.bytes;
        }
        if left > 0.0 { f64::INFINITY } else { seconds }
    }

    /// Seconds of a step whose average rank has a share of `more` seconds of recomputation of each micro-batch, in addition to its waits.
    fn average_with(&self, more: f64, orders: OpenOrders) -> f64 {
        let each = |profile: &cost::Profile| profile.f.total() + profile.i.total() + profile.w.total();
        let whole = self.fast.sum(each) + more;
        let work = f64::from(self.microbatches) * whole / self.parallel.pp as f64;
        (average(&self.rank_waits(orders)).total() + work + self.platform.fixed())
            * self.platform.stragglers(self.parallel.devices())
    }
}
