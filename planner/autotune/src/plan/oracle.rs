//! Cost oracle of the search.

use super::large_microbatch::LargeMicrobatches;
use super::space::open_orders;
use crate::search::{Bound, CostEstimate, Level, Limits, Oracle, Recomputable, SearchNode, Space, within};
use compiler::parallel;
use estimator::{
    BoundKind, BudgetSizes, Evaluator, FitLimits, LargeShare, MemoryChoices, ModelWork, OpenBoundaries, OpenPipelines,
    ROUNDING, Sharding, StepCost, Undecided, fits_budget,
};
use ir::config_key::ConfigKey;
use ir::options::{CpKind, Offload, ParallelConfig, Recompute};
use scheduler::schedules;
use std::convert::Infallible;
use std::sync::Arc;
use support::query::Memo;

/// Costs and lower bounds of the configurations of a space.
pub(super) struct Costs<'a> {
    evaluator: &'a Evaluator,
    work: ModelWork,
    space: &'a Space,
    large: &'a LargeMicrobatches<'a>,
    /// `true` if configurations beyond their memory budget are of no use.
    is_limited: bool,
    /// Options for sharding states by the degrees that they depend on: dp, tp, pp, cp, ep, etp.
    all_shardings: Memo<[u64; 6], Vec<Sharding>>,
    /// Those that change the cost of the average rank, by the degrees and the micro-batch: dp, tp, pp, cp, ep, etp, mbs.
    shardings: Memo<[u64; 7], Vec<Sharding>>,
    /// The average ranks of nodes with a decided micro-batch.
    average_ranks: Memo<MicrobatchKey, Vec<AverageRank>>,
}

/// The fields of a node with a decided micro-batch that its average ranks depend on, and the bits of the memory budget.
#[derive(Clone, PartialEq, Eq, Hash)]
struct MicrobatchKey {
    /// Degrees and micro-batch: dp, tp, pp, cp, ep, etp, mbs.
    sizes: [u64; 7],
    sp: bool,
    cp_kind: CpKind,
    tp_overlap: Option<bool>,
    budget: Option<u64>,
}

/// An option for sharding states, with its lower bound from the average rank.
struct AverageRank {
    sharding: Sharding,
    least: StepCost,
}

impl Oracle for Costs<'_> {
    /// Lower bound of a search node. If no member is within its memory budget, the bytes are infinite.
    fn bound(&self, node: &SearchNode, known: Bound, limits: Limits) -> Option<Bound> {
        if !self.is_limited {
            return self.bound_within(node, known, limits);
        }
        let budget = self.evaluator.memory_budget(sizes(node));
        let bound = self.bound_within(node, known, self.own_limits(node, limits))?;
        let bytes = if fits_budget(bound.bytes, Some(budget)) { bound.bytes } else { f64::INFINITY };
        Some(Bound { bytes, ..bound })
    }

    /// Boundaries that bounds rule out need no simulation, which takes as long as many bounds.
    fn faster_stages(&self, node: &SearchNode, limits: Limits) -> Option<Vec<u32>> {
        let is_limited = limits.seconds.is_finite();
        let promising = if is_limited { self.evaluator.promising_stages(&node.parallel)? } else { Vec::new() };
        let may_serve = |stages: Vec<u32>| self.has_any_within(&within(node, stages), limits);
        if is_limited && !promising.into_iter().any(may_serve) {
            return None;
        }
        self.evaluator.faster_stages(&node.parallel)
    }

    fn cost(&self, parallel: &ParallelConfig, limits: Limits) -> Option<CostEstimate> {
        let (parallel, StepCost { seconds, bytes }) = match (&parallel.recompute, parallel.offload) {
            (Recompute::Auto, _) | (_, Offload::Auto) => self.evaluator.fitting(parallel, limits.seconds).ok()??,
            _ => (parallel.clone(), self.evaluator.cost(parallel).ok()?),
        };
        let fits = !self.is_limited || bytes <= self.evaluator.memory_budget(BudgetSizes::of(&parallel));
        fits.then(|| CostEstimate { seconds, bytes, text: parallel::print(&parallel) })
    }
}

