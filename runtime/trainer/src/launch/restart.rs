//! Restarts of a run that failed: which failures a restart can help, from where it goes on, and after what time.

use super::children::End;
use super::elastic::Crew;
use super::{Failure, LaunchRequest, MAY_BE_RESTARTED, Observer};
use checkpoint::list;
use std::ffi::OsString;
use std::time::Duration;

/// The time before the first restart, which doubles with each further one, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Words of errors that come by chance, of a process that was stopped or cut off: the same ones again need not come a third time.
const BY_CHANCE: [&str; 2] = [" has said nothing for ", " is gone: "];

/// The restarts of a run so far.
pub(super) struct Restarts<'a> {
    request: &'a LaunchRequest,
    /// Those since the last checkpoint, and the step of that.
    count: u32,
    saved: Option<u64>,
    last: Option<Failure>,
    /// True after the first start.
    has_begun: bool,
}

impl Restarts<'_> {
    pub(super) fn new(request: &LaunchRequest) -> Restarts<'_> {
        Restarts { request, count: 0, saved: None, last: None, has_begun: false }
    }

    /// The arguments of the next start. A restart goes on from the last checkpoint, if there is one.
    pub(super) fn args(&self, crew: &Crew) -> Vec<OsString> {
        let args = match &crew.parallel {
            // The first start has the configuration that was asked for.
            Some(parallel) if self.has_begun || crew.processes < self.request.processes => {
                configured(&self.request.args, parallel)
            }
            _ => self.request.args.clone(),
        };
        if self.has_begun && self.saved.is_some() { resuming(&args) } else { args }
    }

    /// Notes that the run has saved, to be started again.
    pub(super) fn resume(&mut self) {
        (self.has_begun, self.saved, self.count) = (true, self.newest(), 0);
    }

    /// The step of the last checkpoint.
    pub(super) fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// The step of the newest checkpoint. Without one, or with one that cannot be listed, the run begins as it did.
    fn newest(&self) -> Option<u64> {
        list(&self.request.train.out).ok().and_then(|all| Some(all.last()?.0))
    }

    /// The time after which the run is started again; none if that would not help, or is not wanted.
    pub(super) fn after(&mut self, failure: &Failure, observer: &mut dyn Observer) -> Option<Duration> {
        let saved = self.newest();
        self.has_begun = true;
        if saved != self.saved {
            (self.saved, self.count) = (saved, 0);
        }
        let most = self.request.max_restarts;
        let (last, what) = (self.last.replace(failure.clone()), failure.text());
        if most == 0 || !matches!(failure.end, End::Signal(_) | End::Status(MAY_BE_RESTARTED)) {
            return None;
        }
        // An error names the step, so that the same one again is of the same step.
        if matches!(failure.end, End::Status(_))
            && failure.said.as_ref().is_some_and(|said| !BY_CHANCE.iter().any(|words| said.contains(words)))
            && last.is_some_and(|last| last.said == failure.said)
        {
            observer.note(&format!("{what}: the same step has failed twice with the same error, and would again"));
            return None;
        }
        if self.count == most {
            observer.note(&format!("{what}: {most} restarts without a checkpoint between them are used up"));
            return None;
        }
        let delay = FIRST.saturating_mul(1 << self.count.min(6)).min(LONGEST);
        self.count += 1;
        let from = saved.map_or("from the beginning".to_string(), |step| format!("after step {step}"));
        let (count, seconds) = (self.count, delay.as_secs());
        observer.note(&format!("{what}: restart {count} of {most} goes on {from} in {seconds} s"));
        Some(delay)
    }
}

/// The arguments of a run that resumes from its own folder, in place of what it began from.
fn resuming(args: &[OsString]) -> Vec<OsString> {
    let mut args = without(args, &["--resume", "--plan", "--devices", "--cluster", "--pin"], &["--auto"]);
    args.push("--resume".into());
    args
}

