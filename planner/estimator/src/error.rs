//! Errors of estimates.

use compiler::compile_error::CompileError;
use compiler::parallel::ParallelError;
use compiler::request_error::RequestError;
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};
use ir::experts::Unfolded;
use scheduler::partition::PartitionError;
use scheduler::predict::PredictError;
use scheduler::schedules::UnknownSchedule;
use transforms::recompute::UnknownName;
use transforms::slices::SliceError;

/// Why a request has no estimate.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A model, cluster or stack cannot be opened.
    #[error("{}", .0.message())]
    Open(#[from] compiler::error::Error),
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The model cannot be planned, partitioned or scheduled under the configuration.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The degrees multiply to another number of devices.
    #[error("dp={dp} x tp={tp} x pp={pp} x cp={cp} is {devices} devices, not {gpus}")]
    Devices {
        /// Data-parallel degree.
        dp: u64,
        /// Tensor-parallel degree.
        tp: u64,
        /// Pipeline-parallel degree.
        pp: u64,
        /// Context-parallel degree.
        cp: u64,
        /// Product of the degrees.
        devices: u64,
        /// Devices of the request.
        gpus: u64,
    },
    /// The expert degrees do not divide the degrees that they are taken from.
    #[error("ep={ep} x etp={etp} does not divide dp={dp} x cp={cp} x tp={tp}")]
    Experts {
        /// Expert-parallel degree.
        ep: u64,
        /// Tensor-parallel degree within experts.
        etp: u64,
        /// Data-parallel degree.
        dp: u64,
        /// Context-parallel degree.
        cp: u64,
        /// Tensor-parallel degree.
        tp: u64,
    },
    /// The expert degrees cannot be taken from the axes of the other blocks.
    #[error(transparent)]
    Folding(#[from] Unfolded),
    /// The ZeRO group does not divide the data-parallel ranks.
    #[error("shard={shard} does not divide dp={dp} x cp={cp}")]
    Shard {
        /// Ranks of a group.
        shard: u64,
        /// Data-parallel degree.
        dp: u64,
        /// Context-parallel degree.
        cp: u64,
    },
    /// A line is not a configuration.
    #[error("`{line}`: {why}")]
    Line {
        /// The line.
        line: String,
        /// The parser's message.
        why: String,
    },
    /// The host lacks the memory for the offloaded activations.
    #[error("the offloaded activations do not fit into host memory")]
    HostMemory,
    /// An unknown number format or optimizer.
    #[error("`{option} {name}` is unknown")]
    UnknownName {
        /// The option.
        option: &'static str,
        /// Its value.
        name: String,
        /// The names that the option takes.
        known: Vec<&'static str>,
    },
    /// A pin that the stack does not support.
    #[error("`{item}` is pinned, but {stack} does not support it{}", has(.supported))]
    BeyondStack {
        /// The pin.
        item: String,
        /// Name of the stack.
        stack: String,
        /// Values that the stack supports instead.
        supported: Vec<String>,
        /// Preset stacks that support the pin.
        others: Vec<String>,
    },
    /// The memory margin is out of range.
    #[error("`--memory-margin` is {margin}, not a share from 0 up to 1")]
    MemoryMargin {
        /// The margin.
        margin: f64,
    },
    /// A document without tokens.
    #[error("`--lengths` has a document of 0 tokens")]
    EmptyDocument {
        /// Tokens of a sequence.
        seq: u64,
    },
    /// A document longer than a sequence.
    #[error("`--lengths` has a document of {length} tokens in sequences of {seq}")]
    LongDocument {
        /// Tokens of the document.
        length: u64,
        /// Tokens of a sequence.
        seq: u64,
    },
    /// A size is 0 or missing.
    #[error("`--{option}` is 0 or missing")]
    NoSize {
        /// The option.
        option: &'static str,
        /// Largest value.
        most: u64,
    },
    /// A size is larger than can be counted.
    #[error("`--{option}` is {size}, more than {most}")]
    LargeSize {
        /// The option.
        option: &'static str,
        /// Its value.
        size: u64,
        /// Largest value.
        most: u64,
    },
}

fn has(supported: &[String]) -> String {
    if supported.is_empty() { String::new() } else { format!(": it has {}", supported.join(", ")) }
}

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        match self {
            Error::Open(error) => error.code(),
            Error::Request(error) => error.code(),
            Error::Compile(error) => error.code(),
            Error::Devices { .. } | Error::Experts { .. } | Error::Folding(_) | Error::Shard { .. } => {
                Some(Code::ImpossibleLayout)
            }
            Error::Line { .. } => Some(Code::RequestUnreadable),
            Error::HostMemory => Some(Code::NothingFits),
            Error::UnknownName { .. } => Some(Code::PrecisionRefused),
            Error::BeyondStack { .. } => Some(Code::BeyondStack),
            Error::MemoryMargin { .. }
            | Error::EmptyDocument { .. }
            | Error::LongDocument { .. }
            | Error::NoSize { .. }
            | Error::LargeSize { .. } => Some(Code::BadOption),
        }
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Error::Open(error) => return error.fix(),
            Error::Request(error) => return error.help(),
            Error::Compile(error) => return error.help(),
            Error::Devices { .. } => "leave out dp to derive it, or choose degrees whose product is --gpus".to_string(),
            Error::Folding(_) => return None,
            Error::Experts { .. } => "ep x etp must divide dp x cp x tp".to_string(),
            Error::Shard { .. } => "ZeRO shards over data-parallel ranks: choose a divisor of their number".to_string(),
            Error::Line { .. } => {
                "a line is a configuration, or {\"parallel\": .., \"model\": .., \"gpus\": ..}".to_string()
            }
            Error::HostMemory => "recompute more, or leave out offload=true".to_string(),
            Error::UnknownName { option, name, known } => {
                let near = nearest(name, known.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                format!("{near}{option} is one of {}", known.join(", "))
            }
            Error::BeyondStack { others, .. } => {
                let have = match others.as_slice() {
                    [] => "no preset stack supports it".to_string(),
                    some => format!("the stacks {} support it", some.join(", ")),
                };
                format!("{have}; --beyond-stack plans with it anyway")
            }
            Error::MemoryMargin { .. } => "give a share: 0.05 leaves 5 % of a device free".to_string(),
            Error::EmptyDocument { seq } | Error::LongDocument { seq, .. } => {
                format!("give the tokens of each document, from 1 to --seq {seq}")
            }
            Error::NoSize { option, most } | Error::LargeSize { option, most, .. } => {
                format!("--{option} takes an integer from 1 to {most}")
            }
        })
    }
}

impl From<ParallelError> for Error {
    fn from(error: ParallelError) -> Error {
        Error::Request(error.into())
    }
}

impl From<UnknownName> for Error {
    fn from(error: UnknownName) -> Error {
        Error::Compile(planner::PlanError::from(error).into())
    }
}

/// Errors of the passes that an estimate shares with the compiler.
macro_rules! from_compile {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::Compile(error.into())
            }
        })+
    };
}

from_compile![planner::PlanError, PartitionError, PredictError, SliceError, UnknownSchedule];

impl From<Error> for compiler::error::Error {
    fn from(error: Error) -> compiler::error::Error {
        match error {
            Error::Open(error) => error,
            Error::Request(error) => error.into(),
            Error::Compile(error) => error.into(),
            error => compiler::error::Error::of(error),
        }
    }
}
