//! Errors of requests: what is wrong with an input, or with this program.

use crate::compile_error::CompileError;
use crate::parallel::ParallelError;
use crate::pass_manager::UnknownPass;
use crate::request_error::RequestError;
use ir::catalogue::Code;
use ir::diag::{Coded, Diagnostic, Diagnostics};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Why a request has no answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Error {
    /// A file of the user's is wrong, in places.
    Diagnostics {
        /// The file's name.
        file: String,
        /// Its text.
        source: String,
        /// All that is wrong with it.
        diagnostics: Diagnostics,
    },
    /// The request is invalid or infeasible.
    Input {
        /// Its code.
        code: Code,
        /// The message.
        message: String,
        /// The fix.
        help: Option<String>,
    },
    /// An internal error.
    Fault {
        /// The pass or part that broke its word.
        pass: String,
        /// The cause.
        why: String,
    },
    /// The deadline came before the answer.
    NotFinished {
        /// The missing thing.
        message: String,
        /// How to have it.
        help: String,
    },
    /// The caller cancelled the request: see [`CancelToken`](crate::cancel::CancelToken).
    Cancelled,
}

/// Message and fix of [`Error::Cancelled`].
const CANCELLED: [&str; 2] = ["the request was cancelled", "a deadline gives the best answer found by then instead"];

impl Error {
    /// An error of the input without a help line.
    pub fn input(code: Code, message: impl Into<String>) -> Error {
        Error::Input { code, message: message.into(), help: None }
    }

    /// An internal error.
    pub fn fault(pass: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::Fault { pass: pass.into(), why: why.to_string() }
    }

    /// Conversion of a library error: an input error, unless it has no code.
    pub fn of<E: Coded>(error: E) -> Error {
        let message = error.to_string();
        match error.code() {
            Some(code) => Error::Input { code, message, help: error.help() },
            None => Error::Fault { pass: module::<E>(), why: message },
        }
    }

    /// A file or folder that cannot be read or written: `cannot write out/run.toml: no space left`.
    pub fn file(what: &str, path: &Path, source: &io::Error) -> Error {
        let help = match source.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "a file is in the way: name a folder, or move it",
            ErrorKind::IsADirectory => "that is a folder: name a file",
            ErrorKind::InvalidData => "give a UTF-8 text file",
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free disk space, or choose another path",
            ErrorKind::Unsupported | ErrorKind::WouldBlock => {
                "name a file; where `-` is accepted, it means standard input"
            }
            ErrorKind::FileTooLarge if what == "read" => "make the file smaller, or name another file",
            ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f), or choose another path",
            _ => "check the path and its permissions",
        };
        Error::input(Code::FileUnreadable, format!("cannot {what} {}: {source}", path.display())).help(help)
    }

    /// The same error of the input with what to do about it.
    #[must_use]
    pub fn help(self, cure: impl Into<String>) -> Error {
        match self {
            Error::Input { code, message, .. } => Error::Input { code, message, help: Some(cure.into()) },
            other => other,
        }
    }

    /// The same input error with its place: a file's name.
    #[must_use]
    pub fn within(self, place: &str) -> Error {
        match self {
            Error::Input { code, message, help } => Error::Input { code, message: format!("{place}: {message}"), help },
            other => other,
        }
    }

    /// The code under which it is explained; `None` for an internal error.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Diagnostics { diagnostics, .. } => diagnostics.code(),
            Error::Input { code, .. } => Some(*code),
            Error::NotFinished { .. } => Some(Code::NotFinished),
            Error::Cancelled => Some(Code::Cancelled),
            Error::Fault { .. } => None,
        }
    }

    /// The fix, if one is known.
    pub fn fix(&self) -> Option<String> {
        match self {
            Error::Diagnostics { diagnostics, .. } => diagnostics.help(),
            Error::Input { help, .. } => help.clone(),
            Error::NotFinished { help, .. } => Some(help.clone()),
            Error::Cancelled => Some(CANCELLED[1].to_string()),
            Error::Fault { .. } => None,
        }
    }

    /// The message in one line, without code and help.
    pub fn message(&self) -> String {
        match self {
            Error::Input { message, .. } | Error::NotFinished { message, .. } => message.clone(),
            Error::Fault { pass, why } => format!("internal error in {pass}: {why}"),
            Error::Cancelled => CANCELLED[0].to_string(),
            Error::Diagnostics { .. } => self.to_string().lines().next().unwrap_or_default().to_string(),
        }
    }
}

/// The whole message, ending in a newline.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Diagnostics { file, source, diagnostics } => f.write_str(&diagnostics.render(file, source)),
            Error::Input { code, message, help } => coded(f, *code, message, help.as_deref()),
            Error::Fault { pass, why } => writeln!(
                f,
                "error: internal error in {pass}: {why}\n      = help: this is a bug in meshwright; please report it with \
                 the command and the input"
            ),
            Error::NotFinished { message, help } => coded(f, Code::NotFinished, message, Some(help)),
            Error::Cancelled => coded(f, Code::Cancelled, CANCELLED[0], Some(CANCELLED[1])),
        }
    }
}

fn coded(f: &mut fmt::Formatter<'_>, code: Code, message: &str, help: Option<&str>) -> fmt::Result {
    let diagnostic = Diagnostic::new(code, message);
    let diagnostic = match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    };
    write!(f, "{diagnostic}")
}

impl std::error::Error for Error {}

macro_rules! from_coded {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::of(error)
            }
        })+
    };
}

from_coded![
    CompileError,
    RequestError,
    ParallelError,
    UnknownPass,
    cost::PresetError,
    ir::diag::Diagnostics,
    ir::models::ConfigError,
    planner::PlanError,
    scheduler::schedules::UnknownSchedule,
];

/// The module of an error: `view::report`.
fn module<E>() -> String {
    let name = std::any::type_name::<E>();
    name.rsplit_once("::").map_or(name, |(module, _)| module).to_string()
}
