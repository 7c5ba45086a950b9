//! Data parallelism and ZeRO.

use super::MIB;
use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// Data parallelism and ZeRO.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Zero {
    /// Size of a gradient bucket in bytes.
    pub bucket: f64,
    /// Messages in which ZeRO-1 and ZeRO-2 gather what they have updated.
    pub gathers: GatherUpdated,
    /// Configurations in which ZeRO-2 and 3 leave parameters and gradients unsharded during gradient accumulation, and reduce once
    /// a step.
    pub accumulate: Accumulate,
    /// True if ZeRO-1 sums gradients by an all-reduce, of which ranks take what they update.
    pub sums_whole: bool,
    /// True if ZeRO-2 and 3 scatter the gradients of a stage after each run of consecutive micro-batches of an interleaved pipeline,
    /// which accumulate before that.
    pub scatters_runs: bool,
    /// True if ZeRO-2 and 3 sum gradients over ZeRO groups once a step.
    pub sums_groups_once: bool,
    /// True if processors of the host update the states that are offloaded: gradients go there, and parameters come back.
    pub updates_on_host: bool,
    /// True if gradients that accumulate unsharded, other than those of experts, have the communication dtype.
    pub accumulates_wide: bool,
    /// True if ZeRO-3 retains parameters gathered by a forward until the backward.
    pub keeps_gathered: bool,
    /// True if ZeRO-3 shards only the master copies and casts after the gather, so that no 16-bit parameters are
    /// stored.
    pub casts_gathered: bool,
    /// True if ZeRO-3 retains the gathered parameters of the model's ends through a step, as members of the root
    /// module.
    pub keeps_ends: bool,
    /// True if ZeRO-2 and 3 hold and scatter the gradients of a micro-batch in the type of the parameters.
    pub scatters_narrow: bool,
    /// True if the sums of gradients over ranks have memory of their own until the update.
    pub sums_apart: bool,
    /// True if a step ends by freeing gradients, so that the next backward begins without any.
    pub frees_gradients: bool,
    /// True if only the first stage that holds a tied parameter has its optimizer states, and sends the others the updated parameter.
    pub shares_states: bool,
}

/// Messages in which ZeRO-1 and ZeRO-2 gather what they have updated.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatherUpdated {
    /// One message for all of a rank's parameters.
    #[default]
    Together,
    /// Messages one after the other, this many per parameter.
    Messages(f64),
    /// Broadcasts: each rank has whole parameters, and one rank sends after the other.
    Broadcasts,
}

/// Configurations in which ZeRO-2 and 3 leave parameters and gradients unsharded during gradient accumulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accumulate {
    /// None.
    #[default]
    Sharded,
    /// Pipelines.
    UnshardedInPipelines,
    /// All.
    Unsharded,
}

impl Accumulate {
    /// Returns whether parameters and gradients stay unsharded, in a pipeline or without one.
    pub fn is_unsharded(self, is_pipeline: bool) -> bool {
        match self {
            Accumulate::Sharded => false,
            Accumulate::UnshardedInPipelines => is_pipeline,
            Accumulate::Unsharded => true,
        }
    }
}

impl Default for Zero {
    fn default() -> Zero {
        Zero {
            bucket: 25.0 * MIB,
            gathers: GatherUpdated::Together,
            accumulate: Accumulate::Sharded,
            sums_whole: false,
            scatters_runs: false,
            sums_groups_once: false,
            updates_on_host: false,
            accumulates_wide: false,
            keeps_gathered: false,
            casts_gathered: false,
            keeps_ends: false,
            scatters_narrow: false,
            sums_apart: false,
            frees_gradients: false,
            shares_states: false,
        }
    }
}

impl Zero {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Zero {
            bucket,
            gathers,
            accumulate: _,
            sums_whole: _,
            scatters_runs: _,
            sums_groups_once: _,
            updates_on_host: _,
            accumulates_wide: _,
            keeps_gathered: _,
            casts_gathered: _,
            keeps_ends: _,
            scatters_narrow: _,
            sums_apart: _,
            frees_gradients: _,
            shares_states: _,
        } = *self;
        let mut figures = vec![Range::new(1.0, 1e12, "bytes").of("zero.bucket", bucket)];
        match gathers {
            GatherUpdated::Together | GatherUpdated::Broadcasts => {}
            GatherUpdated::Messages(messages) => {
                figures.push(Range::new(0.0, 1.0, "messages of a parameter").of("zero.gathers.messages", messages));
            }
        }
        figures
    }
}
