//! Configuration space: the choices at each level.

use super::divisors::divisors;
use super::{Level, Schedules, SearchNode};
use crate::search::keys::{Decided, decided_by, row};
use compiler::parallel::Pins;
use cost::{Degree, Named, Supports};
use estimator::{OpenOrders, lacks};
use ir::config_key::ConfigKey;
use ir::heads::Heads;
use ir::options::{Offload, ParallelConfig, Recompute};
use std::sync::Arc;
use support::parallel::each;

/// Pipeline order: schedules that differ only in the order of their actions, with their stages per rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Order {
    /// Schedules; the first one saves the fewest activations.
    pub schedules: Schedules,
    /// Stages per rank as written in a configuration; `None` uses the schedule's own number.
    pub vp: Option<u32>,
    /// Micro-batches that go through a chunk before the next one; `None`: the schedule's own number.
    pub group: Option<u32>,
    /// Stages per rank.
    pub chunks: u32,
    /// Total number of stages.
    pub stages: u64,
}

/// Returns whether tp, cp, etp and the micro-batch are powers of two, as in most runs.
pub fn has_usual_sizes(parallel: &ParallelConfig) -> bool {
    let ParallelConfig { tp, cp, etp, mbs, .. } = *parallel;
    [tp, cp, etp, mbs].into_iter().all(u64::is_power_of_two)
}

/// Pinned options.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pin {
    /// Values of the pinned options.
    pub parallel: ParallelConfig,
    /// Keys of the pinned options; all others are open.
    pub keys: Vec<ConfigKey>,
    /// Sets and ranges of open options.
    pub limits: Pins,
}

/// Orders for a number of ranks and a number of micro-batches.
pub type Orders = Box<dyn Fn(u64, u64) -> Arc<[Order]> + Send + Sync>;

/// Returns whether to stop and return the current result.
pub type Stop = Box<dyn Fn() -> bool + Send + Sync>;

/// Largest number of degrees that are listed together with expert degrees; above it expert degrees are split per
/// node.
const LISTED: usize = 1 << 17;

/// Number of device counts whose degrees are listed at once.
const FEW: u64 = 16;

/// Returns whether the decided options of a configuration can be supported.
pub type Supported = Box<dyn Fn(Decided, &ParallelConfig) -> bool + Send + Sync>;

/// Communication that a stack overlaps with compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hides {
    /// Tensor-parallel communication.
    pub tp: Overlap,
    /// Data-parallel communication.
    pub dp: Overlap,
}

/// Overlap of a kind of communication with compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overlap {
    /// The stack does not overlap it.
    #[default]
    Never,
    /// The stack overlaps it where a configuration asks for it.
    IfAsked,
    /// The stack overlaps it unless a configuration forbids it.
    ByDefault,
    /// The stack overlaps it in all configurations.
    Always,
}

impl Overlap {
    /// Overlap of a stack that does so by default, or never.
    pub fn of(by_default: bool) -> Overlap {
        if by_default { Overlap::ByDefault } else { Overlap::Never }
    }

    /// Values of the key, the fastest first, if there is communication.
    pub fn values(self, communicates: bool) -> &'static [Option<bool>] {
        match self {
            Overlap::IfAsked if communicates => &[Some(true), None],
            Overlap::ByDefault if communicates => &[None, Some(false)],
            _ => &[None],
        }
    }
}

/// Recomputation that a stack supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recomputable {
    /// Parts of layers.
    pub parts: bool,
    /// All layers.
    pub whole: bool,
    /// Some layers of each stage.
    pub some: bool,
}

