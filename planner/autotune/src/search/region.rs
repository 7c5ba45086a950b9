//! Neighbourhoods of the space that are searched first, since their results prune most of the rest.

use super::SearchNode;
use super::space::Space;
use crate::search::keys::row;
use ir::config_key::ConfigKey;
use ir::options::{Offload, ParallelConfig, Recompute};

/// Region of a space. It holds a node if it holds all decided options of the node.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Region {
    /// Configurations that most runs use, and those whose devices share nothing but batches and ZeRO's states.
    Likely,
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
        !matches!(self, Region::Likely | Region::Usual)
    }

    /// Returns whether the region holds all decided options of a node.
    pub(super) fn holds(&self, space: &Space, node: &SearchNode) -> bool {
        match self {
            Region::Likely => is_usual(space, node, is_alone(&node.parallel)),
            Region::Usual => is_usual(space, node, false),
            Region::Near(centre) => is_near(centre, node),
            Region::All => true,
        }
    }
}

/// Returns whether all decided options of a node are usual or pinned. Usual means: tensor parallelism within a node, one
/// sequence per micro-batch, unsliced sequences, unsharded experts, ZeRO-1, a common schedule on equal stages. Recomputation is off,
/// of whole layers or of values chosen for the memory budget. Everything else follows the stack. ZeRO's stage and the micro-batch may be
/// any if they are `open`.
fn is_usual(space: &Space, node: &SearchNode, open: bool) -> bool {
    let is_usual = |key: ConfigKey| {
        let is_open = open && matches!(key, ConfigKey::Zero | ConfigKey::Mbs);
        is_open || (row(key).is_usual)(space, node) || space.pin.has(key)
    };
    ConfigKey::ALL.into_iter().filter(|&key| node.level >= row(key).level).all(is_usual)
}

/// Returns whether data-parallel ranks are the only ones.
fn is_alone(parallel: &ParallelConfig) -> bool {
    let ParallelConfig { tp, cp, pp, ep, etp, .. } = *parallel;
    [tp, cp, pp, ep, etp] == [1; 5]
}

/// Returns whether a node differs from a configuration in at most one decided choice. Recomputation and offload follow from
/// the memory budget and do not count; nor does dp, which follows from the other degrees.
fn is_near(centre: &ParallelConfig, node: &SearchNode) -> bool {
    let differs = |&key: &ConfigKey| node.level >= row(key).level && !(row(key).agrees)(centre, node);
    let mut choices = ConfigKey::ALL.into_iter().filter(differs).filter_map(|key| row(key).choice);
    let first = choices.next();
    choices.all(|choice| Some(choice) == first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Hides, Level, Order, Overlap, Pin, Recomputable};
    use cost::Supports;
    use estimator::OpenOrders;
    use ir::heads::Heads;

    fn space() -> Space {
        let order = |schedules: &[&'static str], vp: Option<u32>, stages| Order {
            schedules: schedules.into(),
            vp,
            group: None,
            chunks: vp.unwrap_or(1),
            stages,
        };
        Space {
            devices: [4; 2],
            global_batch: 8,
            tensor: vec![(4, true)],
            heads: vec![Heads { keys: 4, queries: 1, whole: true }],
            gathers_keys: false,
            tokens: 16,
            least_block: None,
            experts: Some([2, 8]),
            layers: [6, 1],
            node: 2,
            offload: true,
            offload_optimizer: false,
            hides: Hides { tp: Overlap::IfAsked, dp: Overlap::ByDefault },
            batch: None,
            open_orders: OpenOrders { slices: 1, has_two_chains: false, splits: true },
            orders: Box::new(move |pp, _| match pp {
                1 => [order(&["1f1b"], None, 1)].into(),
                _ => [order(&["zb-h1", "1f1b"], None, pp), order(&["interleaved-1f1b"], Some(2), 2 * pp)].into(),
            }),
            common_schedules: vec!["1f1b", "zb-h1", "interleaved-1f1b", "interleaved-zb"],
            supports: Supports::default(),
            recomputable: Recomputable::of(&Supports::default()),
            odd: true,
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
        for region in centres.chain([Region::Usual, Region::Likely]) {
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
