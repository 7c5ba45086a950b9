//! Errors of the library's entry points: those of requests, of training runs, and of the command line.

use ir::catalogue::Code;
use ir::diag::Diagnostic;
use std::fmt;
use std::io;
use std::path::Path;

/// Why a call has no answer. Every error but an internal one has a [`Code`], a message and a fix.
#[derive(Clone, PartialEq, Debug)]
pub enum Error {
    /// A request is wrong, or this program is.
    Request(compiler::error::Error),
    /// The command line is not understood.
    Usage(String),
    /// A run failed. It may be started again.
    Failed {
        /// Its code.
        code: Code,
        /// The failure.
        message: String,
        /// How to go on.
        help: String,
    },
    /// A signal ended a run, which goes on when it is resumed.
    Ended {
        /// Its code.
        code: Code,
        /// The signal's number.
        signal: u8,
        /// How far the run has come.
        message: String,
        /// How to go on.
        help: String,
    },
    /// A run failed, and would again if it were started as it was.
    Hopeless {
        /// Its code.
        code: Code,
        /// The failure.
        message: String,
        /// The fix.
        help: String,
    },
}

impl Error {
    /// An error of the input without a help line.
    pub fn input(code: Code, message: impl Into<String>) -> Error {
        compiler::error::Error::input(code, message).into()
    }

    /// An internal error.
    pub fn fault(pass: impl Into<String>, why: impl fmt::Display) -> Error {
        compiler::error::Error::fault(pass, why).into()
    }

    /// A file or folder that cannot be read or written: `cannot write out/run.toml: no space left`.
    pub fn file(what: &str, path: &Path, source: &io::Error) -> Error {
        compiler::error::Error::file(what, path, source).into()
    }

    /// The same error of the input with what to do about it.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Error {
        match self {
            Error::Request(error) => error.help(help).into(),
            other => other,
        }
    }

    /// The same input error with its place: a file's name.
    #[must_use]
    pub fn within(self, place: &str) -> Error {
        match self {
            Error::Request(error) => error.within(place).into(),
            other => other,
        }
    }

    /// The code under which it is explained; `None` for an internal error.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Request(error) => error.code(),
            Error::Failed { code, .. } | Error::Ended { code, .. } | Error::Hopeless { code, .. } => Some(*code),
            Error::Usage(_) => Some(Code::BadUsage),
        }
    }

    /// The message in one line, without code and help.
    pub fn message(&self) -> String {
        match self {
            Error::Request(error) => error.message(),
            Error::Failed { message, .. } | Error::Ended { message, .. } | Error::Hopeless { message, .. } => {
                message.clone()
            }
            Error::Usage(message) => message.clone(),
        }
    }
}

/// The whole message, ending in a newline.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, message, help) = match self {
            Error::Request(error) => return error.fmt(f),
            Error::Usage(message) => {
                let help = "meshwright --help lists the subcommands, and SUBCOMMAND --help their options";
                (Code::BadUsage, message, help)
            }
            Error::Failed { code, message, help }
            | Error::Ended { code, message, help, .. }
            | Error::Hopeless { code, message, help } => (*code, message, help.as_str()),
        };
        write!(f, "{}", Diagnostic::new(code, message).help(help))
    }
}

impl std::error::Error for Error {}

impl From<compiler::error::Error> for Error {
    fn from(error: compiler::error::Error) -> Error {
        Error::Request(error)
    }
}

#[cfg(feature = "train")]
impl From<trainer::error::Error> for Error {
    fn from(error: trainer::error::Error) -> Error {
        use trainer::error::Error as RunError;
        match error {
            RunError::Request(error) => Error::Request(error),
            RunError::Failed { code, message, help } => Error::Failed { code, message, help },
            RunError::Ended { code, signal, message, help } => Error::Ended { code, signal, message, help },
            RunError::Hopeless { code, message, help } => Error::Hopeless { code, message, help },
        }
    }
}

/// Conversions of library errors.
macro_rules! from_errors {
    ($into:path: $($error:ty),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::Request($into(error))
            }
        })+
    };
}

from_errors![
    compiler::error::Error::from:
    autotune::error::Error,
    compiler::compile_error::CompileError,
    compiler::parallel::ParallelError,
    compiler::pass_manager::UnknownPass,
    compiler::request_error::RequestError,
    cost::PresetError,
    estimator::Error,
    ir::diag::Diagnostics,
    ir::models::ConfigError,
    planner::PlanError,
    scheduler::schedules::UnknownSchedule,
];

from_errors![
    compiler::error::Error::of:
    codegen::CodegenError,
    scheduler::check::Violation,
    scheduler::costs::CostsError,
    scheduler::partition::PartitionError,
    scheduler::simulate::SimulateError,
    transforms::differentiate::DifferentiateError,
    transforms::rewrite::RewriteError,
    transforms::slices::SliceError,
    view::draw::MeasuredError,
    view::interop::ImportError,
    view::interop::ReadError,
    view::report::Error,
];

#[cfg(feature = "train")]
from_errors![
    compiler::error::Error::of:
    checkpoint::Error,
    data::DataError,
    exec::Error,
    weights::Error,
];

#[cfg(feature = "pt2")]
from_errors![compiler::error::Error::of: pt2::Error];

#[cfg(feature = "tokenize")]
from_errors![compiler::error::Error::of: tokenize::Error];
