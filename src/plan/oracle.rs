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
        let floor = match family.level {
            Level::Axes | Level::Batch => self.without_batch(family, enough)?,
            level => {
                // An order changes nothing of the mean rank; what is decided after it does.
                let known = (level == Level::Pipeline).then_some(Floor { seconds: known.seconds, bytes: known.bytes });
                let (fast, small) = (fastest(family), self.smallest(family));
                let of = |fast: &Layout, small: &Layout| {
                    self.desk.floor(fast, small, level >= Level::Pipeline, known, enough).ok()
                };
                let beside = of(&fast, &small)?;
                // Gradients that are summed beside the backward go in buckets, those after it at once: either may be faster.
                if level == Level::Pipeline && self.space.overlaps(&fast)[1].len() > 1 {
                    let shown = |layout: &Layout| Layout { dp_overlap: Some(false), ..layout.clone() };
                    let after = of(&shown(&fast), &shown(&small))?;
                    Floor { seconds: beside.seconds.min(after.seconds), bytes: beside.bytes.min(after.bytes) }
                } else {
                    beside
                }
            }
        };
        let Floor { mut seconds, bytes } = floor;
        if family.level == Level::Schedule && seconds <= enough {
            seconds = seconds.max(self.desk.fastest(&fastest(family)).unwrap_or(0.0));
        }
        Some(Bound { seconds, bytes })
    }

    fn price(&self, layout: &Layout) -> Option<Price> {
        let Floor { seconds, bytes } = self.desk.price(layout).ok()?;
        Some(Price { seconds, bytes, text: layout::print(layout) })
    }
}

/// Of a family's layouts one that no other is faster than. What is computed again is not moved to the host: only where that is
/// decided does offload cost what it does.
fn fastest(family: &Family) -> Layout {
    let offload = family.layout.offload && family.level == Level::One;
    let recompute = match &family.layout.recompute {
        // Without names it is the usual ones, not none.
        Recompute::Selective(taken) if taken.is_empty() && family.level < Level::One => Recompute::None,
        decided => decided.clone(),
    };
    Layout { offload, recompute, ..family.layout.clone() }
}

impl Costs<'_> {
    /// Of a family whose ZeRO stage is open: the work over the peak; if that does not rule it out and the micro-batch is
    /// decided, that of micro-batches as large as can be. A micro-batch of n times as many sequences takes at most n times as
    /// long, since waves of tiles, the share of a link's bandwidth and launches are so. (A test holds this against prices.)
    fn without_batch(&self, family: &Family, enough: f64) -> Option<Floor> {
        let layout = &family.layout;
        let zero = if self.space.pin.has("zero") { layout.zero } else { 3 };
        let machine = self.desk.machine(layout.devices());
        let decided = family.level == Level::Batch;
        let microbatches = if decided { self.space.global_batch / (layout.dp * layout.mbs) } else { 1 };
        let microbatches = u32::try_from(microbatches).unwrap_or(u32::MAX);
        let floor = self.work.floor(layout, zero, self.space.global_batch, microbatches, &machine);
        let room = machine.cluster.device.memory as f64;
        if !decided || floor.seconds > enough || floor.bytes > room || self.space.batch.is_some() {
            return Some(floor);
        }
        let most = MOST_TOKENS / (self.space.tokens * layout.ep).max(1);
        let mbs = self.batches[self.batches.partition_point(|&batch| batch <= most).saturating_sub(1)];
        let large = Layout { mbs, ..layout.clone() };
        let seconds = self.desk.work_of(&large, layout.devices()).unwrap_or(0.0);
        Some(Floor { seconds: floor.seconds.max(seconds * (1.0 - LAST_WAVE)), ..floor })
    }

    /// Of a family's layouts the one that keeps least: all that is not decided yet is computed again, or lies with the host.
    fn smallest(&self, family: &Family) -> Layout {
        let mut layout = family.layout.clone();
        if family.level == Level::One {
            return layout;
        }
        let pin = &self.space.pin;
        if family.level < Level::Host && self.space.offload && !pin.has("offload") {
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
