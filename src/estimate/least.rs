//! Lower bounds on the bytes of a search node. They serve searches for the least memory, and checks that any configuration
//! fits.

use super::blocks::Blocks;
use super::floor::{Open, flow_of};
use super::memory::{Inner, fullest_device, states, within};
use super::ordered::Ordered;
use super::replicas::Replicas;
use super::stages::memory_loads;
use cost::{Machine, Profile};
use ir::goal::Layout;
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;

impl Open<'_> {
    /// Of any pipeline: the mean rank, or the one with most layers, where blocks keep as little as `small` ones.
    pub(super) fn least_of_any(&self, small: &Blocks) -> f64 {
        let replicas = Replicas::new(self.layout, self.microbatches, self.machine);
        let mean = self.mean_bytes(self.mean_elements(), Some(small), &replicas);
        let layers = self.fast.outline.layers_by_block().into_iter();
        layers.map(|(block, runs)| self.with_most(block, runs, small, &replicas)).fold(mean, f64::max)
    }

    /// Of the rank with most layers of one kind: n on p ranks are n/p, rounded up, on one of them. Up to the first backward of
    /// the last stage it keeps all of them for a micro-batch.
    fn with_most(&self, block: usize, runs: u64, small: &Blocks, replicas: &Replicas<'_>) -> f64 {
        let facts = &self.machine.stack.facts;
        let fast = &self.fast.profiles[block];
        let small: &Profile = &small.again.as_ref().unwrap_or(&small.profiles)[block];
        let layers = runs.div_ceil(self.layout.pp) as f64;
        let states = states([fast.dense, fast.experts].map(|elements| layers * elements), replicas);
        let kept = layers * small.kept;
        // A step's only backward may put gradients in the place of what it finds.
        let replaced = if facts.frees_gradients && self.microbatches < 2 { kept.min(states.gradients) } else { 0.0 };
        let one = Inner { transient: small.transient.min(fast.transient), elements: fast.dense + fast.experts };
        let inner = within(one, Inner::default(), 0.0, 0.0, gathers(replicas), self.machine.recipe);
        let messages = if self.layout.pp > 1 { 4.0 * fast.boundary } else { 0.0 };
        let needed = states.total() + kept - replaced + inner + messages + facts.workspace;
        needed * facts.reserve + facts.context + communicators(self.layout, self.machine)
    }

    /// Of the stages that begin so, in a schedule, where blocks keep as little as `small` ones and states are sharded in the way
    /// of these layouts that leaves least.
    pub(super) fn least_bytes(
        &self,
        small: &Blocks,
        starts: &[usize],
        (kind, pipeline): (&ScheduleKind, &Pipeline),
        shards: &[Layout],
    ) -> f64 {
        let mut loads = memory_loads(small, starts);
        for (small, fast) in loads.iter_mut().zip(memory_loads(self.fast, starts)) {
            // What is computed again is among the inner values: there are at least as many of them as where nothing is.
            small.transient[0] = small.transient[0].min(fast.transient[0]);
            // Nor is it said how far the CPU is ahead.
            small.summed = [0.0; 2];
        }
        let flow = flow_of(&loads, &vec![0.0; loads.len()], (kind, pipeline), f64::INFINITY);
        let of = |layout: &Layout| {
            let replicas = Replicas::new(layout, self.microbatches, self.machine);
            fullest_device(&Ordered { layout, replicas: &replicas, loads: &loads, flow: &flow }.memory())
        };
        shards.iter().map(of).fold(f64::INFINITY, f64::min)
    }
}

/// The ZeRO stage by which parameters are gathered for a block at least: what a forward leaves whole is none of it.
pub(super) fn gathers(replicas: &Replicas<'_>) -> u8 {
    if replicas.machine.stack.facts.keeps_gathered { replicas.zero.min(2) } else { replicas.zero }
}

/// Bytes of the communicators of a layout.
pub(super) fn communicators(layout: &Layout, machine: &Machine<'_>) -> f64 {
    let Layout { dp, tp, pp, cp, ep, .. } = *layout;
    let axes = [dp * cp, tp, pp, cp, ep].into_iter().filter(|&ranks| ranks > 1).count() as f64;
    let facts = &machine.stack.facts;
    (axes + facts.communicators) * facts.communicator
}
