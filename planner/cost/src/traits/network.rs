//! Collectives, messages, and the partition into stages.

use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// Collectives and messages.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// True if all-gathers and reduce-scatters run level by level if that is faster than one ring.
    pub hierarchical: bool,
    /// Seconds of a pipeline hop in addition to its message: the exchange of sizes, and the wait for both ends.
    pub hop: f64,
    /// True if collectives of tensor parallelism are hidden in the forward only under sequence parallelism.
    pub hides_forward_under_sp: bool,
    /// CPU seconds per rank of a tensor-parallel collective, in a pipeline over several nodes.
    pub peer: f64,
}

/// Quantity that is balanced among pipeline stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// Time in seconds.
    #[default]
    Time,
    /// Parameters of matrix products. A stage ends after the block at which the cumulative sum reaches its share, or
    /// earlier if only one block remains per later stage.
    Parameters,
}

impl Default for Network {
    fn default() -> Network {
        Network { hierarchical: true, hop: 0.0, hides_forward_under_sp: false, peer: 0.0 }
    }
}

impl Network {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Network { hierarchical: _, hop, hides_forward_under_sp: _, peer } = *self;
        let seconds = Range::new(0.0, 1.0, "seconds");
        vec![seconds.of("network.hop", hop), seconds.of("network.peer", peer)]
    }
}
