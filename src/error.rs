//! What can go wrong, for all verbs: the message that is printed and the status with which the process ends.

use ir::catalogue::Code;
use ir::diag::{Diagnostic, Diagnostics};
use runtime::data::DataError;
use std::fmt;

/// Why a verb has no answer.
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
    /// What was asked for is wrong or cannot be had.
    Input {
        /// Its code.
        code: Code,
        /// What is wrong.
        message: String,
        /// What to do.
        help: Option<String>,
    },
    /// The command line is not understood.
    Usage(String),
    /// A fault of ours.
    Fault {
        /// The pass or part that broke its word.
        pass: String,
        /// What it met.
        why: String,
    },
    /// A run failed. It may be started again.
    Failed {
        /// Its code.
        code: Code,
        /// What failed.
        message: String,
        /// How to go on.
        help: String,
    },
    /// A run failed, and would again if it were started as it was.
    Hopeless {
        /// Its code.
        code: Code,
        /// What failed.
        message: String,
        /// What to change.
        help: String,
    },
}

impl Error {
    /// An error of the input without a help line.
    pub fn input(code: Code, message: impl Into<String>) -> Error {
        Error::Input { code, message: message.into(), help: None }
    }

    /// A fault of ours.
    pub fn fault(pass: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::Fault { pass: pass.into(), why: why.to_string() }
    }

    /// A file or folder that cannot be read or written: `cannot write out/run.toml: no space left`.
    pub fn file(what: &str, path: &std::path::Path, source: &std::io::Error) -> Error {
        Error::input(Code::FileUnreadable, format!("cannot {what} {}: {source}", path.display()))
            .help("check the path and its permissions")
    }

    /// The same error of the input with what to do about it.
    #[must_use]
    pub fn help(self, cure: impl Into<String>) -> Error {
        match self {
            Error::Input { code, message, .. } => Error::Input { code, message, help: Some(cure.into()) },
            other => other,
        }
    }

    /// The status with which the process ends.
    pub fn status(&self) -> u8 {
        match self {
            Error::Diagnostics { .. } | Error::Input { .. } => 1,
            Error::Usage(_) => 2,
            Error::Fault { .. } => 3,
            Error::Failed { .. } => 5,
            Error::Hopeless { .. } => 6,
        }
    }
}

/// The whole message, ending in a newline.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Diagnostics { file, source, diagnostics } => f.write_str(&diagnostics.render(file, source)),
            Error::Input { code, message, help } => coded(f, *code, message, help.as_deref()),
            Error::Usage(message) => writeln!(f, "error: {message}\n      = help: meshwright --help lists the verbs"),
            Error::Fault { pass, why } => writeln!(
                f,
                "error: fault of ours in `{pass}`: {why}\n      = help: your input is not to blame; please report it \
                 with the command and the input"
            ),
            Error::Failed { code, message, help } | Error::Hopeless { code, message, help } => {
                coded(f, *code, message, Some(help))
            }
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

impl From<DataError> for Error {
    fn from(error: DataError) -> Error {
        let code = match &error {
            DataError::Missing { .. } | DataError::Unreadable { .. } | DataError::NotAFile { .. } => Code::DataMissing,
            DataError::EmptyFolder { .. } | DataError::NoText { .. } => Code::DataEmpty,
            DataError::TooLittle { .. } => Code::DataTooSmall,
            DataError::EmptySequence | DataError::Fraction { .. } => Code::BadOption,
        };
        // The message says what to do after the last semicolon.
        let message = error.to_string();
        match message.rsplit_once("; ") {
            Some((what, cure)) => Error::input(code, what).help(cure),
            None => Error::input(code, message),
        }
    }
}

impl From<scheduler::report::Error> for Error {
    fn from(error: scheduler::report::Error) -> Error {
        use scheduler::report::Error as Report;
        let code = match &error {
            Report::UnknownKind { .. } => Code::UnknownSchedule,
            Report::Request(_) | Report::Constraint { .. } => Code::UnsuitedSchedule,
            Report::Costs(_) => Code::BadCosts,
            Report::Stuck { .. } | Report::Wrong { .. } => return Error::fault("schedule", error),
        };
        Error::input(code, error.to_string()).help("meshwright schedules lists the kinds with their constraints")
    }
}
