//! Properties of a framework's code, by groups: the table `[traits]` of a stack's file.

use crate::enum_set::EnumSet;
use serde::{Deserialize, Serialize};

mod experts;
mod figure;
mod formats;
mod hidden;
mod kernels;
mod launch;
mod memory;
mod network;
mod saved_bytes;
mod zero;

pub use experts::{Capacity, Dispatch, Experts};
pub(crate) use figure::Figure;
pub use formats::{Formats, Master};
pub use hidden::Hidden;
pub use kernels::{FusedKernel, Kernels};
pub use launch::{Graphs, Launch};
pub use memory::Memory;
pub use network::{Cut, Network};
pub use saved_bytes::SavedBytes;
pub use zero::{Accumulate, GatherUpdated, Zero};

/// Properties of a framework's code.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StackTraits {
    /// Communication that overlaps with compute.
    pub hides: EnumSet<Hidden>,
    /// Partition of the blocks into stages, if the configuration does not set it.
    pub cut: Cut,
    /// CPU work of launches.
    pub launch: Launch,
    /// Kernels, and their speed.
    pub kernels: Kernels,
    /// Bytes saved for the backward, and rules for what is saved.
    pub saved: SavedBytes,
    /// Number formats of gradients, of master copies, and of experts.
    pub formats: Formats,
    /// Data parallelism and ZeRO.
    pub zero: Zero,
    /// Routing and products of experts.
    pub experts: Experts,
    /// Collectives and messages.
    pub network: Network,
    /// Device memory other than that of tensors.
    pub memory: Memory,
}

impl StackTraits {
    /// All figures, with their ranges. Groups are taken apart field by field, so that a new figure needs a range.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let StackTraits { hides: _, cut: _, launch, kernels, saved, formats, zero, experts, network, memory } = self;
        let groups = [
            launch.figures(),
            kernels.figures(),
            saved.figures(),
            formats.figures(),
            zero.figures(),
            experts.figures(),
            network.figures(),
            memory.figures(),
        ];
        groups.into_iter().flatten().collect()
    }
}

/// Bytes of a mebibyte.
const MIB: f64 = 1024.0 * 1024.0;
