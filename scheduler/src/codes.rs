//! Error codes of this crate: one catalogue entry per code, with its help.

use crate::check::{Invariant, Violation};
use crate::costs::CostsError;
use crate::partition::PartitionError;
use crate::schedules::{SCHEDULES, UnknownSchedule};
use crate::simulate::SimulateError;
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};

/// Configuration with fewer stages: fewer on each rank if that is enough, else on a divisor of the ranks, which divides the
/// devices too.
fn fewer(stages: u32, ranks: u32, runs: usize) -> String {
    let each = runs / ranks.max(1) as usize;
    if stages > ranks && each > 0 {
        return format!("pp={ranks},vp={each}");
    }
    let divisor = (1..=ranks).rev().find(|fewer| ranks.is_multiple_of(*fewer) && *fewer as usize <= runs);
    format!("pp={}", divisor.unwrap_or(1))
}

impl Coded for PartitionError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            PartitionError::Empty => Code::EmptyModel,
            PartitionError::TooMany { .. } => Code::TooManyStages,
            PartitionError::Starts { .. } => Code::BadOption,
        })
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            PartitionError::Empty => {
                "write a model with a call: model @m(%x: input f32[b]) { call @block(%x) }".to_string()
            }
            PartitionError::TooMany { stages, ranks, runs } => {
                format!("use at most {runs} stages, such as --parallel {}", fewer(*stages, *ranks, *runs))
            }
            PartitionError::Starts { .. } => {
                "stages=a,b gives the first block instance of each stage but the first".to_string()
            }
        })
    }
}

impl Coded for Violation {
    fn code(&self) -> Option<Code> {
        Some(match self.invariant {
            Invariant::Range | Invariant::Missing | Invariant::Duplicate | Invariant::Rank => Code::MissingAction,
            Invariant::Order => Code::Deadlock,
            Invariant::Memory => Code::MemoryLimit,
            Invariant::StepEnd => Code::OrderViolated,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self.invariant {
            Invariant::Range | Invariant::Missing | Invariant::Duplicate => {
                "each stage does F and B, or F, I and W, once a micro-batch"
            }
            Invariant::Rank => "move the action to the row of the rank that holds its stage",
            Invariant::Order => "move the action that the others wait for to the front",
            Invariant::Memory => "choose a schedule that holds less, or raise the limit",
            Invariant::StepEnd => "end each row with R N U, and do nothing behind them",
        };
        Some(help.to_string())
    }
}

impl Coded for SimulateError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            SimulateError::Deadlock(_) => Code::Deadlock,
            SimulateError::Item { .. } | SimulateError::Incomplete { .. } => Code::MissingAction,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            SimulateError::Deadlock(_) => "move the action that the others wait for to the front",
            SimulateError::Item { .. } | SimulateError::Incomplete { .. } => {
                "each stage does F and B, or F, I and W, once a micro-batch"
            }
        };
        Some(help.to_string())
    }
}

impl Coded for CostsError {
    fn code(&self) -> Option<Code> {
        Some(Code::BadCosts)
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            CostsError::Length { places, expected, .. } => {
                format!("give one number for all, or {expected}: one per {places}")
            }
            CostsError::Value { .. } => "give a number in this range; any unit will do".to_string(),
            CostsError::Memory { .. } => "`mem_f` is what `mem_i` and `mem_w` free together".to_string(),
        })
    }
}

impl Coded for UnknownSchedule {
    fn code(&self) -> Option<Code> {
        Some(Code::UnknownSchedule)
    }

    fn help(&self) -> Option<String> {
        let near = nearest(&self.0, SCHEDULES.iter().map(|kind| kind.name));
        let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        Some(format!("{near}meshwright schedules describes them"))
    }
}
