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
}

impl Oracle for Costs<'_> {
    /// Of degrees alone, the work over the peak; from the ZeRO stage on the model is planned.
    fn bound(&self, family: &Family) -> Option<Bound> {
        let layout = &family.layout;
        let floor = match family.level {
            Level::Axes | Level::Batch => {
                let zero = if self.space.pin.has("zero") { layout.zero } else { 3 };
                let machine = self.desk.machine(layout.devices());
                self.work.floor(layout, zero, self.space.global_batch, &machine)
            }
            level => self.desk.floor(layout, &self.smallest(family), level >= Level::Pipeline).ok()?,
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
