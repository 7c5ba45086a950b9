//! The space of layouts: what there is to choose at each level.

use super::cores::each;
use super::divisors::divisors;
use super::{Family, Level, Schedules};
use ir::goal::{CpKind, Layout, Recompute};
use std::sync::Arc;

/// A way to run a pipeline: schedules that differ only in the order of their actions, and their stages per rank; none: as the
/// schedule has it by itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Order {
    /// The schedules; first the one that keeps least.
    pub schedules: Schedules,
    /// Stages per rank, as a layout says it.
    pub vp: Option<u32>,
    /// Stages per rank.
    pub chunks: u32,
    /// Stages in all.
    pub stages: u64,
}

/// What of a layout may be chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Choices {
    /// Whether tp, cp, pp, ep and etp may be more than 1.
    pub degrees: [bool; 5],
    /// Whether tensor-parallel ranks may share sequences.
    pub sp: bool,
    /// Kinds of context parallelism.
    pub cp_kinds: Vec<CpKind>,
    /// ZeRO stages where there are several data-parallel ranks, ascending.
    pub zero: Vec<u8>,
    /// Whether groups of data-parallel ranks may shard.
    pub shard: bool,
    /// Whether stages may begin where the layout says.
    pub stages: bool,
    /// Whether parts of layers may be recomputed, all layers, and some layers of each stage.
    pub recompute: [bool; 3],
}

impl Default for Choices {
    /// All.
    fn default() -> Choices {
        Choices {
            degrees: [true; 5],
            sp: true,
            cp_kinds: vec![CpKind::AllGather, CpKind::Ring, CpKind::Ulysses],
            zero: vec![0, 1, 2, 3],
            shard: true,
            stages: true,
            recompute: [true; 3],
        }
    }
}

/// What a layout must have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pin {
    /// The values.
    pub layout: Layout,
    /// The keys that are given; all others are open.
    pub keys: Vec<String>,
}

/// The orders of so many ranks and micro-batches.
pub type Orders = Box<dyn Fn(u64, u64) -> Arc<[Order]> + Send + Sync>;

/// Whether to stop and answer with what there is.
pub type Stop = Box<dyn Fn() -> bool + Send + Sync>;

/// Degrees that are listed at once with those of experts; where there are more, experts are shared out family by family.
const LISTED: usize = 1 << 17;

/// Numbers of devices whose degrees are listed at once.
const FEW: u64 = 16;

/// What a model and a job leave to choose.
pub struct Space {
    /// The least and the most devices that there may be.
    pub devices: [u64; 2],
    /// Sequences per step.
    pub global_batch: u64,
    /// Sizes of dims that tp cuts, and whether each must be cut evenly.
    pub tensor: Vec<(u64, bool)>,
    /// Heads of keys: Ulysses cuts them over cp beside tp.
    pub heads: u64,
    /// Tokens of a sequence.
    pub tokens: u64,
    /// Experts of a layer, and the size between the matrices of one; none: the model has none.
    pub experts: Option<[u64; 2]>,
    /// Layers, and runs before the first of them.
    pub layers: [u64; 2],
    /// Devices of a node.
    pub node: u64,
    /// Whether what forwards keep is offloaded, where that is not pinned.
    pub offload: bool,
    /// Whether the stack hides tensor-parallel and data-parallel communication: only then it can be told not to.
    pub hides: [bool; 2],
    /// The micro-batch of a model that states its own.
    pub batch: Option<u64>,
    /// Slices that an order cuts a sequence into at most.
    pub slices: u32,
    /// How pipelines can be run.
    pub orders: Orders,
    /// What may be chosen where it is not pinned.
    pub choices: Choices,
    /// What must be.
    pub pin: Pin,
    /// Asked while families are listed, counted and searched: what was listed up to a stop is not all.
    pub stop: Stop,
}

impl Pin {
    /// Whether a key is given.
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|given| given == key)
    }

    /// The given value, or those that are open.
    pub fn or<T: Clone>(&self, key: &str, given: &T, open: Vec<T>) -> Vec<T> {
        if self.has(key) { vec![given.clone()] } else { open }
    }
}