/// Choices that a model and a job leave open.
pub struct Space {
    /// Least and largest number of devices.
    pub devices: [u64; 2],
    /// Sequences per step.
    pub global_batch: u64,
    /// Sizes of dims that tp shards, heads excepted, and whether each is indivisible.
    pub tensor: Vec<(u64, bool)>,
    /// Heads of attention, which tp shards, and Ulysses also over cp; and heads of scans.
    pub heads: Vec<Heads>,
    /// Ranks that share a sequence must gather keys, since queries choose them.
    pub gathers_keys: bool,
    /// Tokens per sequence, or of it the most parts that ranks can have.
    pub tokens: u64,
    /// The least tokens of the equal blocks in which ranks share a sequence, if states go from one to the next.
    pub least_block: Option<u64>,
    /// Number of experts per layer, and the hidden size of one expert; `None` for a dense model.
    pub experts: Option<[u64; 2]>,
    /// Number of layers, and of block instances before the first layer.
    pub layers: [u64; 2],
    /// Devices per node.
    pub node: u64,
    /// True if as many saved activations are offloaded as must be, unless pinned.
    pub offload: bool,
    /// True if optimizer states are offloaded, unless pinned.
    pub offload_optimizer: bool,
    /// Communication that the stack overlaps with compute; only then is there a choice.
    pub hides: Hides,
    /// Micro-batch size stated by the model.
    pub batch: Option<u64>,
    /// Bounds on all orders.
    pub open_orders: OpenOrders,
    /// Pipeline orders.
    pub orders: Orders,
    /// Schedules that most runs use.
    pub common_schedules: Vec<&'static str>,
    /// Options that the stack supports, for those that are not pinned.
    pub supports: Supports,
    /// Recomputation that it supports.
    pub recomputable: Recomputable,
    /// True if degrees of tp, cp and etp, and micro-batches, may have an odd factor.
    pub odd: bool,
    /// Rules on combinations of options.
    pub supported: Supported,
    /// Pinned options.
    pub pin: Pin,
    /// Stop condition, checked while nodes are listed, counted and searched; a stopped listing is incomplete.
    pub stop: Stop,
}

impl Recomputable {
    /// Recomputation that a stack supports.
    pub fn of(supports: &Supports) -> Recomputable {
        Recomputable {
            parts: supports.recomputes_parts(),
            whole: supports.recomputes("full"),
            some: supports.recomputes("full:n"),
        }
    }
}

impl Pin {
    /// Returns whether a key is pinned.
    pub fn has(&self, key: ConfigKey) -> bool {
        self.keys.contains(&key)
    }

    /// The pinned value, or the open values.
    pub fn or<T: Clone>(&self, key: ConfigKey, given: &T, open: Vec<T>) -> Vec<T> {
        if self.has(key) { vec![given.clone()] } else { open }
    }

    /// Returns whether the values of these keys are in their sets and ranges.
    fn allows(&self, keys: &[ConfigKey], parallel: &ParallelConfig) -> bool {
        keys.iter().all(|&key| self.limits.allows(key, parallel))
    }

    /// Returns whether one of these keys has a set or a range. Values are looked at only then, since most requests have none.
    fn limits(&self, keys: &[ConfigKey]) -> bool {
        keys.iter().any(|&key| self.limits.is_limited(key))
    }
}

impl Space {
    /// Root nodes of the search: degrees or, for an open device count, the entire space.
    pub fn roots(&self) -> Vec<SearchNode> {
        let [least, most] = self.devices;
        if least == most {
            return self.degrees_on(least);
        }
        let most = most.min(self.most_devices());
        if least > most { Vec::new() } else { vec![self.on_devices([least, most])] }
    }

    /// The node of all configurations on a number of devices in a range.
    pub fn on_devices(&self, devices: [u64; 2]) -> SearchNode {
        SearchNode { parallel: self.start(), level: Level::Devices, devices, schedules: Arc::from([]) }
    }

    /// Number of devices above the largest useful degrees.
    fn most_devices(&self) -> u64 {
        let given = &self.pin.parallel;
        let of = |key: ConfigKey, pinned: u64, most: u64| if self.pin.has(key) { pinned } else { most };
        let dp = of(ConfigKey::Dp, given.dp, self.global_batch);
        let heads = self.heads.iter().map(|heads| heads.keys.saturating_mul(heads.queries));
        let sizes = self.tensor.iter().map(|(size, _)| *size).chain(heads);
        let tp = of(ConfigKey::Tp, given.tp, sizes.min().unwrap_or(u64::MAX));
        let pp = of(ConfigKey::Pp, given.pp, self.layers[0].max(1));
        let cp = of(ConfigKey::Cp, given.cp, self.tokens);
        dp.saturating_mul(tp).saturating_mul(pp).saturating_mul(cp)
    }

    /// The two halves of a range of device counts; for a small range, the degrees.
    fn halves(&self, [least, most]: [u64; 2]) -> Vec<SearchNode> {
        if most - least < FEW {
            return (least..=most).flat_map(|devices| self.degrees_on(devices)).collect();
        }
        let middle = least + (most - least) / 2;
        [[least, middle], [middle + 1, most]].map(|half| self.on_devices(half)).to_vec()
    }

