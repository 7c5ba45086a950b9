//! Room for layers: a bound over all stage boundaries that counts memory.
//!
//! A rank with n layers runs their passes in each micro-batch. Its device holds the states of n layers. It also holds what they save
//! for each micro-batch that the schedule has in flight at least. What the budget does not hold is recomputed, fewest seconds per
//! byte first. Seconds and bytes grow with n, so that both limit the layers of a rank. If all ranks together have room for fewer
//! layers than there are, no boundaries keep the limits.
//!
//! Only layers of the most frequent block are counted: a rank has no less room for them without the others.

use super::memory::states;
use super::memory_fit::{ROUNDING, RecomputeOptions, Reduction};
use super::open_shards::{Sharded, Sharding};
use super::pipeline::ScheduledPipeline;
use super::rank_waits::OpenOrders;
use super::relaxation::Relaxation;
use scheduler::partition::RunSeconds;
use scheduler::placement::Placement;

/// Limits of configurations whose stage boundaries are open. They run whole sequences and offload nothing.
#[derive(Clone, Copy, Debug)]
pub struct OpenBoundaries<'a> {
    /// Options for sharding states.
    pub shards: &'a [Sharding],
    /// Upper limit on the seconds of the step.
    pub enough: f64,
    /// Memory budget of a device, in bytes.
    pub budget: f64,
}

/// The layers of the most frequent block, and what each rank has for them.
pub(super) struct LayerRoom {
    /// Index of the block.
    block: usize,
    /// Number of its layers.
    number: usize,
    /// Seconds of one of them.
    layer: RunSeconds,
    /// Bytes that one of them saves for a micro-batch.
    saved: f64,
    /// Bytes of the states of one of them.
    states: f64,
    /// Bytes of a device for states and saved activations.
    bytes: f64,
    /// Seconds from the first forward to the last backward.
    seconds: f64,
    microbatches: f64,
    /// True if I and W are apart.
    splits: bool,
    ranks: Vec<RankLoad>,
}

/// Load of a rank in addition to layers, and its micro-batches in flight.
struct RankLoad {
    /// Seconds of the ends of the model on it.
    end: RunSeconds,
    /// Micro-batches that each of its stages has in flight at one time, at least.
    of_each: f64,
    /// Further forwards in flight, of stages with at least one of the layers.
    further: f64,
    /// Micro-batches of a chain before the first backward, at most.
    ahead: f64,
    /// Seconds of a micro-batch forward and back through a chain.
    round_trip: f64,
    /// Seconds before its first action and after its last one.
    wait: f64,
}

