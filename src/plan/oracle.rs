//! The cost model as the search asks it.

use crate::estimate::{Desk, Floor, Work};
use crate::layout;
use ir::goal::{Layout, Recompute};
use planner::search::{Bound, Family, Level, Oracle, Price, Space};

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

/// What a still larger micro-batch could save of its last, partly filled wave of tiles: at this size there are 10^4 waves.
const LAST_WAVE: f64 = 1e-3;

impl Oracle for Costs<'_> {
    /// Of degrees alone, the work over the peak; from the ZeRO stage on the model is planned.
    fn bound(&self, family: &Family, known: Bound, enough: f64) -> Option<Bound> {
        let layout = &family.layout;
        let floor = match family.level {
            Level::Axes | Level::Batch => self.without_batch(family, enough)?,
            level => {
                // An order changes nothing of the mean rank; what is decided after it does.
                let known = (level == Level::Pipeline).then_some(Floor { seconds: known.seconds, bytes: known.bytes });
                self.desk.floor(layout, &self.smallest(family), level >= Level::Pipeline, known, enough).ok()?
            }
        };
        let Floor { seconds, bytes } = floor;
        Some(Bound { seconds, bytes })
    }

    fn price(&self, layout: &Layout) -> Option<Price> {
        let Floor { seconds, bytes } = self.desk.price(layout).ok()?;
        Some(Price { seconds, bytes, text: layout::print(layout) })
    }
}

impl Costs<'_> {
    /// Of a family whose ZeRO stage is open: the work over the peak; if that does not rule it out, that of micro-batches as
    /// large as can be. A micro-batch of n times as many sequences takes at most n times as long, since waves of tiles, the
    /// share of a link's bandwidth and launches are so; nor is context parallelism faster than whole sequences on as many
    /// more data-parallel ranks. (A test holds this against prices.)
    fn without_batch(&self, family: &Family, enough: f64) -> Option<Floor> {
        let layout = &family.layout;
        let zero = if self.space.pin.has("zero") { layout.zero } else { 3 };
        let machine = self.desk.machine(layout.devices());
        let floor = self.work.floor(layout, zero, self.space.global_batch, &machine);
        if floor.seconds > enough || self.space.batch.is_some() {
            return Some(floor);
        }
        let most = MOST_TOKENS / (self.space.tokens * layout.ep).max(1);
        let mbs = self.batches[self.batches.partition_point(|&batch| batch <= most).saturating_sub(1)];
        let mut large = Layout { mbs, ..layout.clone() };
        let mut sps = vec![layout.sp];
        if family.level == Level::Axes {
            (large.dp, large.cp) = (layout.dp * layout.cp, 1);
            if !self.space.pin.has("sp") && layout.tp > 1 {
                sps = vec![false, true];
            }
        }
        let of = |sp: &bool| self.desk.work_of(&Layout { sp: *sp, ..large.clone() }, layout.devices()).ok();
        let seconds = sps.iter().filter_map(of).reduce(f64::min).unwrap_or(0.0);
        Some(Floor { seconds: floor.seconds.max(seconds * (1.0 - LAST_WAVE)), ..floor })
    }

    /// Of a family's layouts the one that keeps least: all that is not decided yet is computed again, or lies with the host.
    fn smallest(&self, family: &Family) -> Layout {
        let mut layout = family.layout.clone();
        if family.level == Level::One {
            return layout;
        }
        let pin = &self.space.pin;
        if family.level < Level::Switches && self.space.offload && !pin.has("offload") {
            layout.offload = true;
        }
        layout.recompute = match (family.level, pin.has("recompute"), &pin.layout.recompute, layout.recompute) {
            (Level::Modules(decided), _, _, Recompute::Selective(mut taken)) => {
                taken.extend_from_slice(&self.space.modules[decided..]);
                Recompute::Selective(taken)
            }
            (_, true, given, _) if *given != Recompute::Auto => given.clone(),
            _ => Recompute::Full(None),
        };
        layout
    }
}
