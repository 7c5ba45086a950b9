//! The cost model as the search asks it.

use crate::estimate::{Ask, Desk, Floor, Means, Work};
use crate::layout;
use ir::goal::{Layout, Recompute};
use planner::search::{Bound, Family, Level, Limits, Oracle, Price, Space};

/// Prices and bounds of the layouts of a space.
pub(super) struct Costs<'a> {
    pub(super) desk: &'a Desk<'a>,
    pub(super) work: Work,
    pub(super) space: &'a Space,
    /// Divisors of the global batch, ascending.
    pub(super) batches: Vec<u64>,
}

/// Tokens of a micro-batch that no device has room for, and that no size of a tensor is beyond limits with.
const MOST_TOKENS: u64 = 1 << 28;

/// What is said at least of large micro-batches whose experts lie on attention's axes, whole or cut. Of 13,500 layouts of five
/// mixtures, drawn at random, none with whole experts takes less than 0.977 of what large micro-batches take, and none with cut
/// ones less than 0.88, but where it takes three times as long as with whole experts on each rank.
const OTHER_WAYS: [f64; 2] = [0.95, 0.85];

/// And at most, as a multiple of what they take with whole experts on each rank.
const MOST_WAYS: f64 = 2.0;

/// What a still larger micro-batch could save of its last, partly filled wave of tiles: at this size there are 10^4 waves.
const LAST_WAVE: f64 = 1e-3;

impl Oracle for Costs<'_> {
    /// Of degrees alone, the work over the peak; from the micro-batch on the model is planned.
    fn bound(&self, family: &Family, known: Bound, limits: Limits) -> Option<Bound> {
        let known = Floor { seconds: known.seconds, bytes: known.bytes };
        let enough = limits.seconds;
        let ask = || match limits.bytes {
            Some(room) => {
                let is_ordered = family.level >= Level::Schedule;
                Ask::Seconds { enough, room, means: self.means(family), is_ordered }
            }
            None => Ask::Bytes(self.smallest(family)),
        };
        let floor = match family.level {
            Level::Axes => self.of_axes(family, limits),
            Level::Batch => self.of_blocks(family, limits)?,
            Level::Pipeline => Floor { seconds: self.desk.rough(&self.fastest(family)).ok()?, ..known },
            Level::Shards => {
                let mean = self.mean(family, limits)?;
                if mean.seconds > enough { mean } else { self.desk.floor(&self.fastest(family), &ask()).ok()? }
            }
            _ => self.desk.floor(&self.fastest(family), &ask()).ok()?,
        };
        Some(Bound { seconds: floor.seconds, bytes: floor.bytes })
    }

    fn price(&self, layout: &Layout) -> Option<Price> {
        let (layout, Floor { seconds, bytes }) = match layout.recompute {
            Recompute::Auto => self.desk.fitting(layout).ok()??,
            _ => (layout.clone(), self.desk.price(layout).ok()?),
        };
        Some(Price { seconds, bytes, text: layout::print(&layout) })
    }
}

