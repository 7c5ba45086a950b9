//! Neighbourhoods of the space that are searched first, since their results prune most of the rest.

use super::space::Space;
use super::{Family, Level};
use ir::goal::{Layout, Recompute};

/// 1F1B schedules: backward whole or split, with one stage or several stages per rank.
const SCHEDULES: [&str; 4] = ["1f1b", "zb-h1", "interleaved-1f1b", "interleaved-zb"];

/// Region of a space. It holds a family if it holds all decided options of the family.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Region {
    /// Configurations that most runs use.
    Usual,
    /// Configurations that differ from one in a single choice, with any memory-saving options.
    Near(Layout),
    /// All configurations.
    All,
}

impl Region {
    /// Neighbourhood of a configuration.
    pub(super) fn near(layout: &Layout) -> Region {
        Region::Near(Layout { recompute: Recompute::None, offload: false, ..layout.clone() })
    }

    /// Returns whether the region holds all decided options of a family.
    pub(super) fn holds(&self, space: &Space, family: &Family) -> bool {
        match self {
            Region::Usual => is_usual(space, family),
            Region::Near(centre) => is_near(centre, family),
            Region::All => true,
        }
    }
}

/// Returns whether all decided options of a family are usual or pinned. Usual means: tensor parallelism within a node, one
/// sequence per micro-batch, unsliced sequences, unsharded experts, ZeRO-1, 1F1B on equal stages. Recomputation is off,
/// of whole layers or of values chosen for the memory budget. Everything else follows the stack.
fn is_usual(space: &Space, family: &Family) -> bool {
    let (layout, level) = (&family.layout, family.level);
    let zero = space.usual_zero(layout);
    let order = || family.schedules.iter().any(|name| SCHEDULES.contains(name));
    let usual = [
        ("tp", layout.tp <= space.node),
        ("cp", layout.cp == 1),
        ("etp", layout.etp == 1),
        ("mbs", level < Level::Batch || layout.mbs == space.batch.unwrap_or(1)),
        ("zero", level < Level::Shards || layout.zero == zero),
        ("shard", layout.shard.is_none()),
        ("schedule", level < Level::Pipeline || order()),
        ("schedule", level < Level::Schedule || SCHEDULES.contains(&layout.schedule.as_str())),
        ("stages", layout.stages.is_empty()),
        ("tp_overlap", layout.tp_overlap.is_none()),
        ("dp_overlap", layout.dp_overlap.is_none()),
        ("recompute", !matches!(layout.recompute, Recompute::Selective(_))),
    ];
    usual.into_iter().all(|(key, is_usual)| is_usual || space.pin.has(key))
}

/// Returns whether a family differs from a configuration in at most one decided choice. Recomputation and offload follow from
/// the memory budget and do not count; nor does dp, which follows from the other degrees.
fn is_near(centre: &Layout, Family { layout, level, schedules, .. }: &Family) -> bool {
    let by = |decided: Level, is_same: bool| *level >= decided && !is_same;
    let shards = |it: &Layout| (it.zero, it.shard, it.dp_overlap);
    let order =
        || schedules.contains(&centre.schedule.as_str()) && (layout.vp, &layout.stages) == (centre.vp, &centre.stages);
    let others = [
        by(Level::Degrees, layout.tp == centre.tp)
            || by(Level::Ways, (layout.sp, layout.tp_overlap) == (centre.sp, centre.tp_overlap)),
        by(Level::Degrees, layout.cp == centre.cp) || by(Level::Ways, layout.cp_kind == centre.cp_kind),
        by(Level::Axes, layout.ep == centre.ep),
        by(Level::Axes, layout.etp == centre.etp),
        by(Level::Batch, layout.mbs == centre.mbs),
        by(Level::Degrees, layout.pp == centre.pp)
            || by(Level::Pipeline, order())
            || by(Level::Schedule, layout.schedule == centre.schedule),
        by(Level::Shards, shards(layout) == shards(centre)),
    ];
    others.into_iter().filter(|is_other| *is_other).count() < 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Choices, Order, Pin};

    fn space() -> Space {
        let order = |schedules: &[&'static str], vp: Option<u32>, stages| Order {
            schedules: schedules.into(),
            vp,
            chunks: vp.unwrap_or(1),
            stages,
        };
        Space {
            devices: [4; 2],
            global_batch: 8,
            tensor: vec![(4, true)],
            heads: 4,
            tokens: 16,
            experts: Some([2, 8]),
            layers: [6, 1],
            node: 2,
            offload: true,
            hides: [false, true],
            batch: None,
            slices: 1,
            orders: Box::new(move |pp, _| match pp {
                1 => [order(&["1f1b"], None, 1)].into(),
                _ => [order(&["zb-h1", "1f1b"], None, pp), order(&["interleaved-1f1b"], Some(2), 2 * pp)].into(),
            }),
            choices: Choices::default(),
            pin: Pin::default(),
            stop: Box::new(|| false),
        }
    }

    /// Configurations below these families, without those outside the region.
    fn layouts(space: &Space, region: &Region, families: Vec<Family>) -> Vec<Layout> {
        let of = |family: Family| match family.level {
            _ if !region.holds(space, &family) => Vec::new(),
            Level::One => vec![family.layout],
            _ => layouts(space, region, space.parts(&family)),
        };
        families.into_iter().flat_map(of).collect()
    }

    /// An open device count yields the same configurations as each fixed device count.
    #[test]
    fn layouts_are_listed_by_halves_of_the_devices() {
        let all = |devices| layouts(&Space { devices, ..space() }, &Region::All, Space { devices, ..space() }.roots());
        let each: Vec<Layout> = (1..=6).flat_map(|devices| all([devices; 2])).collect();
        assert!(each.len() > 1000 && all([1, 6]) == each);
    }

    #[test]
    fn a_family_is_left_out_only_with_all_its_layouts() {
        let space = space();
        let all = layouts(&space, &Region::All, space.roots());
        let one = |layout: &Layout| Family {
            layout: layout.clone(),
            level: Level::One,
            devices: space.devices,
            schedules: [named(&layout.schedule)].into(),
        };
        let centres = all.iter().step_by(all.len() / 20).map(Region::near);
        for region in centres.chain([Region::Usual]) {
            let within: Vec<&Layout> = all.iter().filter(|layout| region.holds(&space, &one(layout))).collect();
            assert!(within.len() > 1 && within.len() < all.len() / 2, "{region:?} has {}", within.len());
            assert_eq!(layouts(&space, &region, space.roots()).iter().collect::<Vec<_>>(), within, "{region:?}");
        }
    }

    /// Interned schedule name.
    fn named(name: &str) -> &'static str {
        let known = ["1f1b", "zb-h1", "interleaved-1f1b"];
        known.into_iter().find(|known| *known == name).unwrap()
    }
}
