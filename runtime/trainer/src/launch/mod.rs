//! Several processes of this program on this host, which one process starts and watches. They find each other by the variables of
//! `torchrun`. When one fails, all end, and may be started again; when the one that started them ends, so do they.

mod children;
mod elastic;
mod program;
mod restart;

use crate::error::Error;
use crate::train::{Signal, TrainRequest};
use children::{Children, End};
use elastic::{Crew, Fleet};
use ir::catalogue::Code;
use ir::options::ParallelConfig;
use restart::Restarts;
use std::ffi::OsString;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use children::end_with_launcher;
pub use program::program;
pub use program::started_as;

/// The time between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(20);

/// The time in which others say what they know of a process that a signal has ended, before they are ended too.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// The time beyond a silence after which a stopped process is ended, unless others say before that it is silent.
const STOPPED: Duration = Duration::from_secs(2);

/// The number of the signal that ends a process at once.
const KILLED: i32 = 9;

/// The exit status of a run that may be started again.
const MAY_BE_RESTARTED: u8 = 5;

/// Processes to start.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchRequest {
    /// Their number, at most.
    pub processes: usize,
    /// The subcommand of each, and its options.
    pub args: Vec<OsString>,
    /// The most restarts without a checkpoint between them.
    pub max_restarts: u32,
    /// The run that the arguments ask for. Restarts go on from the newest checkpoint in its folder.
    pub train: TrainRequest,
    /// The fewest devices to go on with, each process with its part of them; none if all processes must be there.
    pub min_devices: Option<u64>,
    /// A file that states the number of processes that are available, which may change.
    pub processes_from: Option<PathBuf>,
}

/// The user's side of a launch.
pub trait Observer {
    /// Returns the next signal that has come.
    fn signal(&mut self) -> Option<Signal>;
    /// Called with a note for the user.
    fn note(&mut self, note: &str);
    /// Returns a configuration of a number of devices for a run, if a search finds one.
    fn plan(&mut self, _train: &TrainRequest, _devices: u64) -> Option<ParallelConfig> {
        None
    }
}

/// The end of all processes.
enum Outcome {
    /// All is done, or a signal asked for the end: the exit status.
    Ended(u8),
    /// The run has saved, to go on with another number of processes.
    Resized,
    Failed(Failure),
}

/// The first process that failed.
#[derive(Clone, PartialEq, Debug)]
struct Failure {
    number: usize,
    end: End,
    /// The error that the first process with one has printed.
    said: Option<String>,
}

/// Starts processes, passes signals on to them, and waits until all have ended. The first signal goes to the first process, which tells
/// the others; the second ends all. A run that failed, but need not fail again, is started again, with fewer processes if some are lost.
/// Returns the exit status of the first process that failed, or 0.
///
/// # Errors
/// They cannot be started, or a signal that nobody sent here has ended one.
pub fn launch(request: &LaunchRequest, observer: &mut dyn Observer) -> Result<u8, Error> {
    let (mut restarts, mut fleet) = (Restarts::new(request), Fleet::new(request)?);
    loop {
        let Some(crew) = enough(&fleet, observer) else {
            return Ok(128 + Signal::Terminate.number());
        };
        let until = match until_ended(&fleet, &crew, &restarts.args(&crew), observer)? {
            Outcome::Ended(status) => return Ok(status),
            Outcome::Resized => {
                restarts.resume();
                Instant::now()
            }
            Outcome::Failed(failure) => {
                let Some(delay) = restarts.after(&failure, observer) else { return failure.status() };
                fleet.note(&failure, restarts.saved(), observer);
                Instant::now() + delay
            }
        };
        while Instant::now() < until {
            if let Some(signal) = observer.signal() {
                return Ok(128 + signal.number());
            }
            sleep(PAUSE);
        }
    }
}

/// Waits until there are enough processes to go on; none if a signal ends the wait.
fn enough(fleet: &Fleet<'_>, observer: &mut dyn Observer) -> Option<Crew> {
    let mut waited_for = None;
    loop {
        let available = fleet.available();
        if waited_for != Some(available) {
            if let Some(crew) = fleet.crew(available, observer) {
                return Some(crew);
            }
            observer.note(&format!("no configuration has so few processes ({available}): it waits for more"));
            waited_for = Some(available);
        }
        if observer.signal().is_some() {
            return None;
        }
        sleep(PAUSE);
    }
}

/// Starts processes, and waits until all have ended.
fn until_ended(
    fleet: &Fleet<'_>,
    crew: &Crew,
    args: &[OsString],
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let mut children = Children::start(crew.processes, args)?;
    let (mut asked, mut first, mut has_spoken) = (None, None, false);
    let (mut available, mut resizes) = (fleet.available(), false);
    let limit = STOPPED + fleet.silence();
    while children.is_running() {
        if let Some(signal) = observer.signal() {
            match asked.replace(signal) {
                None => children.tell(signal),
                Some(_) => return Ok(Outcome::Ended(128 + signal.number())),
            }
        }
        let now = fleet.available();
        if now != available && first.is_none() && asked.is_none() && !resizes {
            available = now;
            resizes = fleet.crew(now, observer).is_none_or(|other| other != *crew);
            if resizes {
                observer.note(&format!("{now} processes are available: the run saves, and goes on with them"));
                children.tell(Signal::Terminate);
            }
        }
        for (number, end) in children.ended()? {
            if end != End::Status(0) {
                first.get_or_insert((number, end, Instant::now()));
                has_spoken |= matches!(end, End::Status(_)) || asked.is_some();
            }
        }
        if let (Some(number), None) = (children.stopped(limit), first) {
            observer.note(&format!("process {number} has been stopped for {} s, and is ended", limit.as_secs_f64()));
            (first, has_spoken) = (Some((number, End::Signal(KILLED), Instant::now())), true);
        }
        if first.is_some_and(|(_, _, at)| has_spoken || at.elapsed() > LAST_WORDS) {
            children.kill();
        }
        sleep(PAUSE);
    }
    let saved = End::Status(128 + Signal::Terminate.number());
    Ok(match (first, asked) {
        (None, _) => Outcome::Ended(0),
        (Some((_, end, _)), None) if resizes && end == saved => Outcome::Resized,
        (Some((_, End::Status(status), _)), Some(_)) => Outcome::Ended(status),
        (Some((_, End::Signal(_), _)), Some(signal)) => Outcome::Ended(128 + signal.number()),
        (Some((number, end, _)), _) => Outcome::Failed(Failure { number, end, said: children.said() }),
    })
}

impl Failure {
    /// The exit status of the launch.
    ///
    /// # Errors
    /// A signal has ended the process, which could not say so itself.
    fn status(&self) -> Result<u8, Error> {
        match self.end {
            End::Status(status) => Ok(status),
            End::Signal(_) => Err(Error::Failed {
                code: Code::RankFailed,
                message: self.text(),
                help: "restart the run unchanged, or with --resume; the system log says whether memory ran out".into(),
            }),
        }
    }

    fn text(&self) -> String {
        match self.end {
            End::Status(status) => format!("process {} ended with status {status}", self.number),
            End::Signal(signal) => format!("signal {signal} ended process {}", self.number),
        }
    }
}
