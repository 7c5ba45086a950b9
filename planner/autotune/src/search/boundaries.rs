//! Choices of the boundaries between stages.

use super::space::Space;
use super::{Level, SearchNode};
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use scheduler::schedules;

impl Space {
    /// Parts of a node whose order is decided: its listed stage boundaries.
    pub(super) fn with_boundaries(&self, node: &SearchNode) -> Vec<SearchNode> {
        self.starts(stages_of(&node.parallel)).into_iter().map(|stages| within(node, stages)).collect()
    }

    /// Returns whether pipelines with this number of stages have boundaries that are not listed, which the oracle may add to.
    pub(super) fn opens_boundaries(&self, stages: u64) -> bool {
        let is_open = !self.pin.has(ConfigKey::Stages) && self.sets_stages();
        is_open && stages > 1 && stages < self.layers[0] + 2 * self.layers[1]
    }

    /// Returns whether the stack lets a configuration set stage boundaries.
    fn sets_stages(&self) -> bool {
        self.supports.stages != Some(false)
    }

    /// Returns whether a node is one whose boundaries are open.
    pub(crate) fn is_open(&self, node: &SearchNode) -> bool {
        node.level == Level::Pipeline && self.opens_boundaries(stages_of(&node.parallel))
    }

    /// Listed stage boundaries. The empty list is the cost model's own partition. The others have equal stages
    /// except the first and the last, which have one or two layers fewer, as in Llama 3 405B (Dubey et al. 2024,
    /// section 3.3.2).
    pub(super) fn starts(&self, stages: u64) -> Vec<Vec<u32>> {
        if self.pin.has(ConfigKey::Stages) {
            return vec![self.pin.parallel.stages.clone()];
        }
        let [layers, before] = self.layers;
        let mut all = vec![Vec::new()];
        if !self.sets_stages() {
            return all;
        }
        for (first, last) in [(1, 1), (0, 1), (1, 0), (0, 2), (1, 2), (2, 1), (2, 0), (2, 2)] {
            let whole = layers + first + last;
            let each = whole / stages;
            // With two stages, one layer fewer on both is an even split.
            let uneven = stages > 2 || (stages == 2 && first != last);
            if uneven && whole.is_multiple_of(stages) && each + before > first.max(last) {
                let start = |stage: u64| (before + stage * each - first) as u32;
                all.push((1..stages).map(start).collect());
            }
        }
        all
    }
}

/// Part of a node with some stage boundaries.
pub fn within(node: &SearchNode, stages: Vec<u32>) -> SearchNode {
    node.part(ParallelConfig { stages, ..node.parallel.clone() }, Level::Stages)
}

/// Number of stages of a configuration.
fn stages_of(parallel: &ParallelConfig) -> u64 {
    let ranks = u32::try_from(parallel.pp).unwrap_or(u32::MAX);
    let pipeline = schedules::find(&parallel.schedule).ok().and_then(|kind| kind.pipeline(ranks, parallel.vp, 1).ok());
    pipeline.map_or(parallel.pp, |pipeline| u64::from(pipeline.stages()))
}
