//! Communication of data-parallel ranks: gradients, and under ZeRO shards of parameters; and the part that no computation
//! hides.
//! Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP).

use super::place::replica_groups;
use cost::{CollectiveKind, Elements, GatherUpdated, Group, Hidden, Passes, Platform, Profile, SplitByExperts};
use ir::options::ParallelConfig;
use smallvec::{SmallVec, smallvec};

/// Ranks that hold the same parameters, and the cost of their collectives.
#[derive(Clone, Debug)]
pub(super) struct Replicas<'a> {
    pub(super) platform: &'a Platform<'a>,
    /// The stage of ZeRO under which micro-batches run.
    pub(super) zero: u8,
    /// `true` if parameters are gathered once a step and stay so.
    pub(super) gathers_once: bool,
    /// `true` if optimizer states are in host memory between updates.
    pub(super) offloads_states: bool,
    /// `true` if communication overlaps with compute.
    hides: bool,
    /// Micro-batches whose gradients a stage accumulates before ZeRO-2 or ZeRO-3 scatters them.
    run: f64,
    groups: SplitByExperts<ReplicaGroups>,
}

/// Ranks that hold the same parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ReplicaGroups {
    /// Ranks among which ZeRO shards one copy.
    pub(super) shards: Group,
    /// Ranks with the same shard of different copies.
    pub(super) copies: Group,
    /// Ranks of `shards` whose gradients differ: their scatter sums them.
    pub(super) scatters: Group,
    /// Ranks of `copies` whose gradients differ.
    pub(super) sums: Group,
}

impl ReplicaGroups {
    /// Bytes per byte of gradients that a rank's sums take apart from them. A scatter over a part of the shards is followed by a
    /// slice.
    fn sums_apart(&self, zero: u8) -> f64 {
        let ReplicaGroups { shards, scatters, sums, .. } = self;
        let of = |is_made: bool, ranks: u64| if is_made { 1.0 / ranks as f64 } else { 0.0 };
        let summed = of(sums.ranks > 1, shards.ranks);
        match zero {
            0 => of(scatters.ranks * sums.ranks > 1, 1),
            1 => of(scatters.ranks > 1, scatters.ranks) + of(scatters.ranks < shards.ranks, shards.ranks) + summed,
            _ => summed,
        }
    }
}

/// Seconds of the collectives over data-parallel ranks: exposed ones of a rank in a step, or all of one block instance.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Exchange {
    /// Reduction of gradients, after the last backward.
    pub(super) reduce: f64,
    /// Gather of updated parameters, after the update; of those that stay gathered in a step, before its first forward.
    pub(super) gather: f64,
}

/// Equal consecutive block instances of a stage.
pub(super) struct Repeated<'a> {
    pub(super) profile: &'a Profile,
    /// Number of instances.
    pub(super) times: usize,
    /// Collectives of one instance.
    pub(super) exchange: Exchange,
}

/// Instances with the same collectives before and after them.
struct Neighbours {
    /// Number of instances.
    times: f64,
    before: Exchange,
    after: Exchange,
}

impl Repeated<'_> {
    /// The first instance, the inner ones and the last one, between `before` and `after`.
    fn neighbours(&self, before: Exchange, after: Exchange) -> SmallVec<[Neighbours; 3]> {
        let own = self.exchange;
        if self.times == 1 {
            return smallvec![Neighbours { times: 1.0, before, after }];
        }
        smallvec![
            Neighbours { times: 1.0, before, after: own },
            Neighbours { times: (self.times - 2) as f64, before: own, after: own },
            Neighbours { times: 1.0, before: own, after },
        ]
    }
}

/// ZeRO stage under which the micro-batches of a configuration run.
pub(super) fn running_zero(parallel: &ParallelConfig, microbatches: u32, platform: &Platform<'_>) -> u8 {
    let accumulate = platform.stack.traits.zero.accumulate;
    let is_unsharded = microbatches > 1 && accumulate.is_unsharded(parallel.pp > 1);
    if is_unsharded { parallel.zero.min(1) } else { parallel.zero }
}

