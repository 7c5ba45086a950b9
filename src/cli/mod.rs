//! The command line: a thin layer over the library. Each subcommand is a file; it returns its answer as text, or an error
//! with the exit status of the process.

mod compile;
mod diff;
mod drawing;
mod dump;
mod estimate;
mod explain;
mod export;
mod file_limit;
mod ignored;
mod log;
mod memory;
mod options;
mod plan;
mod prediction;
mod reshard;
#[cfg(feature = "train")]
mod running;
mod schedule;
mod search_watch;
mod status;
mod tables;
mod terminal;
mod toml_text;

use crate::error::Error;
use crate::json;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use compiler::text_files::write_text;
use std::borrow::Cow;
use std::error::Error as _;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::num::{IntErrorKind, ParseIntError};
use std::panic;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use support::one_line::printable;

/// Texts as one.
macro_rules! long_version {
    ($backends:literal, $features:literal) => {
        concat!(env!("CARGO_PKG_VERSION"), "\nbackends: ", $backends, "\nfeatures: ", $features)
    };
}

/// The version, what programs run on, and how processes are joined in this build.
const LONG_VERSION: &str = match (cfg!(feature = "train"), cfg!(feature = "cuda"), cfg!(feature = "mpi")) {
    (_, true, true) => long_version!("cpu, cuda (its libraries are loaded at run time)", "mpi"),
    (_, true, false) => long_version!("cpu, cuda (its libraries are loaded at run time)", "none"),
    (_, false, true) => long_version!("cpu", "mpi"),
    (true, false, false) => long_version!("cpu", "none"),
    (false, false, false) => long_version!("none", "none"),
};

/// Compile a model definition into a program for many devices, and run it
#[derive(Parser)]
#[command(name = "meshwright", version, long_version = LONG_VERSION, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  # the best configuration for 64 H100
  meshwright plan llama3-8b --gpus 64 --seq 8192 --global-batch 128
  # step time and memory of one configuration
  meshwright estimate llama3-8b --gpus 8 --seq 8192 --global-batch 64 --parallel tp=2,zero=1
  # a pipeline schedule, drawn
  meshwright schedule --stages 4 --microbatches 8 --kind 1f1b
  # the IR after every pass, as files in ir/
  meshwright compile gpt2 --parallel dp=2,tp=2 --dump ir
  # training on eight virtual devices
  meshwright train tiny-llama --data . --parallel dp=2,tp=2,pp=2
  # what an error code means
  meshwright error MW0204

Exit status:
  0  success
  1  invalid input
  2  usage error
  3  internal error
  4  no configuration fits, or the run exceeds the memory limit
  5  the run failed or the search stopped; the same command may be restarted
  6  the run failed; the same command would fail again
  129, 130, 143  ended by SIGHUP, SIGINT or SIGTERM")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands: a row makes a variant, and its arm in [`Command::run`].
