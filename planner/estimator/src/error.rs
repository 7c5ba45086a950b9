//! Errors of estimates.

use compiler::compile_error::CompileError;
use compiler::parallel::ParallelError;
use compiler::request_error::RequestError;
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};
use ir::experts::Unfolded;
use ir::zero_groups::UnevenGroups;
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
    /// The ranks of dp and cp do not divide into groups of ZeRO.
    #[error(transparent)]
    ZeroGroups(#[from] UnevenGroups),
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
        /// Source of the limit, as the stack's file states it.
        stated: String,
        /// Name of the stack.
        stack: String,
        /// Values that the stack supports instead.
        supported: Vec<String>,
        /// Preset stacks that support the pin.
        others: Vec<String>,
    },
    /// Pins that a rule of the stack forbids.
    #[error("{stack} needs {rule}, which `{pins}` violates")]
    BeyondRule {
        /// The pins.
        pins: String,
        /// The rule's condition.
        rule: String,
        /// Source of the rule, as the stack's file states it.
        stated: String,
        /// Name of the stack.
        stack: String,
    },
    /// Devices that the stack does not run on.
    #[error("{stack} does not run on {device}")]
    BeyondVendor {
        /// Name of the stack.
        stack: String,
        /// Name of the devices.
        device: String,
        /// Source of the limit, as the stack's file states it.
        stated: String,
        /// Preset stacks that run on the devices.
        others: Vec<String>,
    },
    /// A precision recipe that the devices do not compute in.
    #[error("the devices of {cluster} do not compute in {precision}")]
    BeyondDevice {
        /// The recipe.
        precision: String,
        /// Name of the cluster.
        cluster: String,
        /// Recipes, or beginnings of them, that the devices compute in.
        has: Vec<String>,
    },
    /// More devices than the links join.
    #[error("the links of {cluster} join up to {most} devices, not {devices}")]
    UnjoinedDevices {
        /// Name of the cluster.
        cluster: String,
        /// Number of devices.
        devices: u64,
        /// Largest number that the links join.
        most: u64,
    },
    /// The headroom is out of range.
    #[error("`--headroom` is {headroom}, not a chance above 0 and below 100 percent")]
    Headroom {
        /// The headroom in percent.
        headroom: f64,
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
    /// Sizes are 0 or missing.
    #[error("{} 0 or missing", missing(.options))]
    NoSizes {
        /// The options, each with its largest value.
        options: Vec<(&'static str, u64)>,
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

/// Options with their verb: `--gpus` and `--seq` are.
fn missing(options: &[(&'static str, u64)]) -> String {
    let names: Vec<String> = options.iter().map(|(option, _)| format!("`--{option}`")).collect();
    match names.as_slice() {
        [] => "nothing is".to_string(),
        [one] => format!("{one} is"),
        [some @ .., last] => format!("{} and {last} are", some.join(", ")),
    }
}

/// Text on the source of a limit.
fn sourced(source: &str) -> String {
    if source.is_empty() { String::new() } else { format!(". The stack's file says: {source}") }
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
            Error::Devices { .. } | Error::Experts { .. } | Error::Folding(_) | Error::ZeroGroups(_) => {
                Some(Code::ImpossibleLayout)
            }
            Error::Line { .. } => Some(Code::RequestUnreadable),
            Error::HostMemory => Some(Code::NothingFits),
            Error::UnknownName { .. } => Some(Code::PrecisionRefused),
            Error::BeyondStack { .. }
            | Error::BeyondRule { .. }
            | Error::BeyondVendor { .. }
            | Error::BeyondDevice { .. } => Some(Code::BeyondStack),
            Error::UnjoinedDevices { .. } => Some(Code::ImpossibleLayout),
            Error::Headroom { .. }
            | Error::MemoryMargin { .. }
            | Error::EmptyDocument { .. }
            | Error::LongDocument { .. }
            | Error::NoSizes { .. }
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
            Error::ZeroGroups(error) => error.help(),
            Error::Line { .. } => {
                "a line is a configuration, or {\"parallel\": .., \"model\": .., \"gpus\": ..}".to_string()
            }
            Error::HostMemory => "recompute more, or offload fewer layers".to_string(),
            Error::UnknownName { option, name, known } => {
                let near = nearest(name, known.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                format!("{near}{option} is one of {}", known.join(", "))
            }
            Error::BeyondStack { others, stated, .. } => {
                let have = match others.as_slice() {
                    [] => "no preset stack supports it".to_string(),
                    some => format!("the stacks {} support it", some.join(", ")),
                };
                format!("{have}; --beyond-stack plans with it anyway{}", sourced(stated))
            }
            Error::BeyondVendor { others, stated, .. } => {
                let have = match others.as_slice() {
                    [] => "no preset stack does; --stack FILE names one of your own".to_string(),
                    some => format!("--stack with one of {}", some.join(", ")),
                };
                format!("{have}; --beyond-stack plans with it anyway{}", sourced(stated))
            }
            Error::BeyondDevice { has, .. } => {
                format!("--precision with one of {}; --beyond-stack plans with it anyway", has.join(", "))
            }
            Error::UnjoinedDevices { most, .. } => format!(
                "the nearest number of devices is {most}; a file with `from` and further [[links]] states how more are joined"
            ),
            Error::BeyondRule { stated, .. } => {
                format!("change the pins, or plan with them anyway (--beyond-stack){}", sourced(stated))
            }
            Error::Headroom { .. } => {
                "--headroom 5 plans with a chance of 95 % to fit; --memory-margin 0 fills devices by the prediction, whatever the \
                 chance"
                    .to_string()
            }
            Error::MemoryMargin { .. } => "give a share: 0.05 leaves 5 % of a device free".to_string(),
            Error::EmptyDocument { seq } | Error::LongDocument { seq, .. } => {
                format!("give the tokens of each document, from 1 to --seq {seq}")
            }
            Error::NoSizes { options } => {
                let ranges = options.iter().map(|(option, most)| format!("--{option} takes an integer from 1 to {most}"));
                ranges.collect::<Vec<_>>().join("; ")
            }
            Error::LargeSize { option, most, .. } => format!("--{option} takes an integer from 1 to {most}"),
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
