//! Error codes of this crate: one catalogue entry per code, with its help.

use crate::draw::MeasuredError;
use crate::interop::{ImportError, InvalidSchedule, ReadError};
use crate::report::Error;
use ir::catalogue::Code;
use ir::diag::Coded;

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

impl Coded for InvalidSchedule {
    fn code(&self) -> Option<Code> {
        self.violations.first().map_or(Some(Code::MissingAction), Coded::code)
    }

    fn help(&self) -> Option<String> {
        match self.violations.first() {
            Some(violation) => violation.help(),
            None => Some("each stage does F and B, or F, I and W, once a micro-batch".to_string()),
        }
    }
}

impl Coded for ImportError {
    fn code(&self) -> Option<Code> {
        match self {
            ImportError::InvalidSchedule(refused) => refused.code(),
            ImportError::Costs(costs) => costs.code(),
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            ImportError::InvalidSchedule(refused) => refused.help(),
            ImportError::Costs(costs) => costs.help(),
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
