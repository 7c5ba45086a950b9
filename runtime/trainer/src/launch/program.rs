//! The program that is started for further processes: this one again.

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::OnceLock;

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Names the program with its first arguments, if it is not the executable of this process: an interpreter and what it runs. The
/// first call counts.
pub fn started_as(words: Vec<OsString>) {
    // A second call changes nothing.
    let _ = PROGRAM.set(words);
}

/// The program, to be given a subcommand.
///
/// # Errors
/// The system does not tell the executable of this process.
pub fn program() -> io::Result<Command> {
    match PROGRAM.get().and_then(|words| words.split_first()) {
        None => Ok(Command::new(env::current_exe()?)),
        Some((first, others)) => {
            let mut command = Command::new(first);
            command.args(others);
            Ok(command)
        }
    }
}