impl Space {
    /// The families that a search begins with: degrees, or, where the number of devices is open, all of it.
    pub fn roots(&self) -> Vec<Family> {
        let [least, most] = self.devices;
        if least == most {
            return self.degrees_on(least);
        }
        let most = most.min(self.most_devices());
        let of = |devices| Family { layout: self.start(), level: Level::Devices, devices, schedules: Arc::from([]) };
        if least > most { Vec::new() } else { vec![of([least, most])] }
    }

    /// More devices than the largest degrees share.
    fn most_devices(&self) -> u64 {
        let given = &self.pin.layout;
        let of = |key: &str, pinned: u64, most: u64| if self.pin.has(key) { pinned } else { most };
        let dp = of("dp", given.dp, self.global_batch);
        let tp = of("tp", given.tp, self.tensor.iter().map(|(size, _)| *size).min().unwrap_or(u64::MAX));
        let pp = of("pp", given.pp, self.layers[0].max(1));
        let cp = of("cp", given.cp, self.tokens);
        dp.saturating_mul(tp).saturating_mul(pp).saturating_mul(cp)
    }

    /// The two halves of some numbers of devices; of a few the degrees.
    fn halves(&self, [least, most]: [u64; 2]) -> Vec<Family> {
        if most - least < FEW {
            return (least..=most).flat_map(|devices| self.degrees_on(devices)).collect();
        }
        let middle = least + (most - least) / 2;
        let half = |devices| Family { layout: self.start(), level: Level::Devices, devices, schedules: Arc::from([]) };
        vec![half([least, middle]), half([middle + 1, most])]
    }

    /// The families of degrees of so many devices: with the degrees of experts, where these are not too many.
    pub(super) fn degrees_on(&self, devices: u64) -> Vec<Family> {
        let tps = self.degrees(0, "tp", self.pin.layout.tp, devices);
        let some: Vec<Vec<Layout>> = each(&tps, |&tp| self.shares_of(devices, tp));
        let pairs =
            if self.experts.is_some() { self.experts_of(&Layout { dp: devices, ..self.start() }).count() } else { 1 };
        if some.iter().map(Vec::len).sum::<usize>().saturating_mul(pairs) > LISTED {
            let open = |layout| self.family(layout, Level::Degrees);
            return some.into_iter().flatten().map(open).collect();
        }
        let all = |layouts: &Vec<Layout>| -> Vec<Family> {
            let mut families: Vec<Family> = layouts.iter().flat_map(|layout| self.with_experts(layout)).collect();
            // Blocks see nothing of pp and dp: those that differ in these alone follow each other, so that one core asks for all.
            families.sort_by_key(|Family { layout, .. }| (layout.cp, layout.ep, layout.etp));
            families
        };
        some.iter().flat_map(all).collect()
    }

    /// A family of which no more than degrees are decided.
    fn family(&self, layout: Layout, level: Level) -> Family {
        let devices = [layout.devices(); 2];
        Family { layout, level, devices, schedules: Arc::from([]) }
    }

    /// The degrees of so many devices with one of tp that can be, experts aside.
    fn shares_of(&self, devices: u64, tp: u64) -> Vec<Layout> {
        let mut shares = Vec::new();
        let divides =
            |&(size, indivisible): &(u64, bool)| if indivisible { size.is_multiple_of(tp) } else { tp <= size };
        if tp == 0 || !self.tensor.iter().all(divides) {
            return shares;
        }
        let cps = self.degrees(1, "cp", self.pin.layout.cp, devices).into_iter();
        let pps = self.degrees(2, "pp", self.pin.layout.pp, devices).into_iter();
        let pps: Vec<u64> = pps.filter(|pp| *pp <= self.layers[0].max(1)).collect();
        for cp in cps.filter(|cp| *cp <= self.tokens) {
            if (self.stop)() {
                return shares;
            }
            for &pp in &pps {
                let Some(used) = tp.checked_mul(pp).and_then(|used| used.checked_mul(cp)) else { continue };
                let dp = if devices.is_multiple_of(used) { devices / used } else { continue };
                let is_pinned_so = !self.pin.has("dp") || self.pin.layout.dp == dp;
                if self.global_batch.is_multiple_of(dp) && is_pinned_so {
                    shares.push(Layout { tp, pp, cp, dp, ..self.start() });
                }
            }
        }
        shares
    }