impl<'a> Replicas<'a> {
    pub(super) fn new(parallel: &ParallelConfig, microbatches: u32, platform: &'a Platform<'a>) -> Replicas<'a> {
        Replicas::in_groups(replica_groups(parallel), parallel, microbatches, platform)
    }

    /// Ranks in known groups, those of [`replica_groups`].
    pub(super) fn in_groups(
        groups: SplitByExperts<ReplicaGroups>,
        parallel: &ParallelConfig,
        microbatches: u32,
        platform: &'a Platform<'a>,
    ) -> Replicas<'a> {
        let hides = parallel.dp_overlap.unwrap_or(platform.stack.hides(Hidden::Dp));
        let traits = &platform.stack.traits;
        let zero = running_zero(parallel, microbatches, platform);
        let gathers_once = zero == 3 && parallel.gathers_once();
        let run = if traits.zero.scatters_runs { run_of(parallel).min(microbatches) } else { 1 };
        let offloads_states = parallel.offload_optimizer;
        Replicas { platform, zero, gathers_once, offloads_states, hides, run: f64::from(run), groups }
    }

    /// The ranks that hold the same parameters.
    pub(super) fn groups(&self) -> &SplitByExperts<ReplicaGroups> {
        &self.groups
    }

    /// Number of ranks among which ZeRO shards a copy.
    pub(super) fn parts(&self) -> SplitByExperts {
        self.groups.map(|ranks| ranks.shards.ranks as f64)
    }

    /// Number of parts of optimizer states: those of [`Replicas::parts`] from ZeRO-1 on.
    pub(super) fn state_parts(&self) -> SplitByExperts {
        if self.zero > 0 { self.parts() } else { SplitByExperts::uniform(1.0) }
    }

    /// Returns whether a step has one sum over ZeRO groups, apart from the scatters of its micro-batches.
    fn sums_groups_once(&self) -> bool {
        self.zero > 1 && self.platform.stack.traits.zero.sums_groups_once
    }

    /// Seconds of the sum over ZeRO groups, if a step has one.
    fn sum_groups(&self, elements: SplitByExperts) -> f64 {
        let seconds = |elements: f64, ReplicaGroups { shards, sums, .. }: ReplicaGroups| {
            let bytes = elements / shards.ranks as f64 * self.platform.recipe.comm_gradient;
            self.platform.collective_time(CollectiveKind::AllReduce, bytes, sums)
        };
        if !self.sums_groups_once() {
            return 0.0;
        }
        seconds(elements.dense, self.groups.dense) + seconds(elements.experts, self.groups.experts)
    }

    /// Bytes of the sums of gradients over ranks that have memory of their own until the update.
    pub(super) fn sums_apart(&self, elements: SplitByExperts) -> f64 {
        if !self.platform.stack.traits.zero.sums_apart {
            return 0.0;
        }
        let sums = |elements: f64, groups: ReplicaGroups| elements * groups.sums_apart(self.zero);
        let sums = sums(elements.dense, self.groups.dense) + sums(elements.experts, self.groups.experts);
        self.platform.recipe.gradient * sums
    }

    /// Bytes per trained element of a block that its updated shard takes before it is gathered, if the update has memory of its own.
    pub(super) fn updated_apart(&self) -> f64 {
        let is_gathered = self.platform.stack.traits.zero.sums_apart && matches!(self.zero, 1 | 2);
        let parts = self.parts().dense;
        if is_gathered && parts > 1.0 { self.platform.recipe.parameter / parts } else { 0.0 }
    }

    /// Seconds of reducing the gradients of `elements` to the ranks that update the parameters, in messages of at most `bucket` bytes.
    fn reduce(&self, elements: SplitByExperts, bucket: f64) -> f64 {
        let element = reduced_bytes(self.zero, self.platform);
        let exchange = |exchange: CollectiveKind, elements: f64, group: Group| {
            let messages = (elements * element / bucket).ceil().max(1.0);
            messages * self.platform.collective_time(exchange, elements * element / messages, group)
        };
        let seconds = |elements: f64, ReplicaGroups { shards, scatters, sums, .. }: ReplicaGroups| {
            if self.zero == 0 || self.zero == 1 && self.platform.stack.traits.zero.sums_whole {
                let all = Group { ranks: scatters.ranks * sums.ranks, ..scatters };
                return exchange(CollectiveKind::AllReduce, elements, all);
            }
            let part = elements / shards.ranks as f64;
            let sums = if self.sums_groups_once() { Group { ranks: 1, ..sums } } else { sums };
            exchange(CollectiveKind::ReduceScatter, elements, scatters)
                + exchange(CollectiveKind::AllReduce, part, sums)
        };
        seconds(elements.dense, self.groups.dense) + seconds(elements.experts, self.groups.experts)
    }

    /// Seconds of gathering the shards of parameters on all ranks of a copy: of all of them under ZeRO-3, else of those that an update
    /// changes.
    fn gather(&self, elements: Elements) -> f64 {
        let (bytes, elements) = (self.platform.recipe.parameter, self.gathered(elements));
        let seconds = |elements: f64, ReplicaGroups { shards, .. }: ReplicaGroups| {
            self.platform.collective_time(CollectiveKind::AllGather, elements * bytes, shards)
        };
        seconds(elements.dense, self.groups.dense) + seconds(elements.experts, self.groups.experts)
    }

    /// The elements that are gathered: an update changes only trained ones.
    fn gathered(&self, elements: Elements) -> SplitByExperts {
        if self.zero < 3 { elements.trained } else { elements.all }
    }

    /// Seconds of the gather once a step of a rank's `tensors` parameters: in one message, or one after the other, or by broadcasts of those
    /// of each rank.
    fn gather_updated(&self, elements: Elements, tensors: usize) -> f64 {
        let together = self.gather(elements);
        if self.gathers_once {
            return together;
        }
        let (platform, elements, tensors) = (self.platform, self.gathered(elements), tensors as f64);
        let seconds = |elements: f64, ReplicaGroups { shards, .. }: ReplicaGroups| {
            let bytes = elements * platform.recipe.parameter;
            match platform.stack.traits.zero.gathers {
                GatherUpdated::Together => 0.0,
                GatherUpdated::Broadcasts => platform.broadcast_time(bytes, tensors.min(shards.ranks as f64), shards),
                GatherUpdated::Messages(each) if bytes > 0.0 => {
                    platform.stepwise_gather_time(bytes, (each * tensors).max(1.0), shards)
                }
                GatherUpdated::Messages(_) => 0.0,
            }
        };
        together.max(seconds(elements.dense, self.groups.dense) + seconds(elements.experts, self.groups.experts))
    }

    /// Returns whether parameters are gathered once a step.
    fn gathers_a_step(&self) -> bool {
        self.gathers_once || matches!(self.zero, 1 | 2)
    }

    /// Bytes of the parameters that stay gathered from a forward to its backward, or in the entire step.
    pub(super) fn held(&self, elements: SplitByExperts) -> f64 {
        let traits = &self.platform.stack.traits;
        let keeps = self.gathers_once || traits.zero.keeps_gathered && !traits.zero.casts_gathered;
        if self.zero < 3 || !keeps {
            return 0.0;
        }
        // Parameters without replicas are not sharded.
        let parts = self.parts();
        let dense = if parts.dense > 1.0 { elements.dense } else { 0.0 };
        let experts = if parts.experts > 1.0 { elements.experts } else { 0.0 };
        self.platform.recipe.parameter * (dense + experts)
    }

    /// Exposed seconds of communication that runs concurrently with `compute` seconds.
    fn exposed(&self, communication: f64, compute: f64) -> f64 {
        if !self.hides {
            return communication;
        }
        let hidden = communication.min(compute) * self.platform.stack.fitted.overlap.value;
        // Hidden communication slows the compute that hides it.
        communication - hidden + hidden * (self.platform.contention() - 1.0)
    }

    /// Exposed seconds of gathers and scatters per micro-batch of a stage with these block instances.
    ///
    /// ZeRO-3 gathers a block before its forward and, unless `stays`, before its backward, while its neighbour computes.
    /// ZeRO-2 and ZeRO-3 scatter its gradients. The first gather and the last scatter are exposed. `stays` is true for stages
    /// of one block instance: nothing else is computed between its forward and backward, so its parameters stay gathered.
    pub(super) fn shards<'p>(&self, blocks: impl Iterator<Item = Repeated<'p>>, stays: bool) -> Passes {
        if self.zero < 2 {
            return Passes::default();
        }
        let blocks: SmallVec<[Repeated<'_>; 4]> = blocks.collect();
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Passes::default() };
        let mut seconds = Passes { forward: first.exchange.gather, backward: first.exchange.reduce };
        for (at, block) in blocks.iter().enumerate() {
            let before = at.checked_sub(1).map_or(Exchange::default(), |at| blocks[at].exchange);
            let after = blocks.get(at + 1).map_or(Exchange::default(), |block| block.exchange);
            let compute = block.profile.passes();
            for Neighbours { times, before, after } in block.neighbours(before, after) {
                seconds.forward += times * self.exposed(after.gather, compute.forward);
                // In the backward, the block before is gathered while the gradients of the block after are scattered.
                let gather = if stays { 0.0 } else { before.gather };
                seconds.backward += times * self.exposed(gather + after.reduce, compute.backward);
            }
        }
        if !stays {
            seconds.backward += last.exchange.gather;
        }
        seconds
    }

    /// Seconds of the collectives of an instance of each block, for blocks whose micro-batches need them; nothing is hidden. A scatter
    /// after a run of micro-batches counts in equal parts for all of them.
    pub(super) fn exchanges(&self, profiles: &[Profile]) -> Vec<Exchange> {
        let exchange = |profile: &Profile| {
            let elements = profile.elements;
            let gather = if self.zero > 2 && !self.gathers_once { self.gather(elements) } else { 0.0 };
            Exchange { gather, reduce: self.reduce(elements.trained, f64::INFINITY) / self.run }
        };
        if self.zero < 2 { vec![Exchange::default(); profiles.len()] } else { profiles.iter().map(exchange).collect() }
    }

    /// Lower bound on a step's exposed collectives, averaged over ranks with these average `elements` and seconds of
    /// `compute`. Elements are sent at the rate of a message of `ENDLESS` elements; exposed seconds are convex in both
    /// arguments.
    pub(super) fn least_exchange(&self, elements: Elements, compute: Passes) -> Exchange {
        const ENDLESS: f64 = 1e15;
        let at_best_rate = |elements: SplitByExperts, seconds: &dyn Fn(SplitByExperts) -> f64| {
            let dense = elements.dense * seconds(SplitByExperts { dense: ENDLESS, experts: 0.0 });
            let experts = elements.experts * seconds(SplitByExperts { dense: 0.0, experts: ENDLESS });
            (dense + experts) / ENDLESS
        };
        let reduces_once = self.zero < 2;
        let reduce = at_best_rate(elements.trained, &|elements| match reduces_once {
            true => self.reduce(elements, f64::INFINITY),
            false => self.sum_groups(elements),
        });
        let gather = match self.gathers_a_step() {
            true => at_best_rate(self.gathered(elements), &|elements| self.gather(Elements::all_trained(elements))),
            false => 0.0,
        };
        self.exposed_exchange(Exchange { reduce, gather }, compute)
    }

    /// Exposed part of an exchange that runs concurrently with `compute` seconds.
    fn exposed_exchange(&self, exchange: Exchange, compute: Passes) -> Exchange {
        let Exchange { reduce, gather } = exchange;
        let hides_update = self.gathers_once || self.platform.stack.hides(Hidden::Update);
        Exchange {
            reduce: self.exposed(reduce, compute.backward),
            gather: if hides_update { self.exposed(gather, compute.forward) } else { gather },
        }
    }

    /// Exposed seconds of a rank's collectives in a step.
    ///
    /// Gradients are reduced in buckets during the last micro-batch's backward. The last bucket ends with the tensor that
    /// fills it, and is exposed. Updated parameters are gathered at once, or during the next step's first forward if the
    /// stack does so. Parameters of ZeRO-3 that stay gathered in a step are gathered during its first
    /// forward.
    pub(super) fn exchange(&self, elements: Elements, tensors: usize, compute: Passes) -> Exchange {
        let bytes = elements.trained.total() * self.platform.recipe.comm_gradient;
        // Gradients that are not hidden are sent in one message.
        let bucket = self.platform.stack.traits.zero.bucket + bytes / tensors.max(1) as f64;
        let bucket = if self.hides { bucket } else { f64::INFINITY };
        let reduce =
            if self.zero < 2 { self.reduce(elements.trained, bucket) } else { self.sum_groups(elements.trained) };
        let gather = if self.gathers_a_step() { self.gather_updated(elements, tensors) } else { 0.0 };
        let last = reduce * (bucket / bytes.max(1.0)).min(1.0);
        let hideable = Exchange { reduce: reduce - last, gather };
        let Exchange { reduce, gather } = self.exposed_exchange(hideable, compute);
        Exchange { reduce: last + reduce, gather }
    }
}

