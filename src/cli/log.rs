//! Log of the libraries on standard error, for `MESHWRIGHT_LOG=TARGET=LEVEL,..`: spans with their times, and events.

use crate::error::Error;
use ir::catalogue::Code;
use std::env::{self, VarError};
use std::io::{Write, stderr};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::time::Uptime;
use tracing_subscriber::prelude::*;

/// Environment variable with the filter.
const VARIABLE: &str = "MESHWRIGHT_LOG";

/// The variable that earlier builds read.
const RENAMED: &str = "MESHWRIGHT_DEBUG";

/// Installs the log if the environment asks for one.
///
/// # Errors
/// The filter is malformed.
pub(super) fn install() -> Result<(), Error> {
    if env::var_os(RENAMED).is_some() {
        let line = format!("note: {RENAMED} is now {VARIABLE}, for example {VARIABLE}=meshwright_compiler=debug");
        // A closed standard error cannot be reported anywhere.
        let _ = writeln!(stderr().lock(), "{line}");
    }
    let text = match env::var(VARIABLE) {
        Ok(text) => text,
        Err(VarError::NotPresent) => return Ok(()),
        Err(VarError::NotUnicode(text)) => return Err(malformed(&text.to_string_lossy())),
    };
    let filter: Targets = text.parse().map_err(|_| malformed(&text))?;
    // A span is logged when it ends, with the time that it took.
    let log = fmt::layer().with_span_events(FmtSpan::CLOSE).with_timer(Uptime::default()).with_ansi(false);
    // Only a program that calls this function twice has a log already, which then stays.
    let _ = tracing_subscriber::registry().with(log.with_writer(stderr).with_filter(filter)).try_init();
    Ok(())
}

fn malformed(text: &str) -> Error {
    Error::input(Code::BadOption, format!("`{VARIABLE}={text}` is not a list of TARGET=LEVEL"))
        .help(format!("{VARIABLE}=meshwright_compiler=debug; the levels are error, warn, info, debug and trace"))
}