    /// Degree nodes for a number of devices, including expert degrees if there are not too many.
    pub(super) fn degrees_on(&self, devices: u64) -> Vec<SearchNode> {
        let tps = self.degrees(ConfigKey::Tp, self.pin.parallel.tp, devices);
        let some: Vec<Vec<ParallelConfig>> = each(&tps, |&tp| self.shares_of(devices, tp));
        let pairs = if self.experts.is_some() {
            let decided = Decided::unchecked(decided_by(&[Level::Degrees, Level::Axes]));
            self.experts_of(&ParallelConfig { dp: devices, ..self.start() }, decided).count()
        } else {
            1
        };
        if some.iter().map(Vec::len).sum::<usize>().saturating_mul(pairs) > LISTED {
            let open = |parallel| self.node(parallel, Level::Degrees);
            return some.into_iter().flatten().map(open).collect();
        }
        let all = |configs: &Vec<ParallelConfig>| -> Vec<SearchNode> {
            let mut nodes: Vec<SearchNode> = configs.iter().flat_map(|parallel| self.with_experts(parallel)).collect();
            // Blocks do not depend on pp and dp. Configurations that differ only in these are adjacent, so that one
            // core evaluates all of them.
            nodes.sort_by_key(|SearchNode { parallel, .. }| (parallel.cp, parallel.ep, parallel.etp));
            nodes
        };
        some.iter().flat_map(all).collect()
    }

    /// Node with only degrees decided.
    fn node(&self, parallel: ParallelConfig, level: Level) -> SearchNode {
        let devices = [parallel.devices(); 2];
        SearchNode { parallel, level, devices, schedules: Arc::from([]) }
    }

    /// True if this number of ranks can share a sequence.
    fn shares_sequences(&self, cp: u64) -> bool {
        match self.least_block.filter(|_| cp > 1) {
            Some(least) => self.tokens.is_multiple_of(cp) && self.tokens / cp >= least,
            None => cp <= self.tokens,
        }
    }

    /// Degrees, without expert degrees, for a number of devices and a tp degree.
    fn shares_of(&self, devices: u64, tp: u64) -> Vec<ParallelConfig> {
        let mut shares = Vec::new();
        let divides =
            |&(size, indivisible): &(u64, bool)| if indivisible { size.is_multiple_of(tp) } else { tp <= size };
        let divides_heads = |heads: &Heads| heads.sharing(tp).is_some();
        if tp == 0 || !self.tensor.iter().all(divides) || !self.heads.iter().all(divides_heads) {
            return shares;
        }
        let cps = self.degrees(ConfigKey::Cp, self.pin.parallel.cp, devices).into_iter();
        let pps = self.degrees(ConfigKey::Pp, self.pin.parallel.pp, devices).into_iter();
        let pps: Vec<u64> = pps.filter(|pp| *pp <= self.layers[0].max(1)).collect();
        for cp in cps.filter(|&cp| self.shares_sequences(cp)) {
            if (self.stop)() {
                return shares;
            }
            for &pp in &pps {
                let Some(used) = tp.checked_mul(pp).and_then(|used| used.checked_mul(cp)) else { continue };
                let dp = if devices.is_multiple_of(used) { devices / used } else { continue };
                let is_pinned_so = !self.pin.has(ConfigKey::Dp) || self.pin.parallel.dp == dp;
                if self.global_batch.is_multiple_of(dp) && is_pinned_so {
                    let parallel = ParallelConfig { tp, pp, cp, dp, ..self.start() };
                    let is_allowed =
                        self.pin.allows(&[ConfigKey::Dp, ConfigKey::Tp, ConfigKey::Pp, ConfigKey::Cp], &parallel)
                            && (self.supported)(Decided::last_of(&[Level::Degrees]), &parallel);
                    shares.extend(is_allowed.then_some(parallel));
                }
            }
        }
        shares
    }

    /// Possible values of a degree for a number of ranks.
    fn degrees(&self, key: ConfigKey, given: u64, ranks: u64) -> Vec<u64> {
        let mut open = if self.may_exceed_one(key) { divisors(ranks) } else { vec![1] };
        // Numbers of layers and of experts have odd factors; heads, widths and sequences hardly ever.
        if !matches!(key, ConfigKey::Pp | ConfigKey::Ep) {
            open.retain(|degree| self.has_size(*degree));
        }
        self.pin.or(key, &given, open)
    }

    /// Returns whether the stack supports a degree above 1.
    fn may_exceed_one(&self, key: ConfigKey) -> bool {
        Degree::ALL.iter().filter(|degree| degree.key() == key).all(|degree| self.supports.degree(*degree))
    }

