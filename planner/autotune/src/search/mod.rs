//! Configuration search: branch and bound over sets of configurations, exact under an oracle's costs.
//!
//! Data flow: a [`Space`] holds the choices that a model, a job and pins leave open. The space is split level by level
//! into [`SearchNode`]s (`space`), the nodes of the search tree, and searched best bound first (`branch`). Single
//! configurations are costed, and the best ones of each kind are retained (`best`). Only the oracle knows costs.

mod best;
mod boundaries;
mod branch;
mod count;
mod divisors;
pub(crate) mod keys;
mod region;
mod space;

pub use best::{Kind, Ranked, SPREAD};
pub use boundaries::within;
pub use branch::{Outcome, Progress, Task, search};
pub use count::{Counted, count};
pub use divisors::divisors;
pub use keys::Decided;
pub(crate) use space::usual_zero;
pub use space::{Hides, Order, Orders, Overlap, Pin, Recomputable, Space, Stop, Supported, has_usual_sizes};

use ir::options::ParallelConfig;
use std::sync::Arc;

/// Decision level of a node; each level adds a decision to those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Only a range of device counts is decided.
    Devices,
    /// Degrees dp, tp, cp and pp, without those of experts.
    Degrees,
    /// All degrees, including ep and etp.
    Axes,
    /// Sequence parallelism, kind of context parallelism, overlap of tensor-parallel communication.
    SequenceSharding,
    /// Micro-batch size.
    Batch,
    /// Action order and stages per rank.
    Pipeline,
    /// Stage boundaries.
    Stages,
    /// ZeRO stage, size of the sharding group, frequency of gathers, overlap of data-parallel communication.
    Shards,
    /// Schedule among those with the action order.
    Schedule,
    /// Activation offload.
    Offload,
    /// Some layers of each stage are recomputed entirely, but their number is open.
    Layers,
    /// Everything: a single configuration.
    Complete,
}

impl Level {
    /// All levels, in their order.
    pub const ALL: [Level; 12] = [
        Level::Devices,
        Level::Degrees,
        Level::Axes,
        Level::SequenceSharding,
        Level::Batch,
        Level::Pipeline,
        Level::Stages,
        Level::Shards,
        Level::Schedule,
        Level::Offload,
        Level::Layers,
        Level::Complete,
    ];
}

/// Set of configurations that agree on all decided options: a node of the search tree. Undecided options have the value
/// that is fastest: no recomputation, no offload, the stack's overlap.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchNode {
    /// Representative configuration.
    pub parallel: ParallelConfig,
    /// Decided options.
    pub level: Level,
    /// Least and largest number of devices.
    pub devices: [u64; 2],
    /// Schedules with the node's action order, once the pipeline is decided; the configuration names the first until
    /// one is chosen.
    pub schedules: Schedules,
}

/// Names of schedules.
pub type Schedules = Arc<[&'static str]>;

impl SearchNode {
    /// Part of this node.
    pub(crate) fn part(&self, parallel: ParallelConfig, level: Level) -> SearchNode {
        SearchNode { parallel, level, devices: self.devices, schedules: Arc::clone(&self.schedules) }
    }
}

/// Lower bounds on all configurations of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// Step time in seconds.
    pub seconds: f64,
    /// Peak device memory in bytes.
    pub bytes: f64,
}

/// Limits above which a configuration is not useful.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Step time limit in seconds; a bound above it need not be tightened.
    pub seconds: f64,
    /// Device memory limit in bytes; `None` if memory is the objective. Bounds then have no seconds.
    pub bytes: Option<f64>,
}

/// Cost of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct CostEstimate {
    /// Step time in seconds.
    pub seconds: f64,
    /// Peak device memory in bytes.
    pub bytes: f64,
    /// Configuration as text, with the values that `recompute=auto` recomputes; breaks ties.
    pub text: String,
}

/// Source of costs and lower bounds.
pub trait Oracle: Sync {
    /// Lower bounds on the useful configurations of a node; `None` if no member is valid. `known` bounds a larger
    /// node.
    fn bound(&self, node: &SearchNode, known: Bound, limits: Limits) -> Option<Bound>;

    /// Stage boundaries of a node that are expected to be faster than the listed ones; `None` if none are known, or none have
    /// configurations within the limits. Those of the node are open.
    fn faster_stages(&self, node: &SearchNode, limits: Limits) -> Option<Vec<u32>>;

    /// Cost of a configuration; `None` if it is invalid or known not to be useful.
    fn cost(&self, parallel: &ParallelConfig, limits: Limits) -> Option<CostEstimate>;
}