macro_rules! subcommands {
    ($($(#[$feature:meta])? $name:ident($command:ty)),+ $(,)?) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[$feature])? $name($command)),+
        }

        impl Command {
            fn run(self) -> Result<Answer, Error> {
                match self {
                    $($(#[$feature])? Command::$name(command) => command.run().map(Into::into)),+
                }
            }
        }
    };
}

subcommands! {
    Plan(Box<plan::Plan>),
    Estimate(Box<estimate::Estimate>),
    Explain(explain::Explain),
    Diff(Box<diff::Diff>),
    Schedule(schedule::Schedule),
    Reshard(reshard::Reshard),
    Compile(compile::Compile),
    #[cfg(feature = "train")]
    Train(Box<running::train::Train>),
    #[cfg(feature = "tokenize")]
    Tokenize(running::tokenize::Tokenize),
    #[cfg(feature = "train")]
    Generate(running::generate::Generate),
    #[cfg(feature = "train")]
    Launch(running::launch::Launch),
    Export(Box<export::Export>),
    #[cfg(feature = "train")]
    ExportWeights(running::export_weights::ExportWeights),
    #[cfg(feature = "train")]
    Calibrate(running::calibrate::Calibrate),
    #[cfg(feature = "cuda")]
    GpuCheck(running::gpu_check::GpuCheck),
    Schedules(tables::schedules::Schedules),
    Models(tables::models::Models),
    Clusters(tables::clusters::Clusters),
    Stacks(tables::stacks::Stacks),
    Passes(tables::passes::Passes),
    Schema(tables::schema::Schema),
    Error(tables::error_code::ErrorCode),
    Completions(tables::completions::Completions),
    Man(tables::completions::Manual),
}

/// How a table is printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum TableFormat {
    /// Aligned columns
    #[default]
    Table,
    /// JSON
    Json,
}

/// The exit status where what is asked for does not fit into memory.
const NOTHING_FITS: u8 = 4;

/// Output of a subcommand, and the exit status of the process.
struct Answer {
    /// Lines that are printed to standard error before the text.
    notes: Vec<String>,
    text: String,
    /// True if the text has colours, and nothing else that steers a terminal.
    has_colours: bool,
    status: u8,
    /// Error that is printed to standard error after the text.
    complaint: Option<Error>,
}

impl Answer {
    fn done(text: String) -> Answer {
        Answer::ended(text, 0, None)
    }

    fn ended(text: String, status: u8, complaint: Option<Error>) -> Answer {
        Answer { notes: Vec::new(), text, has_colours: false, status, complaint }
    }

    /// Writes the text to the output file, if one is given, and returns the rest.
    fn put(self, output: Option<&Path>) -> Result<Answer, Error> {
        let Some(path) = output else { return Ok(self) };
        write_text(path, &self.text)?;
        Ok(Answer { text: String::new(), ..self })
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Answer {
        Answer::done(text)
    }
}

/// Runs the command line of this process and gives the status that it ends with.
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

/// Runs a command line, whose first word is the name of the program, and returns the exit status. Help and version end the
/// process.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    file_limit::hear();
    #[cfg(feature = "train")]
    crate::launch::end_with_launcher();
    guarded(|| print(words)).unwrap_or_else(|error| {
        // A closed standard error cannot be reported anywhere.
        let _ = write!(std::io::stderr().lock(), "{}", printable(&error.to_string()));
        status::of_error(&error)
    })
}

/// Parses the command line, runs the subcommand and prints its answer.
fn print(words: impl IntoIterator<Item = OsString>) -> Result<u8, Error> {
    log::install()?;
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match parsed(words.clone()) {
        Ok(cli) => cli,
        Err(told) if told.use_stderr() && told.kind() != MISSING => {
            let refused = Error::Usage(usage(&told));
            #[cfg(feature = "train")]
            running::train::decline_usage(&words, &refused);
            return Err(refused);
        }
        // Help and version are answers. Clap prints them in color where the terminal has it.
        Err(told) => told.exit(),
    };
    let answer = cli.command.run()?;
    for note in &answer.notes {
        let _ = writeln!(std::io::stderr().lock(), "{}", printable(note));
    }
    let text = if answer.has_colours { Cow::Borrowed(answer.text.as_str()) } else { printable(&answer.text) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that closes the pipe early is no error.
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            return Err(Error::file("write", Path::new("standard output"), &why));
        }
        _ => {}
    }
    if let Some(complaint) = answer.complaint {
        let _ = write!(std::io::stderr().lock(), "{}", printable(&complaint.to_string()));
    }
    Ok(answer.status)
}

/// The answer to a command line, for programs that have no process for it.
#[derive(Debug)]
pub struct Reply {
    /// The text for standard output.
    pub text: String,
    /// Lines for standard error.
    pub notes: Vec<String>,
    /// The exit status.
    pub status: u8,
    /// The error, if the status is not 0.
    pub error: Option<Error>,
}

/// Answers a command line, without the name of the program, and prints nothing. Training prints its progress all the same.
///
/// ```
/// let reply = meshwright::cli::reply(["models".into(), "--format".into(), "json".into()]);
/// assert!(reply.error.is_none() && reply.text.starts_with('['));
/// assert_eq!(meshwright::cli::reply(["plans".into()]).status, 2);
/// ```
pub fn reply(args: impl IntoIterator<Item = OsString>) -> Reply {
    let words = std::iter::once("meshwright".into()).chain(args);
    let answered = guarded(|| {
        let cli = parsed(words).map_err(|told| Error::Usage(usage(&told)))?;
        cli.command.run()
    });
    match answered {
        Ok(Answer { notes, text, status, complaint, .. }) => Reply { text, notes, status, error: complaint },
        Err(error) => {
            let (text, notes) = (String::new(), Vec::new());
            Reply { text, notes, status: status::of_error(&error), error: Some(error) }
        }
    }
}

/// Reads a command line. A negative number behind an option is its value, so that the option itself says why it cannot be.
fn parsed(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let takes_numbers = |arg: Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    let command = Cli::command().mut_subcommands(|command| command.mut_args(takes_numbers));
    Cli::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The kind of clap's error for an empty command line, which prints the help.
const MISSING: clap::error::ErrorKind = clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// Flags by the names that they had, and what has their place.
const RENAMED_FLAGS: [(&str, &str); 4] = [
    ("--mesh", "--parallel"),
    ("--layout", "--parallel"),
    ("--layouts", "--configs"),
    ("--explain", "the subcommand `error`: meshwright error [CODE]"),
];

/// Subcommands that a build may lack, and the feature that has them.
const FEATURES: [(&str, &str); 7] = [
    ("train", "train"),
    ("generate", "train"),
    ("launch", "train"),
    ("export-weights", "train"),
    ("calibrate", "train"),
    ("tokenize", "tokenize"),
    ("gpu-check", "cuda"),
];

/// Message of clap without its label and its last line, which the help line repeats.
fn usage(told: &clap::Error) -> String {
    if let (clap::error::ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (told.kind(), told.get(ContextKind::InvalidArg))
        && let Some((old, now)) = RENAMED_FLAGS.iter().find(|(old, _)| flag == old)
    {
        return format!(
            "`{old}` is now {}",
            if now.starts_with("--") { format!("`{now}`") } else { (*now).to_string() }
        );
    }
    if let (clap::error::ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) =
        (told.kind(), told.get(ContextKind::InvalidSubcommand))
        && let Some((_, feature)) = FEATURES.iter().find(|(command, _)| name == command)
    {
        return format!("`{name}` is not in this build: build it with cargo build --release --features {feature}");
    }
    let mut text = told.to_string();
    if let Some(why) = told.source().and_then(|why| why.downcast_ref::<ParseIntError>()) {
        let is_negative = told.get(ContextKind::InvalidValue).is_some_and(|value| value.to_string().starts_with('-'));
        text = text.replace(&why.to_string(), if is_negative { NEGATIVE } else { unread(why) });
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.split("\n\nFor more information").next().unwrap_or(text).trim_end().to_string()
}

/// The message for a whole number below zero.
const NEGATIVE: &str = "it cannot be below zero";

/// The message for a text that is no whole number.
fn unread(why: &ParseIntError) -> &'static str {
    match why.kind() {
        IntErrorKind::PosOverflow => "it is too large",
        _ => "write a whole number in digits, such as 8",
    }
}

/// The last panic of any thread, as `file:line: message`.
static LAST_PANIC: Mutex<Option<(String, String)>> = Mutex::new(None);

/// Runs `f`; a panic becomes an internal error.
fn guarded<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |place| format!("{}:{}", place.file(), place.line()));
        let message = info.payload_as_str().unwrap_or("panic").to_string();
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some((place, message));
    }));
    panic::catch_unwind(panic::AssertUnwindSafe(f)).unwrap_or_else(|_| {
        let last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (place, message) = last.unwrap_or_default();
        Err(Error::fault(place, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn features_have_the_subcommands_that_builds_may_lack() {
        let all = Cli::command();
        assert!(FEATURES.iter().all(|(name, _)| all.find_subcommand(name).is_some()));
    }

    #[test]
    fn a_panic_is_an_internal_error() {
        let error = guarded(|| -> Result<(), Error> { panic!("lost the thread") }).unwrap_err();
        let _ = panic::take_hook();
        assert_eq!(status::of_error(&error), 3);
        assert!(error.to_string().contains("lost the thread"), "{error}");
    }
}
