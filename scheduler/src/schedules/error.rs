//! Errors of pipelines and costs that a schedule kind rejects.

use super::{Choice, Chunks, SCHEDULES};
use crate::optimal::Infeasible;
use crate::placement::Placement;
use std::ops::RangeInclusive;

/// Constraint of a schedule kind that a pipeline or its costs violate. The message follows the kind's name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The kind has other numbers of stages per rank.
    #[error("it has {} per rank, not {chunks}", named(*.allowed))]
    Chunks {
        /// Numbers that the kind allows.
        allowed: Chunks,
        /// The given number.
        chunks: u32,
    },
    /// The kind has no groups of micro-batches.
    #[error("it has no groups: {}", kinds_with(Choice::Group))]
    NoGroups,
    /// The kind does not slice sequences.
    #[error("it has no slices: {}", kinds_with(Choice::Slices))]
    NoSlices,
    /// The kind has another placement.
    #[error("its stages lie as a {own}, not as a {given}")]
    Placement {
        /// Placement of the kind.
        own: Placement,
        /// Placement of the pipeline.
        given: Placement,
    },
    /// The costs have another number of stages than the pipeline.
    #[error("a {placement} on {ranks} ranks has {stages} stages, not {given}")]
    Stages {
        /// Placement of the kind.
        placement: Placement,
        /// Number of pipeline ranks.
        ranks: u32,
        /// Number of stages of the pipeline.
        stages: u32,
        /// Number of stages of the costs.
        given: u32,
    },
    /// Two directions share an odd number.
    #[error("two directions share the {shared}: {} would do, not {number}", even_neighbours(*.number))]
    Odd {
        /// Name of what they share: `ranks` or `micro-batches`.
        shared: &'static str,
        /// Its number.
        number: u32,
    },
    /// The last wave has one chunk.
    #[error("a wave is 2 chunks per rank: {} or {} chunks would do, not {chunks}", .chunks - 1, .chunks + 1)]
    HalfWave {
        /// Number of stages per rank.
        chunks: u32,
    },
    /// There are too few micro-batches for the kind's steady state.
    #[error("{ranks} ranks need {least} micro-batches or more, not {microbatches}{}", any_number(*.instead))]
    Microbatches {
        /// Number of pipeline ranks.
        ranks: u32,
        /// Smallest number that the kind allows.
        least: u32,
        /// The given number.
        microbatches: u32,
        /// A kind that takes any number.
        instead: Option<&'static str>,
    },
    /// Groups have another number of micro-batches.
    #[error("groups have {} to {} micro-batches, not {group}", .allowed.start(), .allowed.end())]
    GroupSize {
        /// Numbers that the pipeline allows.
        allowed: RangeInclusive<u32>,
        /// The given number.
        group: u32,
    },
    /// Groups have another number of micro-batches, which the number of ranks bounds.
    #[error("on {ranks} ranks groups have {least} to {ranks} micro-batches, not {group}")]
    GroupOfRanks {
        /// Number of pipeline ranks, and largest number of micro-batches.
        ranks: u32,
        /// Smallest number of micro-batches.
        least: u32,
        /// The given number.
        group: u32,
    },
    /// The last group would have too few micro-batches.
    #[error(
        "groups of {group} leave a last group of {last}, but each needs {least} micro-batches or more: {whole} \
         micro-batches would do"
    )]
    LastGroup {
        /// Number of micro-batches of a group.
        group: u32,
        /// Number of micro-batches of the last group.
        last: u32,
        /// Smallest number of micro-batches of a group.
        least: u32,
        /// Number of micro-batches of all groups but the last.
        whole: u32,
    },
    /// A rank cannot hold the forwards of one micro-batch.
    #[error("a rank must hold one forward{held} at least: the limit of rank {rank} is {limit}, it needs {needs}")]
    Memory {
        /// Stages that a forward is held of, ` of each of its stages`; empty if a rank has one.
        held: &'static str,
        /// The rank.
        rank: usize,
        /// Its memory limit.
        limit: f64,
        /// Smallest limit that the kind allows.
        needs: f64,
    },
    /// No order meets the memory limits.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
}

fn named(allowed: Chunks) -> String {
    match allowed {
        Chunks::Just(1) => "1 chunk".into(),
        Chunks::Just(number) => format!("{number} chunks"),
        Chunks::From(1) => "1 or more chunk".into(),
        Chunks::From(least) => format!("{least} or more chunks"),
    }
}

/// Returns the names of the kinds that have an option, as a sentence.
fn kinds_with(choice: Choice) -> String {
    let names: Vec<&str> = SCHEDULES.iter().filter(|kind| kind.choice == choice).map(|kind| kind.name).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    format!("{} {verb} them", names.join(", "))
}

fn even_neighbours(number: u32) -> String {
    if number == 1 { "2".into() } else { format!("{} or {}", number - 1, number + 1) }
}

fn any_number(instead: Option<&str>) -> String {
    instead.map_or_else(String::new, |kind| format!("; {kind} takes any number"))
}