impl<'a> Costs<'a> {
    /// Costs of a space, within memory budgets if `is_limited`.
    pub(super) fn new(
        evaluator: &'a Evaluator,
        work: ModelWork,
        space: &'a Space,
        large: &'a LargeMicrobatches<'a>,
        is_limited: bool,
    ) -> Costs<'a> {
        let (all_shardings, shardings, average_ranks) = Default::default();
        Costs { evaluator, work, space, large, is_limited, all_shardings, shardings, average_ranks }
    }

    /// Lower bounds on all configurations of the space: all devices compute at their full rate, and each state is stored once.
    pub(super) fn of_all(&self) -> StepCost {
        let all = self.space.on_devices(self.space.devices);
        self.of_degrees(&all, Limits { seconds: f64::INFINITY, bytes: None })
    }

    /// Limits of a node's members: they are within their memory budget, too, if that counts.
    fn own_limits(&self, node: &SearchNode, limits: Limits) -> Limits {
        if !self.is_limited {
            return limits;
        }
        let budget = self.evaluator.memory_budget(sizes(node));
        Limits { bytes: limits.bytes.map(|bytes| bytes.min(budget)), ..limits }
    }

    /// Lower bound of a search node within these limits. For degrees alone it is FLOPs / peak; from the micro-batch level on,
    /// the model is planned.
    fn bound_within(&self, node: &SearchNode, known: Bound, limits: Limits) -> Option<Bound> {
        let known = StepCost { seconds: known.seconds, bytes: known.bytes };
        let Some(budget) = limits.bytes else {
            return Some(Bound { seconds: 0.0, bytes: self.least_bytes(node, known.bytes)? });
        };
        let ask = || {
            let is_ordered = node.level >= Level::Schedule;
            BoundKind::Seconds { enough: limits.seconds, budget, choices: self.memory_choices(node), is_ordered }
        };
        let floor = match node.level {
            Level::Devices | Level::Degrees => self.of_degrees(node, limits),
            Level::Axes => self.of_axes(node, limits),
            Level::SequenceSharding => StepCost { seconds: self.of_sharing(&node.parallel), ..known },
            Level::Batch => self.of_blocks(node, limits)?,
            Level::Pipeline => StepCost { seconds: self.any_boundaries(node, limits, budget)?, ..known },
            Level::Stages => StepCost { seconds: self.any_shards(node, limits, budget)?, ..known },
            Level::Shards => {
                let average = self.average_rank(node, limits)?;
                if self.is_ruled_out(average, limits) {
                    average
                } else {
                    self.evaluator.floor(&self.fastest(node), &ask()).ok()?
                }
            }
            // Where nothing is offloaded the level decides nothing: the larger node's bound is this one's.
            Level::Offload if known.seconds > 0.0 && !self.space.offload => known,
            _ => self.evaluator.floor(&self.fastest(node), &ask()).ok()?,
        };
        // The bytes that stay on the device of a configuration that offloads in part are not known.
        let is_open = node.level == Level::Complete && node.parallel.offload.is_in_part();
        Some(Bound { seconds: floor.seconds, bytes: if is_open { 0.0 } else { floor.bytes } })
    }

    /// Lower bound on the seconds of a node whose stage boundaries are open.
    fn any_boundaries(&self, node: &SearchNode, limits: Limits, budget: f64) -> Option<f64> {
        let is_limited = limits.seconds.is_finite() && !self.may_offload();
        let shards = if is_limited { self.promising_shardings(node, limits) } else { Vec::new() };
        let open = OpenBoundaries { shards: &shards, enough: limits.seconds, budget };
        let open = Some(open).filter(|_| is_limited);
        self.evaluator.any_stages(&self.fastest(node), &node.schedules, open).ok()
    }

    /// Lower bound on the seconds of a node whose options for sharding states are open.
    fn any_shards(&self, node: &SearchNode, limits: Limits, budget: f64) -> Option<f64> {
        let shards = self.promising_shardings(node, limits);
        if shards.is_empty() {
            return Some(f64::INFINITY);
        }
        let limits = FitLimits { enough: limits.seconds, budget, choices: &self.memory_choices(node) };
        self.evaluator.any_shards(&self.fastest(node), &shards, &limits).ok()
    }

    /// Returns `false` if, by bounds, a node with open options for sharding states has no configurations within the limits.
    fn has_any_within(&self, node: &SearchNode, limits: Limits) -> bool {
        let is_within = |part: &SearchNode| {
            let bound = self.bound(part, Bound { seconds: 0.0, bytes: 0.0 }, limits);
            let is_fast = |bound: &Bound| bound.seconds * (1.0 - ROUNDING) <= limits.seconds;
            bound.filter(is_fast).is_some_and(|bound| fits_budget(bound.bytes, limits.bytes))
        };
        let part = |sharding: Sharding| node.part(sharding.on(node.parallel.clone()), Level::Shards);
        let shards = || self.promising_shardings(node, self.own_limits(node, limits));
        is_within(node) && shards().into_iter().map(part).any(|part| is_within(&part))
    }

    /// A configuration that none of a search node's is faster than. Recomputed values are not offloaded: offloading has its
    /// cost only once it is decided.
    fn fastest(&self, node: &SearchNode) -> ParallelConfig {
        let mut parallel = node.parallel.clone();
        if node.level < Level::Complete || parallel.recompute == Recompute::Auto {
            parallel.offload = Offload::None;
            parallel.recompute = Recompute::None;
        }
        // A layer that stays on the device waits for no copy.
        if parallel.offload.is_in_part() {
            parallel.offload = Offload::None;
        }
        parallel
    }

    /// Options of a node's configurations for saving memory.
    fn memory_choices(&self, node: &SearchNode) -> MemoryChoices {
        let (space, parallel) = (self.space, &node.parallel);
        if node.level == Level::Complete {
            let selective = parallel.recompute == Recompute::Auto;
            let is_open = parallel.offload.is_in_part() && parallel.recompute == Recompute::None;
            return if selective || is_open {
                MemoryChoices { selective, full: Vec::new(), offload: vec![parallel.offload] }
            } else {
                MemoryChoices::NONE
            };
        }
        let offload = if node.level < Level::Offload { space.offload_options() } else { vec![parallel.offload] };
        let some = || (1..space.longest(parallel) as u32).chain([u32::MAX]).collect();
        let (selective, full) = match (&space.pin.parallel.recompute, space.recomputable) {
            _ if node.level == Level::Layers => (false, some()),
            (Recompute::Full(layers), _) if space.pin.has(ConfigKey::Recompute) => {
                (false, vec![layers.unwrap_or(u32::MAX)])
            }
            (Recompute::None | Recompute::Selective(_), _) if space.pin.has(ConfigKey::Recompute) => (true, Vec::new()),
            (_, Recomputable { some: true, .. }) => (true, some()),
            (_, Recomputable { whole: true, .. }) => (true, vec![u32::MAX]),
            _ => (true, Vec::new()),
        };
        MemoryChoices { selective, full, offload }
    }

    /// Lower bound on the bytes of a search node. For degrees alone it counts the states; from the micro-batch level on, the
    /// model is planned.
    fn least_bytes(&self, node: &SearchNode, known: f64) -> Option<f64> {
        let (fast, small) = (self.fastest(node), self.smallest(node));
        let of_shards = |shards: &[ParallelConfig]| self.evaluator.least_bytes(&fast, &small, shards).ok();
        let limits = Limits { seconds: f64::INFINITY, bytes: None };
        match node.level {
            Level::Devices | Level::Degrees | Level::Axes => Some(self.of_degrees(node, limits).bytes),
            Level::SequenceSharding => {
                // Larger micro-batches need no less memory: the smallest is planned for all.
                let mbs = self.space.sizes(&node.parallel).min()?;
                let few = SearchNode { parallel: ParallelConfig { mbs, ..node.parallel.clone() }, ..node.clone() };
                self.least_of_any(&few).map(|least| least.max(known))
            }
            Level::Batch => Some(self.of_degrees(node, limits).bytes.max(known)),
            Level::Pipeline => Some(known),
            Level::Stages => {
                let shards = self.shards(node).into_iter().map(|part| part.parallel);
                of_shards(&shards.collect::<Vec<_>>())
            }
            // Values are chosen to fit on the device, or not at all.
            Level::Complete if node.parallel.recompute == Recompute::Auto && node.parallel.offload.is_none() => {
                let budget = self.evaluator.memory_budget(BudgetSizes::of(&fast));
                of_shards(std::slice::from_ref(&fast)).filter(|bytes| fits_budget(*bytes, Some(budget)))
            }
            Level::Complete if fast == small => {
                self.evaluator.floor(&fast, &BoundKind::Bytes).ok().map(|floor| floor.bytes)
            }
            _ => of_shards(std::slice::from_ref(&fast)),
        }
    }

    /// Lower bound on the bytes of a search node over all pipelines and all numbers of micro-batches.
    fn least_of_any(&self, node: &SearchNode) -> Option<f64> {
        let shards = self.shards(node).into_iter().map(|part| self.fastest(&part));
        self.evaluator.least_of_any(&self.smallest(node), &shards.collect::<Vec<_>>()).ok()
    }

    /// FLOPs / peak. If memory counts, no micro-batch has more sequences than fit in the memory budget.
    fn of_degrees(&self, node: &SearchNode, limits: Limits) -> StepCost {
        let (parallel, sequences) = (&node.parallel, self.space.global_batch);
        if node.level == Level::Devices {
            let (states, platform) = (node.parallel.offload_optimizer, self.evaluator.platform(node.devices[0]));
            return self.work.of_devices(node.devices, states, sequences, &platform);
        }
        let local = sequences / parallel.dp;
        let platform = self.evaluator.platform(parallel.devices());
        let zero = self.space.pin.has(ConfigKey::Zero).then_some(parallel.zero);
        let (most, mbs) = match limits.bytes {
            _ if node.level == Level::Batch => (parallel.mbs, parallel.mbs),
            Some(budget) => (self.work.most_sequences(parallel, budget).clamp(1, local), 1),
            None => (local, 1),
        };
        let microbatches = u32::try_from(local.div_ceil(most)).unwrap_or(u32::MAX);
        let open = Undecided { zero, microbatches, mbs };
        if node.level == Level::Degrees && self.space.experts.is_some() {
            // No rank holds less of the experts than if all ranks shard each expert.
            let cut = ParallelConfig { ep: 1, etp: parallel.dp * parallel.cp * parallel.tp, ..parallel.clone() };
            return self.work.floor(&cut, open, sequences, &platform);
        }
        self.work.floor(parallel, open, sequences, &platform)
    }

    /// Returns `true` if large micro-batches give a bound. The model must state no micro-batch, and the ranks must have the
    /// usual order. It must also make no difference whether stages or data-parallel ranks are placed around a block's ranks.
    fn has_large(&self) -> bool {
        self.space.batch.is_none() && !self.space.pin.has(ConfigKey::RankOrder)
    }

    fn is_ruled_out(&self, floor: StepCost, limits: Limits) -> bool {
        floor.seconds > limits.seconds || !fits_budget(floor.bytes, limits.bytes)
    }

    /// Lower bound of a node with degrees alone: FLOPs / peak and, if that does not rule it out, the bound of large
    /// micro-batches.
    fn of_axes(&self, node: &SearchNode, limits: Limits) -> StepCost {
        let floor = self.of_degrees(node, limits);
        if self.is_ruled_out(floor, limits) || !self.has_large() {
            return floor;
        }
        let seconds = self.large.of_degrees(&node.parallel, limits.seconds);
        StepCost { seconds: seconds.max(floor.seconds), ..floor }
    }

    /// Lower bound of a node with one option for sharing a sequence: the work of large micro-batches.
    fn of_sharing(&self, parallel: &ParallelConfig) -> f64 {
        if self.has_large() { self.large.of_sharing(parallel) } else { 0.0 }
    }

    /// Lower bound of a node whose pipeline is open. It tries FLOPs / peak, then large micro-batches with each option for
    /// sharding states, then the node's own micro-batch. Each is evaluated only if the one before does not rule the node out.
    fn of_blocks(&self, node: &SearchNode, limits: Limits) -> Option<StepCost> {
        let parallel = &node.parallel;
        let floor = self.of_degrees(node, limits);
        if self.is_ruled_out(floor, limits) {
            return Some(floor);
        }
        if self.has_large() {
            let fast = self.fastest(node);
            let fast: Vec<ParallelConfig> = self.shardings(node).iter().map(|it| it.on(fast.clone())).collect();
            let bound = |large: LargeShare<'_>| {
                let Limits { seconds: enough, bytes: budget } = limits;
                let bounds = self.evaluator.average_ranks_by(large, &fast, self.space.open_orders, enough, budget);
                least(bounds.ok()?, limits)
            };
            // A large micro-batch that cannot be planned gives no bound.
            let average = self.large.least(parallel, bound, |average| self.is_ruled_out(average, limits));
            if let Some(average) = average.filter(|average| self.is_ruled_out(*average, limits)) {
                return Some(average);
            }
        }
        let average = least(self.average_ranks(node, limits).iter().map(|rank| rank.least), limits)?;
        if self.is_ruled_out(average, limits) {
            return Some(average);
        }
        let seconds = self.any_pipeline(node, limits)?;
        Some(StepCost { seconds: seconds.max(average.seconds), ..average })
    }

    /// Lower bound on the seconds of a node whose pipeline is open, from the activations that some rank saves; 0 where none is known.
    fn any_pipeline(&self, node: &SearchNode, limits: Limits) -> Option<f64> {
        let (Limits { seconds: enough, bytes: Some(budget) }, false) = (limits, self.has_host_or_slices()) else {
            return Some(0.0);
        };
        if !enough.is_finite() {
            return Some(0.0);
        }
        let ParallelConfig { pp, dp, mbs, .. } = node.parallel;
        let orders = (self.space.orders)(pp, self.space.global_batch / (dp * mbs));
        let names = orders.iter().flat_map(|order| order.schedules.iter());
        let orders = open_orders(names.filter_map(|name| schedules::find(name).ok()));
        let pipelines = OpenPipelines { enough, budget, orders };
        self.evaluator.any_pipeline(&self.fastest(node), &self.shardings(node), &pipelines).ok()
    }

    /// Returns `true` if activations may be in host memory, or sequences may be cut into slices.
    fn has_host_or_slices(&self) -> bool {
        self.space.open_orders.slices > 1 || self.may_offload()
    }

    /// Returns `true` if activations may be in host memory.
    fn may_offload(&self) -> bool {
        self.space.offload_options().iter().any(|offload| !offload.is_none())
    }

    /// Parts of a node with the options for sharding states that change the cost of the average rank.
    fn shards(&self, node: &SearchNode) -> Vec<SearchNode> {
        let part = |sharding: &Sharding| node.part(sharding.on(node.parallel.clone()), Level::Shards);
        self.shardings(node).iter().map(part).collect()
    }

    /// These options, those that shard most first. With overlap, a stack takes no longer than if told not to overlap.
    fn shardings(&self, node: &SearchNode) -> Arc<Vec<Sharding>> {
        let make = || Ok::<_, Infallible>(self.new_shardings(node));
        let Ok(all) = self.shardings.get(&sizes_of(&node.parallel), make);
        all
    }

    /// The sharding options of a node whose average rank keeps its limits.
    fn promising_shardings(&self, node: &SearchNode, limits: Limits) -> Vec<Sharding> {
        let keeps = |rank: &&AverageRank| {
            let seconds = rank.least.seconds * (1.0 - ROUNDING);
            !self.is_ruled_out(StepCost { seconds, ..rank.least }, limits)
        };
        self.average_ranks(node, limits).iter().filter(keeps).map(|rank| rank.sharding).collect()
    }

    /// The average rank under each of these options that the model allows.
    fn average_ranks(&self, node: &SearchNode, limits: Limits) -> Arc<Vec<AverageRank>> {
        let ParallelConfig { sp, cp_kind, tp_overlap, .. } = node.parallel;
        let (sizes, budget) = (sizes_of(&node.parallel), limits.bytes.map(f64::to_bits));
        let key = MicrobatchKey { sizes, sp, cp_kind, tp_overlap, budget };
        let make = || Ok::<_, Infallible>(self.new_average_ranks(node, limits));
        let Ok(all) = self.average_ranks.get(&key, make);
        all
    }

    fn new_average_ranks(&self, node: &SearchNode, limits: Limits) -> Vec<AverageRank> {
        let of = |&sharding: &Sharding| {
            let part = node.part(sharding.on(node.parallel.clone()), Level::Shards);
            self.average_rank(&part, limits).map(|least| AverageRank { sharding, least })
        };
        self.shardings(node).iter().filter_map(of).collect()
    }

    fn new_shardings(&self, node: &SearchNode) -> Vec<Sharding> {
        let ParallelConfig { dp, tp, pp, cp, ep, etp, .. } = node.parallel;
        let Ok(open) = self.all_shardings.get(&[dp, tp, pp, cp, ep, etp], || {
            let parts = self.space.shards(node);
            Ok::<_, Infallible>(parts.iter().map(|part| Sharding::of(&part.parallel)).collect())
        });
        let hides = open.first().and_then(|first| first.dp_overlap);
        let (mut seen, mut parallel) = (Vec::new(), node.parallel.clone());
        let is_new = |part: &&Sharding| {
            parallel.zero = part.zero;
            let sharding = (self.evaluator.zero(&parallel), part.shard, part.gather);
            let is_new = part.dp_overlap == hides && !seen.contains(&sharding);
            seen.push(sharding);
            is_new
        };
        let mut all: Vec<Sharding> = open.iter().filter(is_new).copied().collect();
        all.reverse();
        all
    }

    /// Lower bound from the average rank; saved activations do not count.
    fn average_rank(&self, node: &SearchNode, limits: Limits) -> Option<StepCost> {
        self.evaluator.average_rank(&self.fastest(node), self.space.open_orders, limits.bytes).ok()
    }

    /// The node's configuration that saves least: undecided options recompute everything, or offload it.
    fn smallest(&self, node: &SearchNode) -> ParallelConfig {
        let mut parallel = node.parallel.clone();
        if parallel.offload.is_in_part() {
            parallel.offload = Offload::All(None);
        }
        if node.level == Level::Complete {
            if parallel.recompute == Recompute::Auto {
                parallel.recompute = Recompute::Full(None);
            }
            return parallel;
        }
        let pin = &self.space.pin;
        if node.level < Level::Offload && self.space.offload && !pin.has(ConfigKey::Offload) {
            parallel.offload = Offload::All(None);
        }
        let given = &pin.parallel.recompute;
        let is_given = pin.has(ConfigKey::Recompute) && *given != Recompute::Auto;
        parallel.recompute = if is_given { given.clone() } else { Recompute::Full(None) };
        parallel
    }
}

