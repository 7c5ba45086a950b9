//! Error codes of this crate: one catalogue entry per code, with its help.

use crate::check::{Law, Violation};
use crate::costs::CostsError;
use crate::cut::CutError;
use crate::draw::MeasuredError;
use crate::emit::EmitError;
use crate::foreign::{ForeignError, ReadError, Refused};
use crate::report::Error;
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

impl Coded for EmitError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            EmitError::NotDifferentiated | EmitError::NotPlanned { .. } => Code::NotPlanned,
            EmitError::Stages | EmitError::Copies { .. } => Code::BadStages,
            EmitError::Item { .. } | EmitError::Early { .. } | EmitError::Mail { .. } => Code::OrderViolated,
            EmitError::Boundary { .. }
            | EmitError::Unused { .. }
            | EmitError::UpdatedTwice { .. }
            | EmitError::Circular { .. }
            | EmitError::Scalar { .. } => Code::NoProgram,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            EmitError::NotDifferentiated | EmitError::NotPlanned { .. } => "compile the model from level 1",
            EmitError::Copies { .. } => "take more micro-batches, or a schedule of one chain",
            EmitError::Stages => "cut the model again: leave out the `staged` item, or correct it",
            EmitError::Item { .. } | EmitError::Early { .. } | EmitError::Mail { .. } => {
                "correct the rows, or leave the `schedule` item out"
            }
            EmitError::Unused { .. } => "make its calls depend on the loss, or take them out",
            EmitError::UpdatedTwice { .. } => "update a parameter in one block only",
            EmitError::Scalar { .. } => "the run gives %lr, %step and %seed; all else comes from the step graph",
            EmitError::Boundary { .. } | EmitError::Circular { .. } => {
                "correct the sections of the block, or compile the model from level 1"
            }
        };
        Some(help.to_string())
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

impl Coded for ReadError {
    fn code(&self) -> Option<Code> {
        Some(if *self == ReadError::Sliced { Code::UnsuitedSchedule } else { Code::ForeignSchedule })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            ReadError::Cell { .. } => {
                "a line is a rank, a cell an action as torch.distributed.pipelining writes it: 2F0"
            }
            ReadError::Message { .. } => "write each message at both ends, in one order, or leave all messages out",
            ReadError::Empty => "a line is a rank: 0F0,0F1,0B0,0B1",
            ReadError::Report(_) => "give a CSV, or what meshwright schedule --format json wrote",
            ReadError::Sliced => "write it with --format json, which --from reads too",
        };
        Some(help.to_string())
    }
}

impl Coded for Refused {
    fn code(&self) -> Option<Code> {
        self.violations.first().map_or(Some(Code::MissingAction), Coded::code)
    }

    fn help(&self) -> Option<String> {
        let otherwise = || Some("each stage does F and B, or F, I and W, once a micro-batch".to_string());
        self.violations.first().map_or_else(otherwise, Coded::help)
    }
}

impl Coded for ForeignError {
    fn code(&self) -> Option<Code> {
        match self {
            ForeignError::Refused(refused) => refused.code(),
            ForeignError::Costs(costs) => costs.code(),
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            ForeignError::Refused(refused) => refused.help(),
            ForeignError::Costs(costs) => costs.help(),
        }
    }
}

impl Coded for MeasuredError {
    fn code(&self) -> Option<Code> {
        Some(Code::ForeignSchedule)
    }

    fn help(&self) -> Option<String> {
        Some("give what meshwright train --trace, or schedule --format trace, wrote".to_string())
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

impl Coded for Error {
    /// The rows of a schedule of ours that are wrong are a fault of ours.
    fn code(&self) -> Option<Code> {
        match self {
            Error::UnknownKind(unknown) => unknown.code(),
            Error::Request(_) | Error::Constraint { .. } => Some(Code::UnsuitedSchedule),
            Error::Costs(costs) => costs.code(),
            Error::Sends { source, .. } => source.code(),
            Error::Stuck { .. } | Error::Wrong { .. } => None,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Error::Costs(costs) => costs.help(),
            Error::Request(_) => {
                Some("each is at least 1, and all together they are few enough to be drawn".to_string())
            }
            Error::UnknownKind(unknown) => unknown.help(),
            Error::Constraint { .. } => Some("meshwright schedules lists the kinds with their constraints".to_string()),
            Error::Sends { .. } => Some("run it with --sends async, or choose another kind".to_string()),
            Error::Stuck { .. } | Error::Wrong { .. } => None,
        }
    }
}