/// The arguments of a run in another configuration.
fn configured(args: &[OsString], parallel: &str) -> Vec<OsString> {
    let with_value = ["--parallel", "--mbs", "--zero", "--schedule", "--devices", "--cluster", "--pin"];
    let mut args = without(args, &with_value, &["--auto", "--sp"]);
    args.extend(["--parallel".into(), parallel.into()]);
    args
}

/// The arguments without some flags, with a value after them or without.
fn without(args: &[OsString], with_value: &[&str], bare: &[&str]) -> Vec<OsString> {
    let mut others: Vec<OsString> = Vec::new();
    let mut drops_value = false;
    for arg in args {
        let text = arg.to_string_lossy();
        let is_value = std::mem::take(&mut drops_value) && !text.starts_with('-');
        let name = text.split('=').next().unwrap_or(&text);
        drops_value = with_value.contains(&name) && !text.contains('=');
        if !is_value && !with_value.contains(&name) && !bare.contains(&name) {
            others.push(arg.clone());
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{Signal, TrainRequest};
    use std::path::PathBuf;

    struct Notes(Vec<String>);

    impl Observer for Notes {
        fn signal(&mut self) -> Option<Signal> {
            None
        }

        fn note(&mut self, note: &str) {
            self.0.push(note.to_string());
        }
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_restart_resumes_from_its_own_folder() {
        let resumed = |text| resuming(&words(text)).join(std::ffi::OsStr::new(" "));
        assert_eq!(resumed("train gpt2 --out a"), "train gpt2 --out a --resume");
        assert_eq!(resumed("train --resume b --out a --auto --devices 4"), "train --out a --resume");
        assert_eq!(resumed("train --resume=b --plan p.json --out a"), "train --out a --resume");
        assert_eq!(resumed("train --resume --steps 3"), "train --steps 3 --resume");
        let configured = |text| configured(&words(text), "dp=3").join(std::ffi::OsStr::new(" "));
        assert_eq!(configured("train --sp gpt2 --parallel dp=4 --mbs=2 --out a"), "train gpt2 --out a --parallel dp=3");
    }

    #[test]
    fn only_what_may_end_otherwise_is_started_again() {
        let request = LaunchRequest {
            processes: 2,
            args: words("train"),
            max_restarts: 2,
            train: TrainRequest { out: PathBuf::from("/nowhere"), ..TrainRequest::default() },
            min_devices: None,
            processes_from: None,
        };
        let failure = |end, said: &str| Failure { number: 1, end, said: Some(said.to_string()) };
        let after = |failures: &[Failure]| {
            let (mut restarts, mut notes) = (Restarts::new(&request), Notes(Vec::new()));
            let delays: Vec<_> = failures.iter().map(|failure| restarts.after(failure, &mut notes)).collect();
            (delays.into_iter().map(|delay| delay.map(|delay| delay.as_secs())).collect::<Vec<_>>(), notes.0)
        };
        let killed = failure(End::Signal(9), "a process is gone");
        let (delays, notes) = after(&[killed.clone(), killed.clone(), killed]);
        assert_eq!(delays, [Some(1), Some(2), None]);
        assert_eq!(notes[0], "signal 9 ended process 1: restart 1 of 2 goes on from the beginning in 1 s");
        assert!(notes[2].contains("2 restarts without a checkpoint between them are used up"), "{notes:?}");
        let broken = |step| failure(End::Status(5), &format!("it panicked (step {step})"));
        assert_eq!(after(&[broken(3), broken(4)]).0, [Some(1), Some(2)]);
        let (delays, notes) = after(&[broken(3), broken(3)]);
        assert!(delays == [Some(1), None] && notes[1].contains("twice with the same error"), "{notes:?}");
        let silent = failure(End::Status(5), "rank 2 failed: process 2 on a has said nothing for 3 s (step 0)");
        assert_eq!(after(&[silent.clone(), silent]).0, [Some(1), Some(2)]);
        assert_eq!(after(&[failure(End::Status(6), "not finite")]).0, [None]);
        assert_eq!(after(&[failure(End::Status(1), "no such file")]).0, [None]);
    }
}
