//! The program of Python, and its reply.

use crate::error::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("reference.py");

/// The reply of the program.
#[derive(Deserialize)]
pub(super) struct Reply {
    /// Versions of PyTorch and `transformers`.
    pub(super) versions: String,
    /// Parameters of the class.
    pub(super) parameters: Outcome<u64>,
    /// Sequences of the small model's batch, and tokens of each.
    pub(super) batch: [u64; 2],
    /// The loss of the small model, whose weights and tensors are in the folder.
    pub(super) loss: Outcome<f64>,
}

/// A result, or why there is none.
pub(super) enum Outcome<T> {
    Value(T),
    Why(String),
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Outcome<T> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Outcome<T>, D::Error> {
        #[derive(Deserialize)]
        struct Fields<T> {
            value: Option<T>,
            why: Option<String>,
        }
        let fields = Fields::deserialize(from)?;
        Ok(fields.value.map_or_else(|| Outcome::Why(fields.why.unwrap_or_default()), Outcome::Value))
    }
}

/// Runs the program on two configurations in a folder, which then has the small model and its tensors. Where the Python has no PyTorch
/// or there is no such Python, the outcome says so.
///
/// # Errors
/// The folder cannot be written, or the reply is none.
pub(super) fn reply(
    python: &Path,
    folder: &Path,
    full: &Map<String, Value>,
    small: &Map<String, Value>,
) -> Result<Outcome<Reply>, Error> {
    let program = folder.join("reference.py");
    let texts = [
        (&program, PROGRAM.to_string()),
        (&folder.join("full.json"), text(full)),
        (&folder.join("small.json"), text(small)),
    ];
    for (path, text) in texts {
        fs::write(path, text).map_err(|why| Error::file("write", path, &why))?;
    }
    let said = folder.join("said.txt");
    let errors = File::create(&said).map_err(|why| Error::file("write", &said, &why))?;
    let mut command = Command::new(python);
    command.arg(&program).arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    match status_within(&mut command, PATIENCE) {
        Err(why) => Ok(Outcome::Why(format!("{}: {why}", python.display()))),
        Ok(status) if !status.success() => Ok(Outcome::Why(format!("{}: {}", python.display(), last(&said, status)))),
        Ok(_) => match fs::read(folder.join("reply.json")) {
            Err(_) => Ok(Outcome::Why(format!("{}: it ended without an answer: is it a Python?", python.display()))),
            Ok(reply) => serde_json::from_slice(&reply)
                .map(Outcome::Value)
                .map_err(|why| super::fault(format!("a bad reply: {why}"))),
        },
    }
}

fn text(keys: &Map<String, Value>) -> String {
    serde_json::to_string(keys).unwrap_or_default()
}

/// The time after which a Python is ended. Importing PyTorch from a slow disk takes a minute, and the small model seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// The time between two looks at a process.
const POLL: Duration = Duration::from_millis(20);

/// The status of a command that ends within a limit.
///
/// # Errors
/// The command cannot start, or it was ended at the limit.
fn status_within(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    let (mut child, start) = (command.spawn()?, Instant::now());
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("it had not ended after {} s", limit.as_secs())))
}

/// The last line of a failure, in which Python names the exception.
fn last(said: &Path, status: ExitStatus) -> String {
    let said = fs::read(said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    said.lines().rev().find(|line| !line.trim().is_empty()).map_or_else(|| status.to_string(), str::to_string)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let limit = Duration::from_secs(1);
        let why = status_within(Command::new("sleep").arg("600"), limit).unwrap_err();
        assert_eq!(why.to_string(), "it had not ended after 1 s");
        assert!(status_within(&mut Command::new("true"), PATIENCE).unwrap().success());
    }
}