/// The degrees and the micro-batch of a configuration: dp, tp, pp, cp, ep, etp, mbs.
fn sizes_of(parallel: &ParallelConfig) -> [u64; 7] {
    let ParallelConfig { dp, tp, pp, cp, ep, etp, mbs, .. } = *parallel;
    [dp, tp, pp, cp, ep, etp, mbs]
}

/// Lower bound over several nodes: seconds of those within the memory budget, if there are any.
fn least(floors: impl IntoIterator<Item = StepCost>, limits: Limits) -> Option<StepCost> {
    let both = |a: StepCost, b: StepCost| {
        let seconds = match (fits_budget(a.bytes, limits.bytes), fits_budget(b.bytes, limits.bytes)) {
            (true, false) => a.seconds,
            (false, true) => b.seconds,
            _ => a.seconds.min(b.seconds),
        };
        StepCost { seconds, bytes: a.bytes.min(b.bytes) }
    };
    floors.into_iter().reduce(both)
}

/// Sizes that a search node has decided and a memory budget depends on.
fn sizes(node: &SearchNode) -> BudgetSizes {
    let [fewest, most] = node.devices;
    if node.level == Level::Devices {
        return BudgetSizes { devices: (fewest == most).then_some(fewest), ..BudgetSizes::default() };
    }
    let all = BudgetSizes::of(&node.parallel);
    BudgetSizes {
        mbs: all.mbs.filter(|_| node.level >= Level::Batch),
        ep: all.ep.filter(|_| node.level >= Level::Axes),
        ..all
    }
}
