//! The cost model as the search asks it.

use super::large::Large;
use crate::estimate::{Ask, Desk, Floor, Means, Undecided, Work};
use crate::layout;
use ir::goal::{Layout, Recompute};
use planner::search::{Bound, Family, Level, Limits, Oracle, Price, Space, has_room};

/// Prices and bounds of the layouts of a space.
pub(super) struct Costs<'a> {
    pub(super) desk: &'a Desk<'a>,
    pub(super) work: Work,
    pub(super) space: &'a Space,
    pub(super) large: Large<'a>,
}

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
            Level::Ways => Floor { seconds: self.of_way(&family.layout), ..known },
            Level::Batch => self.of_blocks(family, limits)?,
            Level::Pipeline => Floor { seconds: self.desk.rough(&self.fastest(family)).ok()?, ..known },
            Level::Shards => {
                let mean = self.mean(family, limits)?;
                if self.is_ruled_out(mean, limits) {
                    mean
                } else {
                    self.desk.floor(&self.fastest(family), &ask()).ok()?
                }
            }
            _ => self.desk.floor(&self.fastest(family), &ask()).ok()?,
        };
        Some(Bound { seconds: floor.seconds, bytes: floor.bytes })
    }

    fn price(&self, layout: &Layout, limits: Limits) -> Option<Price> {
        let (layout, Floor { seconds, bytes }) = match layout.recompute {
            Recompute::Auto => self.desk.fitting(layout, limits.seconds).ok()??,
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

    /// The work over the peak. Where memory counts, no micro-batch has more sequences than there is room for.
    fn of_degrees(&self, family: &Family, limits: Limits) -> Floor {
        let layout = &family.layout;
        let local = self.space.global_batch / layout.dp;
        let machine = self.desk.machine(layout.devices());
        let zero = if self.space.pin.has("zero") { layout.zero } else { 3 };
        let (most, mbs) = match limits.bytes {
            _ if family.level == Level::Batch => (layout.mbs, layout.mbs),
            Some(room) => (self.work.most_sequences(layout, room).clamp(1, local), 1),
            None => (local, 1),
        };
        let microbatches = u32::try_from(local.div_ceil(most)).unwrap_or(u32::MAX);
        self.work.floor(layout, Undecided { zero, microbatches, mbs }, self.space.global_batch, &machine)
    }

    /// Whether large micro-batches say something: of a model that states none, with ranks in the usual order, where it makes no
    /// difference whether stages or data-parallel ranks lie around a block's ranks.
    fn has_large(&self) -> bool {
        self.space.batch.is_none() && !self.space.pin.has("order")
    }

    fn is_ruled_out(&self, floor: Floor, limits: Limits) -> bool {
        floor.seconds > limits.seconds || !has_room(floor.bytes, limits.bytes)
    }

    /// Of a family that is nothing but degrees: the work over the peak; if that does not rule it out, that of large micro-batches.
    fn of_axes(&self, family: &Family, limits: Limits) -> Floor {
        let floor = self.of_degrees(family, limits);
        if self.is_ruled_out(floor, limits) || !self.has_large() {
            return floor;
        }
        let seconds = self.large.of_degrees(&family.layout, limits.seconds);
        Floor { seconds: seconds.max(floor.seconds), ..floor }
    }

    /// Of a family whose ranks share a sequence in one way: the work of large micro-batches.
    fn of_way(&self, layout: &Layout) -> f64 {
        if self.has_large() { self.large.of_way(layout) } else { 0.0 }
    }

    /// Of a family whose pipeline is open: the work over the peak; if that does not rule it out, that of large micro-batches with
    /// each way to shard states; then that of its own micro-batch.
    fn of_blocks(&self, family: &Family, limits: Limits) -> Option<Floor> {
        let layout = &family.layout;
        let floor = self.of_degrees(family, limits);
        if self.is_ruled_out(floor, limits) {
            return Some(floor);
        }
        let shards = self.shards(family);
        if self.has_large() {
            let fast: Vec<Layout> = shards.iter().map(|part| self.fastest(part)).collect();
            let of = |large: &Layout, share| {
                let means = self.desk.means_of_large(&fast, (large, share), self.space.slices, limits.bytes);
                least(means.ok()?, limits)
            };
            let mean = self.large.least(layout, of, |mean| self.is_ruled_out(mean, limits))?;
            if self.is_ruled_out(mean, limits) {
                return Some(mean);
            }
        }
        least(shards.into_iter().filter_map(|part| self.mean(&part, limits)), limits)
    }

    /// The ways to shard states that the mean rank sees a difference between. What a stack hides takes no longer than what it is
    /// told not to hide.
    fn shards(&self, family: &Family) -> Vec<Family> {
        let all = self.space.shards(family);
        let hides = all.first().and_then(|first| first.layout.dp_overlap);
        let mut seen = Vec::new();
        let is_new = |part: &Family| {
            let way = (self.desk.zero(&part.layout), part.layout.shard);
            let is_new = part.layout.dp_overlap == hides && !seen.contains(&way);
            seen.push(way);
            is_new
        };
        all.into_iter().filter(is_new).collect()
    }

    /// Of the mean rank; what is kept counts only where memory is looked for.
    fn mean(&self, family: &Family, limits: Limits) -> Option<Floor> {
        let small = limits.bytes.is_none().then(|| self.smallest(family));
        self.desk.mean(&self.fastest(family), small.as_ref(), self.space.slices, limits.bytes).ok()
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

/// What none of some families goes below: seconds of those that there is room for, if there are any.
fn least(floors: impl IntoIterator<Item = Floor>, limits: Limits) -> Option<Floor> {
    let both = |a: Floor, b: Floor| {
        let seconds = match (has_room(a.bytes, limits.bytes), has_room(b.bytes, limits.bytes)) {
            (true, false) => a.seconds,
            (false, true) => b.seconds,
            _ => a.seconds.min(b.seconds),
        };
        Floor { seconds, bytes: a.bytes.min(b.bytes) }
    };
    floors.into_iter().reduce(both)
}