    /// Returns whether a degree or a micro-batch of this size is of use: frameworks and kernels are tried on powers of two.
    fn has_size(&self, size: u64) -> bool {
        self.odd || size.is_power_of_two()
    }

    /// ZeRO stage that most runs with these degrees use.
    pub(crate) fn usual_zero(&self, parallel: &ParallelConfig) -> u8 {
        usual_zero(&self.supports, parallel)
    }

    /// Configuration with only the pins decided.
    fn start(&self) -> ParallelConfig {
        let mut parallel = self.pin.parallel.clone();
        parallel.recompute = Recompute::None;
        if !self.pin.has(ConfigKey::Offload) {
            parallel.offload = Offload::None;
        }
        if !self.pin.has(ConfigKey::OffloadOptimizer) {
            parallel.offload_optimizer = self.offload_optimizer;
        }
        parallel
    }

    /// Extends degree nodes by expert degrees.
    fn with_experts(&self, parallel: &ParallelConfig) -> impl Iterator<Item = SearchNode> + use<'_> {
        let decided = Decided::last_of(&[Level::Degrees, Level::Axes]);
        self.experts_of(parallel, decided).map(|parallel| self.node(parallel, Level::Axes))
    }

    /// Extends a configuration by expert degrees that rules allow.
    fn experts_of(
        &self,
        parallel: &ParallelConfig,
        decided: Decided,
    ) -> impl Iterator<Item = ParallelConfig> + use<'_> {
        let ParallelConfig { dp, tp, cp, .. } = *parallel;
        let ranks = if self.experts.is_some() { dp * cp * tp } else { 1 };
        let [number, width] = self.experts.unwrap_or([1, 1]);
        let eps = self.degrees(ConfigKey::Ep, self.pin.parallel.ep, ranks).into_iter();
        let etps = self.degrees(ConfigKey::Etp, self.pin.parallel.etp, ranks).into_iter();
        let etps: Vec<u64> = etps.filter(|etp| *etp <= width).collect();
        let pairs = eps
            .filter(move |ep| number.is_multiple_of(*ep))
            .flat_map(move |ep| etps.clone().into_iter().map(move |etp| (ep, etp)));
        let parallel = parallel.clone();
        pairs
            .filter(move |(ep, etp)| ep.checked_mul(*etp).is_some_and(|cut| ranks.is_multiple_of(cut)))
            .map(move |(ep, etp)| ParallelConfig { ep, etp, ..parallel.clone() })
            .filter(|parallel| parallel.fold().is_ok() && self.pin.allows(&[ConfigKey::Ep, ConfigKey::Etp], parallel))
            .filter(move |parallel| (self.supported)(decided, parallel))
    }

    /// Parts of a node, one level deeper, that can be supported; empty for a single configuration.
    pub fn parts(&self, node: &SearchNode) -> Vec<SearchNode> {
        let mut parts = self.all_parts(node);
        parts.retain(|part| self.supports(part));
        parts
    }

    /// Returns whether a node's decided options can be supported.
    pub(super) fn supports(&self, node: &SearchNode) -> bool {
        (self.supported)(Decided::up_to(node.level), &node.parallel)
    }

    fn all_parts(&self, node: &SearchNode) -> Vec<SearchNode> {
        match node.level {
            Level::Devices => self.halves(node.devices),
            Level::Degrees => self.with_experts(&node.parallel).collect(),
            Level::Axes => self
                .sequence_shardings(&node.parallel)
                .into_iter()
                .map(|way| node.part(way, Level::SequenceSharding))
                .collect(),
            Level::SequenceSharding => self.batches(node),
            Level::Batch => self.pipelines(node),
            Level::Pipeline => self.with_boundaries(node),
            Level::Stages => self.shards(node),
            Level::Shards => schedules(node),
            Level::Schedule => self.with_offload(node),
            Level::Offload => self.recomputations(node),
            Level::Layers => self.layers_again(node),
            Level::Complete => Vec::new(),
        }
    }

    fn batches(&self, node: &SearchNode) -> Vec<SearchNode> {
        let with = |mbs| node.part(ParallelConfig { mbs, ..node.parallel.clone() }, Level::Batch);
        self.sizes(&node.parallel).map(with).collect()
    }

    /// Possible micro-batch sizes.
    pub fn sizes(&self, parallel: &ParallelConfig) -> impl Iterator<Item = u64> + use<'_> {
        let local = self.global_batch / parallel.dp;
        let open = match self.batch {
            Some(batch) => vec![batch],
            None => divisors(local).into_iter().filter(|size| self.has_size(*size)).collect(),
        };
        let sizes = self.pin.or(ConfigKey::Mbs, &self.pin.parallel.mbs, open);
        let parallel = parallel.clone();
        let decided = Decided::last_of(&[Level::Degrees, Level::Axes, Level::Batch]);
        sizes.into_iter().filter(move |&mbs| {
            let with = ParallelConfig { mbs, ..parallel.clone() };
            local.is_multiple_of(mbs)
                && (!self.pin.limits(&[ConfigKey::Mbs]) || self.pin.allows(&[ConfigKey::Mbs], &with))
                && (self.supported)(decided, &with)
        })
    }

    /// Configurations with each option of the level [`Level::SequenceSharding`].
    pub fn sequence_shardings(&self, parallel: &ParallelConfig) -> Vec<ParallelConfig> {
        self.options(parallel, Level::SequenceSharding)
    }

    /// Parts with each ZeRO stage, sharding group size, frequency of gathers and overlap.
    pub fn shards(&self, node: &SearchNode) -> Vec<SearchNode> {
        let options = self.options(&node.parallel, Level::Shards).into_iter();
        options.map(|parallel| node.part(parallel, Level::Shards)).collect()
    }

    /// Configurations with each value of the keys of a level, if the stack supports them with these degrees.
    fn options(&self, parallel: &ParallelConfig, level: Level) -> Vec<ParallelConfig> {
        let mut options = vec![parallel.clone()];
        for key in ConfigKey::ALL.into_iter().filter(|&key| row(key).level == level) {
            let Some(open) = row(key).open else { continue };
            if self.pin.has(key) {
                options.iter_mut().for_each(|parallel| (row(key).copy)(parallel, &self.pin.parallel));
                continue;
            }
            options = options.iter().flat_map(|parallel| open(self, parallel)).collect();
            options.retain(|parallel| lacks(key, parallel, &self.supports).is_none());
            options.retain(|parallel| self.pin.allows(&[key], parallel));
        }
        let decided = Decided::last_of(&[Level::Degrees, Level::Axes, level]);
        options.retain(|parallel| parallel.has_even_groups() && (self.supported)(decided, parallel));
        options
    }

    /// Pipeline orders that the pins allow.
    pub(super) fn orders_of(&self, pp: u64, microbatches: u64) -> Vec<Order> {
        let given = &self.pin.parallel;
        let is_allowed = |order: &&Order| {
            (!self.pin.has(ConfigKey::Schedule) || order.schedules.contains(&given.schedule.as_str()))
                && (!self.pin.has(ConfigKey::Vp) || given.vp == Some(order.chunks))
                && order.stages <= (self.layers[0] + 2 * self.layers[1]).max(1)
        };
        let decided = Decided::unchecked([ConfigKey::Pp, ConfigKey::Vp, ConfigKey::Schedule].into_iter().collect());
        let is_supported = |order: &&Order| {
            let (schedule, vp) = (order.schedules[0].to_string(), order.vp);
            (self.supported)(
                decided,
                &ParallelConfig { pp, schedule, vp, group: order.group, ..ParallelConfig::default() },
            )
        };
        let is_limited = self.pin.limits(&[ConfigKey::Schedule, ConfigKey::Vp]);
        let within_limits = |order: &Order| {
            if !is_limited {
                return Some(order.clone());
            }
            let with = |schedule: &str| ParallelConfig {
                schedule: schedule.to_string(),
                vp: Some(order.chunks),
                ..ParallelConfig::default()
            };
            let is_in = |name: &&&str| self.pin.allows(&[ConfigKey::Schedule, ConfigKey::Vp], &with(name));
            let schedules: Schedules = order.schedules.iter().filter(is_in).copied().collect();
            (!schedules.is_empty()).then(|| Order { schedules, ..order.clone() })
        };
        let orders = (self.orders)(pp, microbatches);
        orders.iter().filter(is_allowed).filter(is_supported).filter_map(within_limits).collect()
    }

    fn pipelines(&self, node: &SearchNode) -> Vec<SearchNode> {
        let parallel = &node.parallel;
        let microbatches = self.global_batch / (parallel.dp * parallel.mbs);
        let mut nodes = Vec::new();
        for order in self.orders_of(parallel.pp, microbatches) {
            let (schedule, vp) = (order.schedules[0].to_string(), order.vp);
            let group = parallel.group.or(order.group);
            let parallel = ParallelConfig { schedule, vp, group, ..parallel.clone() };
            let (level, devices, schedules) = (Level::Pipeline, node.devices, Arc::clone(&order.schedules));
            nodes.push(SearchNode { parallel, level, devices, schedules });
        }
        nodes
    }

    /// Options for activation offload.
    pub fn offload_options(&self) -> Vec<Offload> {
        let is_in = |offload: &Offload| {
            self.pin.allows(&[ConfigKey::Offload], &ParallelConfig { offload: *offload, ..ParallelConfig::default() })
        };
        let mut options = [Offload::None, Offload::Auto, Offload::All(None)];
        if self.offload {
            options.rotate_left(1);
        }
        let open = options.into_iter().find(is_in).into_iter().collect();
        self.pin.or(ConfigKey::Offload, &self.pin.parallel.offload, open)
    }

    fn with_offload(&self, node: &SearchNode) -> Vec<SearchNode> {
        let with = |offload| ParallelConfig { offload, ..node.parallel.clone() };
        self.offload_options().into_iter().map(|offload| node.part(with(offload), Level::Offload)).collect()
    }

    /// Returns whether a node disables an overlap that the stack has, although no pin asks for it and it saves nothing: no memory and, of
    /// tensor-parallel communication, no time. Gradients are reduced in smaller messages with overlap, so that time may differ.
    pub(super) fn wastes_overlap(&self, node: &SearchNode, by_memory: bool) -> bool {
        let ParallelConfig { tp_overlap, dp_overlap, .. } = node.parallel;
        self.disables(ConfigKey::TpOverlap, tp_overlap) || by_memory && self.disables(ConfigKey::DpOverlap, dp_overlap)
    }

    fn disables(&self, key: ConfigKey, overlap: Option<bool>) -> bool {
        overlap == Some(false) && !self.pin.has(key)
    }

    /// Layers of the longest stage, if the stages are as equal as possible.
    pub fn longest(&self, parallel: &ParallelConfig) -> u64 {
        let chunks = u64::from(parallel.vp.unwrap_or(1));
        self.layers[0].div_ceil(parallel.pp * chunks)
    }

    fn recomputations(&self, node: &SearchNode) -> Vec<SearchNode> {
        let with = |recompute, level| node.part(ParallelConfig { recompute, ..node.parallel.clone() }, level);
        if let Some(values) = self.pin.limits.set(ConfigKey::Recompute) {
            return values.iter().flat_map(|text| text.parse()).map(|way| with(way, Level::Complete)).collect();
        }
        match (self.pin.has(ConfigKey::Recompute), &self.pin.parallel.recompute) {
            // `recompute=auto` follows from the memory budget: the oracle costs the fastest set of values that fits, or
            // none. The set includes all values that module recomputation would select.
            (false, _) | (true, Recompute::Auto) if self.supports.policies.is_some() => {
                let policies = self.supports.policies.iter().flatten();
                policies.map(|policy| with(policy.clone(), Level::Complete)).collect()
            }
            (false, _) | (true, Recompute::Auto) => {
                let Recomputable { parts, whole, some } = self.recomputable;
                let mut nodes = vec![with(Recompute::None, Level::Complete)];
                nodes.extend(parts.then(|| with(Recompute::Auto, Level::Complete)));
                nodes.extend(match (whole, some) {
                    (_, true) => Some(with(Recompute::Full(Some(1)), Level::Layers)),
                    (true, false) => Some(with(Recompute::Full(None), Level::Complete)),
                    (false, false) => None,
                });
                nodes
            }
            (true, given) => vec![with(given.clone(), Level::Complete)],
        }
    }

    fn layers_again(&self, node: &SearchNode) -> Vec<SearchNode> {
        let some = (1..self.longest(&node.parallel)).map(|layers| Recompute::Full(Some(layers as u32)));
        some.chain([Recompute::Full(None)])
            .map(|recompute| node.part(ParallelConfig { recompute, ..node.parallel.clone() }, Level::Complete))
            .collect()
    }
}

/// ZeRO stage that most runs with these degrees use on a stack.
pub(crate) fn usual_zero(supports: &Supports, parallel: &ParallelConfig) -> u8 {
    match parallel.dp * parallel.cp {
        1 => 0,
        _ if supports.zero(1) => 1,
        _ => (0..=3).rev().find(|stage| supports.zero(*stage)).unwrap_or(0),
    }
}

fn schedules(node: &SearchNode) -> Vec<SearchNode> {
    let of = |name: &&str| {
        node.part(ParallelConfig { schedule: name.to_string(), ..node.parallel.clone() }, Level::Schedule)
    };
    node.schedules.iter().map(of).collect()
}
