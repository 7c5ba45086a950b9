//! Error codes of this crate: one catalogue entry per code, with its help.

use crate::check::{Law, Violation};
use crate::costs::CostsError;
use crate::cut::CutError;
use crate::schedules::{SCHEDULES, UnknownSchedule};
use crate::simulate::SimulateError;
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};

impl Coded for CutError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            CutError::Empty => Code::EmptyModel,
            CutError::TooMany { .. } => Code::TooManyStages,
            CutError::Starts { .. } => Code::BadOption,
        })
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            CutError::Empty => "write a model with a call: model @m(%x: input f32[b]) { call @block(%x) }".to_string(),
            CutError::TooMany { runs, .. } => format!("use at most {runs} stages: --parallel pp={runs}"),
            CutError::Starts { .. } => "stages=a,b gives the first block run of each stage but the first".to_string(),
        })
    }
}

impl Coded for Violation {
    fn code(&self) -> Option<Code> {
        Some(match self.law {
            Law::Range | Law::Missing | Law::Duplicate | Law::Rank => Code::MissingAction,
            Law::Order => Code::Deadlock,
            Law::Memory => Code::MemoryLimit,
            Law::StepEnd => Code::OrderViolated,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self.law {
            Law::Range | Law::Missing | Law::Duplicate => "each stage does F and B, or F, I and W, once a micro-batch",
            Law::Rank => "move the action to the row of the rank that holds its stage",
            Law::Order => "move the action that the others wait for to the front",
            Law::Memory => "choose a schedule that holds less, or raise the limit",
            Law::StepEnd => "end each row with R N U, and do nothing behind them",
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
