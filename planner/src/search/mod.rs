//! Which layout: branch and bound over sets of layouts, exact by the costs of an oracle.
//!
//! The way of the data: a [`Space`] says what a model, a job and pins leave to choose. It is cut level by level into
//! [`Family`]s (`space`), the best bound first (`branch`); what is left is priced, and the best layouts of each kind are
//! kept (`best`). The oracle knows the costs; nothing here does.

mod best;
mod branch;
mod cores;
mod count;
mod divisors;
mod region;
mod space;

pub use best::{Kind, Ranked};
pub use branch::{Outcome, Progress, Task, has_room, search};
pub use cores::each;
pub use count::{Counted, count};
pub use divisors::divisors;
pub use space::{Choices, Order, Orders, Pin, Space, Stop};

use ir::goal::Layout;
use std::sync::Arc;

/// How far a family's layouts are decided; each level decides what those before it have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing but between which numbers of devices it uses.
    Devices,
    /// Degrees without those of experts: dp, tp, cp and pp.
    Degrees,
    /// All degrees: ep and etp too.
    Axes,
    /// How ranks share a sequence: sequence parallelism, kind of context parallelism, overlap of tensor-parallel communication.
    Ways,
    /// Micro-batch.
    Batch,
    /// Order, stages per rank, and where they begin.
    Pipeline,
    /// ZeRO stage, the ranks that shard, overlap of data-parallel communication.
    Shards,
    /// Which of its order's schedules.
    Schedule,
    /// Offload.
    Host,
    /// Some layers of each stage are computed again as a whole: how many is open.
    Layers,
    /// Everything: a single layout.
    One,
}

/// The layouts that agree with one in all that is decided. What is open stands in it as nothing else is faster with: no
/// recomputation, no offload, overlap as the stack has it.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// The layout.
    pub layout: Layout,
    /// What of it is decided.
    pub level: Level,
    /// The least and the most devices of its layouts.
    pub devices: [u64; 2],
    /// Its order's schedules, once the pipeline is decided; until one is chosen the first stands in the layout.
    pub schedules: Schedules,
}

/// Names of schedules.
pub type Schedules = Arc<[&'static str]>;

impl Family {
    /// A part of this one.
    fn part(&self, layout: Layout, level: Level) -> Family {
        Family { layout, level, devices: self.devices, schedules: Arc::clone(&self.schedules) }
    }
}

/// What no layout of a family goes below.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of the fullest device.
    pub bytes: f64,
}

/// What is of no use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Seconds of a step above which a layout is of none; a bound with more need not be the best that is known.
    pub seconds: f64,
    /// Bytes of a device above which a layout is of none; none where the least memory is looked for: then a bound says nothing
    /// of seconds.
    pub bytes: Option<f64>,
}

/// What a layout takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of the fullest device.
    pub bytes: f64,
    /// The layout as it is written, with the values that `recompute=auto` makes again: equals fall by it.
    pub text: String,
}

/// What knows the costs.
pub trait Oracle: Sync {
    /// What no layout of a family goes below that is of use; `None`: none of them can be. `known` is so of a larger family.
    fn bound(&self, family: &Family, known: Bound, limits: Limits) -> Option<Bound>;

    /// What a layout takes; `None`: it cannot be, or is known to be of no use.
    fn price(&self, layout: &Layout, limits: Limits) -> Option<Price>;
}
