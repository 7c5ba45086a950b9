//! Several processes of this program on this host, which one process starts and watches. They find each other by the variables of
//! `torchrun`. When one fails, all end; when the one that started them ends, so do they.

mod children;

use crate::error::Error;
use crate::train::Signal;
use children::{Children, End};
use ir::catalogue::Code;
use std::ffi::OsString;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use children::end_with_launcher;

/// The time between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(20);

/// The time in which others say what they know of a process that a signal has ended, before they are ended too.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// Processes to start.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchRequest {
    /// Their number.
    pub processes: usize,
    /// The subcommand of each, and its options.
    pub args: Vec<OsString>,
}

/// Starts processes, passes signals on to them, and waits until all have ended. The first signal goes to the first process, which tells
/// the others; the second ends all. Returns the exit status of the first one that failed, or 0.
///
/// # Errors
/// They cannot be started, or a signal that nobody sent here has ended one.
pub fn launch(request: &LaunchRequest, signals: &mut dyn FnMut() -> Option<Signal>) -> Result<u8, Error> {
    let mut children = Children::start(request)?;
    let (mut asked, mut first, mut has_spoken) = (None, None, false);
    while children.is_running() {
        if let Some(signal) = signals()
            && asked.replace(signal).is_some()
        {
            children.kill();
            return Ok(128 + signal.number());
        } else if let Some(signal) = asked.filter(|_| !children.is_told()) {
            children.tell(signal);
        }
        for (number, end) in children.ended()? {
            if end != End::Status(0) {
                first.get_or_insert((number, end, Instant::now()));
                has_spoken |= matches!(end, End::Status(_)) || asked.is_some();
            }
        }
        if first.is_some_and(|(_, _, at)| has_spoken || at.elapsed() > LAST_WORDS) {
            children.kill();
        }
        sleep(PAUSE);
    }
    match (first, asked) {
        (None, _) => Ok(0),
        (Some((_, End::Status(status), _)), _) => Ok(status),
        (Some((_, End::Signal(_), _)), Some(signal)) => Ok(128 + signal.number()),
        (Some((number, End::Signal(signal), _)), None) => Err(killed(number, signal)),
    }
}

fn killed(number: usize, signal: i32) -> Error {
    Error::Failed {
        code: Code::RankFailed,
        message: format!("signal {signal} ended process {number}"),
        help: "restart the run unchanged, or with --resume; the system log says whether memory ran out".into(),
    }
}