impl Costs<'_> {
    /// A layout that none of a family is faster than. What is computed again is not moved to the host: only where that is
    /// decided does offload cost what it does.
    fn fastest(&self, family: &Family) -> Layout {
        let mut layout = family.layout.clone();
        if family.level < Level::One || layout.recompute == Recompute::Auto {
            layout.offload = false;
            layout.recompute = Recompute::None;
        }
        layout
    }

    /// What a family's layouts may do to fit.
    fn means(&self, family: &Family) -> Means {
        let (space, layout) = (self.space, &family.layout);
        if family.level == Level::One {
            let parts = layout.recompute == Recompute::Auto;
            return if parts { Means { parts, whole: Vec::new(), hosts: vec![layout.offload] } } else { Means::NONE };
        }
        let hosts = if family.level < Level::Host { space.hosts() } else { vec![layout.offload] };
        let some = || (1..space.longest(layout) as u32).chain([u32::MAX]).collect();
        let (parts, whole) = match &space.pin.layout.recompute {
            _ if family.level == Level::Layers => (false, some()),
            Recompute::Full(layers) if space.pin.has("recompute") => (false, vec![layers.unwrap_or(u32::MAX)]),
            Recompute::None | Recompute::Selective(_) if space.pin.has("recompute") => (true, Vec::new()),
            _ => (true, some()),
        };
        Means { parts, whole, hosts }
    }

    /// The work over the peak.
    fn of_degrees(&self, family: &Family) -> Floor {
        let layout = &family.layout;
        let decided = family.level == Level::Batch;
        let microbatches = if decided { self.space.global_batch / (layout.dp * layout.mbs) } else { 1 };
        let zero = if self.space.pin.has("zero") { layout.zero } else { 3 };
        let machine = self.desk.machine(layout.devices());
        let microbatches = u32::try_from(microbatches).unwrap_or(u32::MAX);
        self.work.floor(layout, zero, self.space.global_batch, microbatches, &machine)
    }

    /// Of a family that is nothing but degrees: the work over the peak; if that does not rule it out, that of large micro-batches
    /// with all experts on each rank, with each on one rank, and as they are. In large micro-batches it never helps to exchange
    /// rows, nor to cut an expert. (A test holds this against prices.)
    fn of_axes(&self, family: &Family, limits: Limits) -> Floor {
        let layout = &family.layout;
        let floor = self.of_degrees(family);
        if self.is_ruled_out(floor, layout, limits) || self.space.batch.is_some() {
            return floor;
        }
        let mut seconds = floor.seconds;
        for (ep, etp) in [(1, 1), (layout.ep, 1), (layout.ep, layout.etp)] {
            let ways = self.space.ways(&Layout { ep, etp, ..layout.clone() });
            seconds = seconds.max(ways.iter().map(|way| self.of_large(way)).fold(f64::INFINITY, f64::min));
            if seconds > limits.seconds {
                break;
            }
        }
        Floor { seconds, ..floor }
    }

    fn is_ruled_out(&self, floor: Floor, layout: &Layout, limits: Limits) -> bool {
        let room = self.desk.machine(layout.devices()).cluster.device.memory as f64;
        floor.seconds > limits.seconds || floor.bytes > room
    }

    /// Seconds of the work of micro-batches of all sizes at least: of one as large as can be. A micro-batch of n times as many
    /// sequences takes at most n times as long, since waves of tiles, the share of a link's bandwidth and launches are so.
    ///
    /// Not so the ways between layouts of tokens and of experts that cut attention's axes: each size has its own, found by simpler
    /// formulas than these costs. There a larger one is counted a little less, and no more is said than some times what is true
    /// of whole experts on each rank. (A test holds this against prices.)
    fn of_large(&self, layout: &Layout) -> f64 {
        let large = self.large(layout);
        if !layout.has_folded_experts() {
            return large * (1.0 - LAST_WAVE);
        }
        let whole = self.space.ways(&Layout { ep: 1, etp: 1, ..layout.clone() });
        let whole = whole.iter().map(|way| self.large(way)).fold(f64::INFINITY, f64::min);
        f64::min(large * OTHER_WAYS[usize::from(layout.etp > 1)], whole * MOST_WAYS)
    }

    /// Seconds of the work of micro-batches as large as can be, of whole batches where there is room for one.
    fn large(&self, layout: &Layout) -> f64 {
        let most = MOST_TOKENS / (self.space.tokens * layout.ep * layout.etp).max(1);
        let all = self.space.global_batch;
        let mbs = match most / all {
            0 => self.batches[self.batches.partition_point(|&batch| batch <= most).saturating_sub(1)],
            times => times * all,
        };
        let large = Layout { mbs, ..layout.clone() };
        self.desk.work_of(&large).unwrap_or(0.0)
    }

    /// Of a family whose pipeline is open: the work over the peak; if that does not rule it out, that of micro-batches as large
    /// as can be; then that of its own, under each stage of ZeRO.
    fn of_blocks(&self, family: &Family, limits: Limits) -> Option<Floor> {
        let layout = &family.layout;
        let floor = self.of_degrees(family);
        if self.is_ruled_out(floor, layout, limits) {
            return Some(floor);
        }
        if self.space.batch.is_none() {
            let seconds = self.of_large(layout);
            if seconds > limits.seconds {
                return Some(Floor { seconds, ..floor });
            }
        }
        let parts = self.space.shards(family).into_iter().filter_map(|part| self.mean(&part, limits));
        parts.reduce(|a, b| Floor { seconds: a.seconds.min(b.seconds), bytes: a.bytes.min(b.bytes) })
    }

    /// Of the mean rank; what is kept counts only where memory is looked for.
    fn mean(&self, family: &Family, limits: Limits) -> Option<Floor> {
        let small = limits.bytes.is_none().then(|| self.smallest(family));
        self.desk.mean(&self.fastest(family), small.as_ref()).ok()
    }

    /// Of a family's layouts the one that keeps least: all that is not decided yet is computed again, or lies with the host.
    fn smallest(&self, family: &Family) -> Layout {
        let mut layout = family.layout.clone();
        if family.level == Level::One {
            if layout.recompute == Recompute::Auto {
                layout.recompute = Recompute::Full(None);
            }
            return layout;
        }
        let pin = &self.space.pin;
        if family.level < Level::Host && self.space.offload && !pin.has("offload") {
            layout.offload = true;
        }
        let given = &pin.layout.recompute;
        let is_given = pin.has("recompute") && *given != Recompute::Auto;
        layout.recompute = if is_given { given.clone() } else { Recompute::Full(None) };
        layout
    }
}
