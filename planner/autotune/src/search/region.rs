//! Neighbourhoods of the space that are searched first, since their results prune most of the rest.

use super::space::Space;
use super::{Level, SearchNode};
use ir::config_key::ConfigKey;
use ir::options::{Gather, Offload, ParallelConfig, Recompute};

/// Region of a space. It holds a node if it holds all decided options of the node.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Region {
    /// Configurations that most runs use.
    Usual,
    /// Configurations that differ from one in a single choice, with any memory-saving options.
    Near(ParallelConfig),
    /// All configurations.
    All,
}

impl Region {
    /// Neighbourhood of a configuration.
    pub(super) fn near(parallel: &ParallelConfig) -> Region {
        Region::Near(ParallelConfig { recompute: Recompute::None, offload: Offload::None, ..parallel.clone() })
    }

    /// Returns whether the region has nodes with other stages than the cost model's own.
    pub(super) fn has_other_stages(&self) -> bool {
        *self != Region::Usual
    }

    /// Returns whether the region holds all decided options of a node.
    pub(super) fn holds(&self, space: &Space, node: &SearchNode) -> bool {
        match self {
            Region::Usual => is_usual(space, node),
            Region::Near(centre) => is_near(centre, node),
            Region::All => true,
        }
    }
}

/// Returns whether all decided options of a node are usual or pinned. Usual means: tensor parallelism within a node, one
/// sequence per micro-batch, unsliced sequences, unsharded experts, ZeRO-1, a common schedule on equal stages. Recomputation is off,
/// of whole layers or of values chosen for the memory budget. Everything else follows the stack.
fn is_usual(space: &Space, node: &SearchNode) -> bool {
    let (parallel, level) = (&node.parallel, node.level);
    let zero = space.usual_zero(parallel);
    let order = || node.schedules.iter().any(|name| space.common_schedules.contains(name));
    let usual = [
        (ConfigKey::Tp, parallel.tp <= space.node),
        (ConfigKey::Cp, parallel.cp == 1),
        (ConfigKey::Etp, parallel.etp == 1),
        (ConfigKey::Mbs, level < Level::Batch || parallel.mbs == space.batch.unwrap_or(1)),
        (ConfigKey::Zero, level < Level::Shards || parallel.zero == zero),
        (ConfigKey::Shard, parallel.shard.is_none()),
        (ConfigKey::Gather, parallel.gather == Gather::Use),
        (ConfigKey::Schedule, level < Level::Pipeline || order()),
        (ConfigKey::Schedule, level < Level::Schedule || space.common_schedules.contains(&parallel.schedule.as_str())),
        (ConfigKey::Stages, parallel.stages.is_empty()),
        (ConfigKey::TpOverlap, parallel.tp_overlap.is_none()),
        (ConfigKey::DpOverlap, parallel.dp_overlap.is_none()),
        (ConfigKey::Recompute, !matches!(parallel.recompute, Recompute::Selective(_))),
    ];
    usual.into_iter().all(|(key, is_usual)| is_usual || space.pin.has(key))
}

/// Returns whether a node differs from a configuration in at most one decided choice. Recomputation and offload follow from
/// the memory budget and do not count; nor does dp, which follows from the other degrees.
fn is_near(centre: &ParallelConfig, SearchNode { parallel, level, schedules, .. }: &SearchNode) -> bool {
    let by = |decided: Level, is_same: bool| *level >= decided && !is_same;
    let shards = |it: &ParallelConfig| (it.zero, it.shard, it.gather, it.dp_overlap);
    let order = || schedules.contains(&centre.schedule.as_str()) && parallel.vp == centre.vp;
    let others = [
        by(Level::Degrees, parallel.tp == centre.tp)
            || by(Level::SequenceSharding, (parallel.sp, parallel.tp_overlap) == (centre.sp, centre.tp_overlap)),
        by(Level::Degrees, parallel.cp == centre.cp) || by(Level::SequenceSharding, parallel.cp_kind == centre.cp_kind),
        by(Level::Axes, parallel.ep == centre.ep),
        by(Level::Axes, parallel.etp == centre.etp),
        by(Level::Batch, parallel.mbs == centre.mbs),
        by(Level::Degrees, parallel.pp == centre.pp)
            || by(Level::Pipeline, order())
            || by(Level::Stages, parallel.stages.is_empty() == centre.stages.is_empty())
            || by(Level::Schedule, parallel.schedule == centre.schedule),
        by(Level::Shards, shards(parallel) == shards(centre)),
    ];
    others.into_iter().filter(|is_other| *is_other).count() < 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Choices, Order, Pin};
    use ir::heads::Heads;

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
            heads: Some(Heads { keys: 4, queries: 1, whole: true }),
            tokens: 16,
            experts: Some([2, 8]),
            layers: [6, 1],
            node: 2,
            offload: true,
            offload_optimizer: false,
            hides: [false, true],
            batch: None,
            slices: 1,
            orders: Box::new(move |pp, _| match pp {
                1 => [order(&["1f1b"], None, 1)].into(),
                _ => [order(&["zb-h1", "1f1b"], None, pp), order(&["interleaved-1f1b"], Some(2), 2 * pp)].into(),
            }),
            common_schedules: vec!["1f1b", "zb-h1", "interleaved-1f1b", "interleaved-zb"],
            choices: Choices::default(),
            supported: Box::new(|_, _| true),
            pin: Pin::default(),
            stop: Box::new(|| false),
        }
    }

    /// Configurations below these nodes, without those outside the region.
    fn configs(space: &Space, region: &Region, nodes: Vec<SearchNode>) -> Vec<ParallelConfig> {
        let of = |node: SearchNode| match node.level {
            _ if !region.holds(space, &node) => Vec::new(),
            Level::Complete => vec![node.parallel],
            _ => configs(space, region, space.parts(&node)),
        };
        nodes.into_iter().flat_map(of).collect()
    }

    /// An open device count yields the same configurations as each fixed device count.
    #[test]
    fn configurations_are_listed_by_halves_of_the_devices() {
        let all = |devices| configs(&Space { devices, ..space() }, &Region::All, Space { devices, ..space() }.roots());
        let each: Vec<ParallelConfig> = (1..=6).flat_map(|devices| all([devices; 2])).collect();
        assert!(each.len() > 1000 && all([1, 6]) == each);
    }

    #[test]
    fn a_family_is_left_out_only_with_all_its_configurations() {
        let space = space();
        let all = configs(&space, &Region::All, space.roots());
        let one = |parallel: &ParallelConfig| SearchNode {
            parallel: parallel.clone(),
            level: Level::Complete,
            devices: space.devices,
            schedules: [named(&parallel.schedule)].into(),
        };
        let centres = all.iter().step_by(all.len() / 20).map(Region::near);
        for region in centres.chain([Region::Usual]) {
            let within: Vec<&ParallelConfig> =
                all.iter().filter(|parallel| region.holds(&space, &one(parallel))).collect();
            assert!(within.len() > 1 && within.len() < all.len() / 2, "{region:?} has {}", within.len());
            assert_eq!(configs(&space, &region, space.roots()).iter().collect::<Vec<_>>(), within, "{region:?}");
        }
    }

    /// Interned schedule name.
    fn named(name: &str) -> &'static str {
        let known = ["1f1b", "zb-h1", "interleaved-1f1b"];
        known.into_iter().find(|known| *known == name).unwrap()
    }
}