    /// The values that a degree may have on so many ranks.
    fn degrees(&self, place: usize, key: &str, given: u64, ranks: u64) -> Vec<u64> {
        self.pin.or(key, &given, if self.choices.degrees[place] { divisors(ranks) } else { vec![1] })
    }

    /// The ZeRO stage that most runs have.
    pub(super) fn usual_zero(&self, layout: &Layout) -> u8 {
        let stages = &self.choices.zero;
        match layout.dp * layout.cp {
            1 => 0,
            _ if stages.contains(&1) => 1,
            _ => stages.last().copied().unwrap_or(0),
        }
    }

    /// A layout of which nothing but the pins is decided.
    fn start(&self) -> Layout {
        let mut layout = self.pin.layout.clone();
        layout.recompute = Recompute::None;
        if !self.pin.has("offload") {
            layout.offload = false;
        }
        layout
    }

    /// The families of degrees with those of experts.
    fn with_experts(&self, layout: &Layout) -> impl Iterator<Item = Family> + use<'_> {
        self.experts_of(layout).map(|layout| self.family(layout, Level::Axes))
    }

    /// The layout with the degrees of experts.
    fn experts_of(&self, layout: &Layout) -> impl Iterator<Item = Layout> + use<> {
        let Layout { dp, tp, cp, .. } = *layout;
        let ranks = if self.experts.is_some() { dp * cp * tp } else { 1 };
        let [number, width] = self.experts.unwrap_or([1, 1]);
        let eps = self.degrees(3, "ep", self.pin.layout.ep, ranks).into_iter();
        let etps = self.degrees(4, "etp", self.pin.layout.etp, ranks).into_iter();
        let etps: Vec<u64> = etps.filter(|etp| *etp <= width).collect();
        let pairs = eps
            .filter(move |ep| number.is_multiple_of(*ep))
            .flat_map(move |ep| etps.clone().into_iter().map(move |etp| (ep, etp)));
        let layout = layout.clone();
        pairs
            .filter(move |(ep, etp)| ep.checked_mul(*etp).is_some_and(|cut| ranks.is_multiple_of(cut)))
            .map(move |(ep, etp)| Layout { ep, etp, ..layout.clone() })
            .filter(|layout| layout.fold().is_ok())
    }

    /// What a family is made of, one level further; empty for a single layout.
    pub fn parts(&self, family: &Family) -> Vec<Family> {
        match family.level {
            Level::Devices => self.halves(family.devices),
            Level::Degrees => self.with_experts(&family.layout).collect(),
            Level::Axes => self.ways(&family.layout).into_iter().map(|way| family.part(way, Level::Ways)).collect(),
            Level::Ways => self.batches(family),
            Level::Batch => self.pipelines(family),
            Level::Pipeline => self.shards(family),
            Level::Shards => schedules(family),
            Level::Schedule => self.with_hosts(family),
            Level::Host => self.recomputations(family),
            Level::Layers => self.layers_again(family),
            Level::One => Vec::new(),
        }
    }

    fn batches(&self, family: &Family) -> Vec<Family> {
        let with = |mbs| family.part(Layout { mbs, ..family.layout.clone() }, Level::Batch);
        self.sizes(&family.layout).map(with).collect()
    }

    /// Sizes that micro-batches may have.
    pub fn sizes(&self, layout: &Layout) -> impl Iterator<Item = u64> + use<> {
        let local = self.global_batch / layout.dp;
        let open = match self.batch {
            Some(batch) => vec![batch],
            None => divisors(local),
        };
        let sizes = self.pin.or("mbs", &self.pin.layout.mbs, open);
        sizes.into_iter().filter(move |mbs| local.is_multiple_of(*mbs))
    }

    /// The layout in each way that ranks can share a sequence.
    pub fn ways(&self, layout: &Layout) -> Vec<Layout> {
        let given = &self.pin.layout;
        let sps = self.pin.or(
            "sp",
            &given.sp,
            if layout.tp > 1 && self.choices.sp { vec![false, true] } else { vec![false] },
        );
        let kinds = self.pin.or("cp_kind", &given.cp_kind, self.context(layout));
        let overlaps = self.overlaps("tp_overlap", given.tp_overlap, self.hides[0] && layout.tp > 1);
        let mut ways = Vec::new();
        for &sp in &sps {
            for &cp_kind in &kinds {
                let with = |&tp_overlap| Layout { sp, cp_kind, tp_overlap, ..layout.clone() };
                ways.extend(overlaps.iter().map(with));
            }
        }
        ways
    }

    /// The kinds of context parallelism that a layout may have.
    fn context(&self, layout: &Layout) -> Vec<CpKind> {
        if layout.cp == 1 {
            return vec![CpKind::default()];
        }
        let by_heads = self.heads.is_multiple_of(layout.cp * layout.tp);
        let kinds = self.choices.cp_kinds.iter().filter(|kind| by_heads || **kind != CpKind::Ulysses);
        kinds.copied().collect()
    }

    /// With each ZeRO stage, each number of ranks that shard, and each overlap.
    pub fn shards(&self, family: &Family) -> Vec<Family> {
        let layout = &family.layout;
        let replicas = layout.dp * layout.cp;
        let stages = if replicas > 1 { self.choices.zero.clone() } else { vec![0] };
        let near = (self.node / layout.tp.min(self.node)).max(1);
        let mut groups = vec![None];
        if self.choices.shard && near > 1 && near < replicas && replicas.is_multiple_of(near) {
            groups.push(Some(near));
        }
        let (zeros, groups) =
            (self.pin.or("zero", &self.pin.layout.zero, stages), self.pin.or("shard", &self.pin.layout.shard, groups));
        let overlaps = self.overlaps("dp_overlap", self.pin.layout.dp_overlap, self.hides[1] && replicas > 1);
        let mut families = Vec::new();
        for zero in zeros {
            for &shard in &groups {
                if (zero > 0 || shard.is_none() || self.pin.has("shard"))
                    && shard.is_none_or(|s| replicas.is_multiple_of(s))
                {
                    let with = |&dp_overlap| Layout { zero, shard, dp_overlap, ..layout.clone() };
                    families.extend(overlaps.iter().map(|overlap| family.part(with(overlap), Level::Shards)));
                }
            }
        }
        families
    }

    /// The orders of a layout's pipeline that its pins allow.
    pub(super) fn orders_of(&self, pp: u64, microbatches: u64) -> Vec<Order> {
        let given = &self.pin.layout;
        let is_allowed = |order: &&Order| {
            (!self.pin.has("schedule") || order.schedules.contains(&given.schedule.as_str()))
                && (!self.pin.has("vp") || given.vp == Some(order.chunks))
                && order.stages <= (self.layers[0] + 2 * self.layers[1]).max(1)
        };
        (self.orders)(pp, microbatches).iter().filter(is_allowed).cloned().collect()
    }

    fn pipelines(&self, family: &Family) -> Vec<Family> {
        let layout = &family.layout;
        let microbatches = self.global_batch / (layout.dp * layout.mbs);
        let mut families = Vec::new();
        for order in self.orders_of(layout.pp, microbatches) {
            for stages in self.starts(order.stages) {
                let (schedule, vp) = (order.schedules[0].to_string(), order.vp);
                let layout = Layout { schedule, vp, stages, ..layout.clone() };
                let (level, devices, schedules) = (Level::Pipeline, family.devices, Arc::clone(&order.schedules));
                families.push(Family { layout, level, devices, schedules });
            }
        }
        families
    }

    /// Where stages may begin: as the cost model cuts them; and all as long but the first and the last, which have one or two
    /// layers less, as those of Llama 3 405B (Dubey et al. 2024, section 3.3.2).
    pub(super) fn starts(&self, stages: u64) -> Vec<Vec<u32>> {
        if self.pin.has("stages") {
            return vec![self.pin.layout.stages.clone()];
        }
        let [layers, before] = self.layers;
        let mut all = vec![Vec::new()];
        if !self.choices.stages {
            return all;
        }
        for (first, last) in [(1, 1), (0, 1), (1, 0), (0, 2), (1, 2), (2, 1), (2, 0), (2, 2)] {
            let whole = layers + first + last;
            let each = whole / stages;
            // With two stages a layer less on both is none less.
            let uneven = stages > 2 || (stages == 2 && first != last);
            if uneven && whole.is_multiple_of(stages) && each + before > first.max(last) {
                let start = |stage: u64| (before + stage * each - first) as u32;
                all.push((1..stages).map(start).collect());
            }
        }
        all
    }

    /// Whether what forwards keep waits in the host's memory.
    pub fn hosts(&self) -> Vec<bool> {
        self.pin.or("offload", &self.pin.layout.offload, vec![self.offload])
    }

    fn with_hosts(&self, family: &Family) -> Vec<Family> {
        let with = |offload| Layout { offload, ..family.layout.clone() };
        self.hosts().into_iter().map(|offload| family.part(with(offload), Level::Host)).collect()
    }

    /// Overlap of a kind of communication: as the stack has it, or, where it hides what there is, not.
    fn overlaps(&self, key: &str, given: Option<bool>, hides: bool) -> Vec<Option<bool>> {
        self.pin.or(key, &given, if hides { vec![None, Some(false)] } else { vec![None] })
    }

    /// Whether a layout shows communication that the stack would hide, unless it is pinned to: that takes no less memory, and no
    /// less time.
    pub(super) fn shows(&self, layout: &Layout) -> bool {
        let is_shown = |key: &str, overlap: Option<bool>| overlap == Some(false) && !self.pin.has(key);
        is_shown("tp_overlap", layout.tp_overlap) || is_shown("dp_overlap", layout.dp_overlap)
    }

    /// Layers of the longest stage where all are as long as can be.
    pub fn longest(&self, layout: &Layout) -> u64 {
        let chunks = u64::from(layout.vp.unwrap_or(1));
        self.layers[0].div_ceil(layout.pp * chunks)
    }

    fn recomputations(&self, family: &Family) -> Vec<Family> {
        let with = |recompute, level| family.part(Layout { recompute, ..family.layout.clone() }, level);
        match (self.pin.has("recompute"), &self.pin.layout.recompute) {
            // The values that are made again follow from the memory: the oracle prices the fastest that fit, where none does
            // not. What modules make again is among them.
            (false, _) | (true, Recompute::Auto) => {
                let [parts, whole, some] = self.choices.recompute;
                let mut families = vec![with(Recompute::None, Level::One)];
                families.extend(parts.then(|| with(Recompute::Auto, Level::One)));
                families.extend(match (whole, some) {
                    (_, true) => Some(with(Recompute::Full(Some(1)), Level::Layers)),
                    (true, false) => Some(with(Recompute::Full(None), Level::One)),
                    (false, false) => None,
                });
                families
            }
            (true, given) => vec![with(given.clone(), Level::One)],
        }
    }

    fn layers_again(&self, family: &Family) -> Vec<Family> {
        let some = (1..self.longest(&family.layout)).map(|layers| Recompute::Full(Some(layers as u32)));
        some.chain([Recompute::Full(None)])
            .map(|recompute| family.part(Layout { recompute, ..family.layout.clone() }, Level::One))
            .collect()
    }
}

fn schedules(family: &Family) -> Vec<Family> {
    let of = |name: &&str| family.part(Layout { schedule: name.to_string(), ..family.layout.clone() }, Level::Schedule);
    family.schedules.iter().map(of).collect()
}