impl LayerRoom {
    /// Returns `true` if the ranks may have room for all layers, if these save less in the ways `savings`, fewest seconds per byte first.
    pub(super) fn is_enough(&self, savings: &[Reduction]) -> bool {
        let mut left = self.number;
        for rank in &self.ranks {
            left -= self.most_layers(rank, left, savings);
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// The ways of these layers to save less.
    pub(super) fn savings(&self, options: &RecomputeOptions) -> Vec<Reduction> {
        options.recomputed.iter().filter(|saving| saving.block == self.block).map(|saving| saving.each).collect()
    }

    /// The most layers that a rank has room for, up to `most`.
    fn most_layers(&self, rank: &RankLoad, most: usize, savings: &[Reduction]) -> usize {
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.holds(rank, middle as f64, savings) { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// Returns `true` if a rank may have this number of layers.
    fn holds(&self, rank: &RankLoad, layers: f64, savings: &[Reduction]) -> bool {
        let in_flight = rank.of_each * layers + rank.further;
        let room = self.bytes - layers * self.states;
        let excess = (in_flight * self.saved - room) / in_flight.max(1.0);
        let recomputed = if excess > 0.0 { seconds_of(savings, excess) } else { Some(0.0) };
        room >= 0.0 && recomputed.is_some_and(|more| self.seconds_with(rank, layers, more) <= self.seconds)
    }

    /// Seconds of a step if a rank has this number of layers, each of which recomputes for `more` seconds in a micro-batch. In a chain the
    /// paths through a rank are those of [`scheduler::partition::Chain`].
    fn seconds_with(&self, rank: &RankLoad, layers: f64, more: f64) -> f64 {
        let RankLoad { end, ahead, round_trip, wait, .. } = *rank;
        let RunSeconds { f, i, w } = self.layer;
        let (f, i, w) = (end.f + layers * f, end.i + layers * (i + more), end.w + layers * w);
        let b = if self.splits { i } else { i + w };
        let (fewer, rest) = (self.microbatches - 1.0, self.microbatches - ahead);
        let path = round_trip + f64::max(rest * f + fewer * b, fewer * f + rest * b);
        path.max(wait + self.microbatches * (f + i + w))
    }
}

/// Seconds in which a layer saves `excess` bytes less; `None` if it cannot.
fn seconds_of(savings: &[Reduction], excess: f64) -> Option<f64> {
    let (mut left, mut seconds) = (excess, 0.0);
    for saving in savings {
        if left <= saving.bytes {
            return Some(seconds + saving.seconds * left / saving.bytes);
        }
        left -= saving.bytes;
        seconds += saving.seconds;
    }
    (left <= ROUNDING * excess).then_some(seconds)
}

impl Relaxation<'_> {
    /// The layers of a pipeline whose ranks have at most `ahead(rank)` forwards before their first backward; `None` where no bound is
    /// known.
    pub(super) fn layer_room(
        &self,
        schedule: &ScheduledPipeline,
        ahead: &dyn Fn(u32) -> u32,
        limits: &OpenBoundaries<'_>,
    ) -> Option<LayerRoom> {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        // Gradients of a step's only backward reuse the memory of what it saved.
        let has_bound = pipeline.placement != Placement::Bidirectional && pipeline.slices == 1 && self.microbatches > 1;
        let (block, number) = self.most_frequent_layers().filter(|_| has_bound)?;
        let profile = &self.fast.profiles[block];
        let traits = &self.platform.stack.traits.memory;
        let stragglers = self.platform.stragglers(self.parallel.devices());
        Some(LayerRoom {
            block,
            number,
            layer: RunSeconds { f: profile.f.total(), i: profile.i.total(), w: profile.w.total() },
            saved: profile.saved,
            states: self.least_states(block, limits.shards),
            bytes: (limits.budget * (1.0 + ROUNDING) - traits.context) / traits.reserve,
            seconds: (limits.enough / stragglers - self.platform.fixed()) * (1.0 + ROUNDING),
            microbatches: f64::from(self.microbatches),
            splits: kind.splits_backward,
            ranks: self.rank_loads(schedule, ahead),
        })
    }

    /// The block with most layers, and their number.
    fn most_frequent_layers(&self) -> Option<(usize, usize)> {
        let mut numbers = vec![0; self.fast.profiles.len()];
        for span in self.fast.outline.spans.iter().filter(|span| span.are_layers) {
            numbers[span.block] += span.runs.len();
        }
        let most = numbers.into_iter().enumerate().max_by_key(|&(_, number)| number);
        most.filter(|&(_, number)| number > 0)
    }

    /// Bytes of the states of one layer, under the option for sharding states that leaves least; 0 if layers share parameters.
    fn least_states(&self, block: usize, shards: &[Sharding]) -> f64 {
        let outline = &self.fast.outline;
        if outline.tied.iter().flat_map(|tied| &tied.runs).any(|run| outline.layers.contains(run)) {
            return 0.0;
        }
        let elements = self.fast.profiles[block].elements;
        let sharded = self.sharded(shards);
        let bytes = sharded
            .iter()
            .map(|Sharded { replicas, .. }| states(elements, replicas).total() + replicas.held(elements.all));
        bytes.fold(f64::INFINITY, f64::min)
    }

    /// Load of each rank in addition to layers. A chain's ranks have at most `ahead(rank)` forwards before their first backward.
    fn rank_loads(&self, schedule: &ScheduledPipeline, ahead: &dyn Fn(u32) -> u32) -> Vec<RankLoad> {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        let seconds = self.run_seconds();
        let all: RunSeconds = seconds.iter().sum();
        let back = if kind.splits_backward { all.i } else { all.i + all.w };
        let is_chain = pipeline.placement == Placement::Chain;
        let (round_trip, are_equal) = (if is_chain { all.f + back } else { 0.0 }, self.has_equal_layers());
        let mut ranks = Vec::with_capacity(pipeline.ranks as usize);
        let waits = self.rank_waits(OpenOrders::of(schedule));
        for (rank, (end, wait)) in (0..).zip(self.model_ends(&seconds, pipeline).into_iter().zip(waits)) {
            let of_each = kind.min_microbatches_of_each(rank, pipeline);
            // All stages have a layer, except possibly the first and the last one.
            let further = match of_each > 0 && rank > 0 && are_equal {
                true => kind.min_in_flight(rank, pipeline).saturating_sub(of_each * pipeline.chunks),
                false => 0,
            };
            let ahead = if is_chain { f64::from(ahead(rank).clamp(1, pipeline.microbatches)) } else { 1.0 };
            ranks.push(RankLoad {
                end,
                of_each: of_each.into(),
                further: further.into(),
                ahead,
                round_trip,
                wait: wait.total(),
            });
        }
        ranks
    }

    /// Returns `true` if all layers are of one block, with at most one block instance before them and one after.
    fn has_equal_layers(&self) -> bool {
        let outline = &self.fast.outline;
        let is_single = outline.spans.iter().filter(|span| span.are_layers).count() == 1;
        is_single && outline.layers.start <= 1 && outline.layers.end + 1 >= outline.runs.len()
    }
}
