//! CPU work of launches.

use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// CPU work of launches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Launch {
    /// Layers whose kernels are replayed from CUDA graphs, without launch cost.
    pub graphs: Graphs,
    /// CPU work per kernel, in library calls: eager PyTorch creates views, allocates, and records or runs an autograd
    /// node around each kernel.
    pub dispatches: f64,
    /// CPU work per recomputed part of a layer, in library calls: the framework saves and restores random states, and
    /// builds and runs a separate graph.
    pub checkpoint: f64,
}

/// Layers whose kernels are replayed from CUDA graphs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Graphs {
    /// None.
    #[default]
    None,
    /// All but those with experts.
    Dense,
    /// All.
    All,
}

impl Graphs {
    /// Returns whether kernels are replayed, in a layer with experts or in another one.
    pub(crate) fn replay(self, has_experts: bool) -> bool {
        match self {
            Graphs::None => false,
            Graphs::Dense => !has_experts,
            Graphs::All => true,
        }
    }
}

impl Default for Launch {
    fn default() -> Launch {
        Launch { graphs: Graphs::None, dispatches: 1.0, checkpoint: 0.0 }
    }
}

impl Launch {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Launch { graphs: _, dispatches, checkpoint } = *self;
        vec![
            Range::new(0.0, 1e4, "calls of the library").of("launch.dispatches", dispatches),
            Range::new(0.0, 1e6, "calls of the library").of("launch.checkpoint", checkpoint),
        ]
    }
}
