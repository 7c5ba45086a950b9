//! Routing and products of experts.

use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// Routing and products of experts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experts {
    /// Exchange by which tokens reach their experts, and results come back.
    pub dispatch: Dispatch,
    /// True if a token's experts are neighbours, as with the fake gates of benchmarks.
    pub adjacent: bool,
    /// Treatment of tokens above an expert's capacity, and of empty places. If the model states no capacity, an expert's
    /// capacity is an even share.
    pub capacity: Capacity,
    /// True if routing weights are applied between an expert's products, so that the backward reads none of the
    /// experts' results.
    pub weighs_inside: bool,
    /// Calls of the CPU by which an expert's operand is quantised where scales are of whole tensors, in launches.
    pub scaling_calls: f64,
}

impl Default for Experts {
    fn default() -> Experts {
        let (dispatch, capacity) = Default::default();
        Experts { dispatch, adjacent: false, capacity, weighs_inside: false, scaling_calls: 1.0 }
    }
}

impl Experts {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Experts { dispatch: _, adjacent: _, capacity: _, weighs_inside: _, scaling_calls } = *self;
        vec![Range::new(0.0, 1e4, "calls of the library").of("experts.scaling_calls", scaling_calls)]
    }
}

/// Exchange by which tokens reach their experts, and results come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatch {
    /// A token is sent once for each of its experts.
    #[default]
    AllToAll,
    /// A token is sent to each node, and to each rank, at most once, for any number of its experts there.
    OncePerNode,
}

/// Treatment of tokens above an expert's capacity, and of empty places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Experts compute all tokens that they receive.
    #[default]
    Dropless,
    /// Tokens above the capacity are dropped.
    Drops,
    /// Tokens above the capacity are dropped, and empty places are computed and stored too.
    Pads,
}