/// Consecutive micro-batches of one stage on a rank: those of a group where stages of a rank take turns by groups.
fn run_of(parallel: &ParallelConfig) -> u32 {
    let takes_turns = parallel.schedule == "interleaved-1f1b";
    if takes_turns { parallel.group.unwrap_or(parallel.pp as u32) } else { 1 }
}

/// Bytes of a gradient's element while ranks reduce it.
pub(super) fn reduced_bytes(zero: u8, platform: &Platform<'_>) -> f64 {
    let recipe = platform.recipe;
    let is_narrow = zero > 1 && platform.stack.traits.zero.scatters_narrow;
    if is_narrow { recipe.parameter.min(recipe.comm_gradient) } else { recipe.comm_gradient }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::{Cluster, EnumSet, Recipe, Stack};

    fn exchange(stack: &Stack, zero: u8, tensors: usize) -> Exchange {
        let cluster = Cluster::find("h100-p5-efa").unwrap();
        let platform = Platform { cluster: &cluster, stack, recipe: &Recipe::bf16() };
        let parallel = ParallelConfig { dp: 64, zero, ..ParallelConfig::default() };
        let elements = Elements::all_trained(SplitByExperts { dense: 1e9, experts: 0.0 });
        Replicas::new(&parallel, 1, &platform).exchange(elements, tensors, Passes { forward: 1.0, backward: 10.0 })
    }

    /// Four of dp and two of tp with the same tokens: one sum of all gradients without ZeRO, a scatter over dp and a slice of it in
    /// ZeRO-1, and what groups of two ranks sum later.
    #[test]
    fn scatters_are_sliced_for_ranks_with_the_same_gradients() {
        let stack = Stack::find("meshwright").unwrap();
        let (cluster, recipe) = (Cluster::find("h100").unwrap(), Recipe::bf16());
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
        let apart = |parallel: ParallelConfig| {
            let elements = SplitByExperts { dense: 0.0, experts: 8.0 };
            Replicas::new(&parallel, 1, &platform).sums_apart(elements) / recipe.gradient
        };
        let config = |dp, tp, zero, sp| ParallelConfig { dp, tp, zero, sp, ..ParallelConfig::default() };
        assert_eq!([0, 1, 2].map(|zero| apart(config(4, 2, zero, false))), [8.0, 2.0 + 1.0, 0.0]);
        assert_eq!([0, 1, 2].map(|zero| apart(config(4, 2, zero, true))), [8.0, 1.0, 0.0]);
        assert_eq!([0, 1, 2].map(|zero| apart(config(1, 4, zero, false))), [0.0, 2.0, 0.0]);
        let groups = |zero| ParallelConfig { shard: Some(2), ..config(4, 2, zero, false) };
        assert_eq!([1, 2].map(|zero| apart(groups(zero))), [4.0 + 2.0 + 2.0, 2.0]);
    }

    /// Groups of 8 micro-batches that run through a stage are scattered together; without interleaving each is scattered.
    #[test]
    fn gradients_of_a_run_are_scattered_together() {
        let stack = Stack::find("llama-2024").unwrap();
        let cluster = Cluster::find("h100").unwrap();
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let run = |schedule: &str, microbatches: u32| {
            let schedule = schedule.to_string();
            let parallel = ParallelConfig { dp: 4, pp: 8, zero: 2, schedule, ..ParallelConfig::default() };
            Replicas::new(&parallel, microbatches, &platform).run
        };
        assert_eq!([run("interleaved-1f1b", 32), run("interleaved-1f1b", 4), run("1f1b", 32)], [8.0, 4.0, 1.0]);
    }

    /// Smaller messages take longer for the same bytes, and none is gathered without ZeRO.
    #[test]
    fn parameters_are_gathered_one_by_one() {
        let mut stack = Stack::find("nanotron-2024").unwrap();
        let gathers = |stack: &Stack| [10, 100, 1000].map(|tensors| exchange(stack, 1, tensors).gather);
        let each = gathers(&stack);
        assert!(each[0] < each[1] && each[1] < each[2], "{each:?}");
        stack.traits.zero.gathers = GatherUpdated::Together;
        let together = gathers(&stack);
        assert!(together[0] == together[2] && together[0] <= each[0], "{together:?}");
        assert_eq!(exchange(&stack, 0, 100).gather, 0.0);
    }

    /// Fewer tensors are larger ones, and so are the buckets that end with them: of a perfect overlap the last one shows.
    #[test]
    fn a_bucket_ends_with_the_tensor_that_fills_it() {
        let mut stack = Stack::find("nanotron-2024").unwrap();
        (stack.fitted.overlap.value, stack.traits.kernels.comm_sms) = (1.0, 0.0);
        let all = |stack: &Stack, tensors| exchange(stack, 0, tensors).reduce;
        assert!(all(&stack, 4) > 2.0 * all(&stack, 1000) && all(&stack, 1000) > 0.0);
        stack.traits.hides = EnumSet::default();
        assert_eq!(all(&stack, 4), all(&stack, 1000));
    }
}
