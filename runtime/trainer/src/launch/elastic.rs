//! The number of processes of a launch that may shrink and grow: by a file that others write, or because processes are lost.

use super::children::End;
use super::{Failure, LaunchRequest, Observer};
use crate::train::{TrainRequest, check_request};
use compiler::parallel;
use ir::options::ParallelConfig;
use std::fs;
use std::time::Duration;

/// The processes that a launch may have.
pub(super) struct Fleet<'a> {
    request: &'a LaunchRequest,
    /// The configuration of all processes.
    whole: ParallelConfig,
    /// Processes that signals have ended again and again.
    lost: usize,
    /// The process that a signal ended last, and the checkpoint then.
    last: Option<(usize, Option<u64>)>,
}

/// The processes of a start, and their configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Crew {
    pub(super) processes: usize,
    /// Its text, if others may have another one.
    pub(super) parallel: Option<String>,
}

impl Fleet<'_> {
    /// All processes of a request.
    ///
    /// # Errors
    /// Its configuration cannot be.
    pub(super) fn new(request: &LaunchRequest) -> Result<Fleet<'_>, crate::error::Error> {
        Ok(Fleet { request, whole: request.train.parallel()?, lost: 0, last: None })
    }

    /// True if the number of processes may change.
    fn is_elastic(&self) -> bool {
        self.request.min_devices.is_some()
    }

    /// Devices of each process.
    fn each(&self) -> u64 {
        self.whole.devices() / self.request.processes as u64
    }

    /// The number of processes that are there now. A file that is not there, or has no number, says nothing.
    pub(super) fn available(&self) -> usize {
        let all = self.request.processes;
        let stated = self.request.processes_from.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let stated: Option<usize> = stated.and_then(|text| text.trim().parse().ok());
        stated.unwrap_or(all - self.lost.min(all - 1)).min(all)
    }

    /// The start with the most of the available processes that can run: other data parallelism with all else as it is, or a plan. None if
    /// fewer are left than may be.
    pub(super) fn crew(&self, available: usize, observer: &mut dyn Observer) -> Option<Crew> {
        let (all, least) = (self.request.processes, self.request.min_devices.unwrap_or(0));
        if !self.is_elastic() {
            return Some(Crew { processes: all, parallel: None });
        }
        let mut counts = (1..=available).rev().take_while(|&count| count as u64 * self.each() >= least);
        let rescaled = counts.clone().find_map(|count| Some((count, self.rescaled(count)?)));
        let (processes, config) =
            rescaled.or_else(|| counts.find_map(|count| Some((count, self.planned(count, observer)?))))?;
        Some(Crew { processes, parallel: Some(parallel::print(&config)) })
    }

    /// The configuration of a number of processes that differs in data parallelism alone.
    fn rescaled(&self, count: usize) -> Option<ParallelConfig> {
        if count == self.request.processes {
            return Some(self.whole.clone());
        }
        let (all, count) = (self.request.processes as u64, count as u64);
        let dp = (self.whole.dp * count).is_multiple_of(all).then_some(self.whole.dp * count / all)?;
        let batch = self.request.train.global_batch;
        let mbs = (1..=self.whole.mbs).rev().find(|mbs| batch.is_multiple_of(dp * mbs))?;
        self.runnable(ParallelConfig { dp, mbs, ..self.whole.clone() })
    }

    fn planned(&self, count: usize, observer: &mut dyn Observer) -> Option<ParallelConfig> {
        self.runnable(observer.plan(&self.request.train, count as u64 * self.each())?)
    }

    /// The time after which a process that says nothing has failed.
    pub(super) fn silence(&self) -> Duration {
        Duration::from_secs_f64(self.request.train.silence)
    }

    fn runnable(&self, config: ParallelConfig) -> Option<ParallelConfig> {
        let parallel = parallel::print(&config);
        let alone = TrainRequest { parallel, comm: "threads".into(), sums: None, ..self.request.train.clone() };
        let plain = TrainRequest { mbs: None, sp: None, zero: None, schedule: None, ..alone };
        check_request(&plain).is_ok().then_some(config)
    }

    /// Notes a failure. A process that a signal has ended twice without a checkpoint between is lost, if others may go on without.
    pub(super) fn note(&mut self, failure: &Failure, saved: Option<u64>, observer: &mut dyn Observer) {
        let End::Signal(signal) = failure.end else {
            self.last = None;
            return;
        };
        let is_again = self.last.replace((failure.number, saved)) == Some((failure.number, saved));
        let left = self.available().saturating_sub(1);
        let may_shrink = self.is_elastic() && self.request.processes_from.is_none();
        if is_again && may_shrink && left as u64 * self.each() >= self.request.min_devices.unwrap_or(1).max(1) {
            self.lost += 1;
            self.last = None;
            let number = failure.number;
            observer.note(&format!("signal {signal} ended process {number} twice: {left} processes go on without it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Signal;
    use std::path::PathBuf;

    /// A plan for every number of devices that 2 divides.
    struct Planner;

    impl Observer for Planner {
        fn signal(&mut self) -> Option<Signal> {
            None
        }

        fn note(&mut self, _: &str) {}

        fn plan(&mut self, _: &TrainRequest, devices: u64) -> Option<ParallelConfig> {
            devices.is_multiple_of(2).then(|| ParallelConfig { tp: 2, dp: devices / 2, ..ParallelConfig::default() })
        }
    }

    fn request(processes: usize, parallel: &str, global_batch: u64, least: u64) -> LaunchRequest {
        let train = TrainRequest {
            model: "tiny-llama".into(),
            parallel: parallel.into(),
            seq: 16,
            global_batch,
            data: env!("CARGO_MANIFEST_DIR").into(),
            ..TrainRequest::default()
        };
        LaunchRequest {
            processes,
            args: Vec::new(),
            max_restarts: 1,
            train,
            min_devices: Some(least),
            processes_from: None,
        }
    }

    #[test]
    fn fewer_processes_have_less_data_parallelism_or_a_plan() {
        let crew = |request: &LaunchRequest, available| {
            let crew = Fleet::new(request).unwrap().crew(available, &mut Planner)?;
            let config = parallel::parse(&crew.parallel?).unwrap();
            Some((crew.processes, config.dp, config.tp, config.mbs))
        };
        let eight = request(8, "dp=8,mbs=3", 24, 2);
        let found = [8, 7, 6, 5, 3, 2, 1].map(|available| crew(&eight, available));
        let some = |processes, dp, mbs| Some((processes, dp, 1, mbs));
        // 24 sequences divide by 6, 4, 3 and 2.
        assert_eq!(
            found,
            [some(8, 8, 3), some(6, 6, 2), some(6, 6, 2), some(4, 4, 3), some(3, 3, 2), some(2, 2, 3), None]
        );
        // Half of the ranks of tp=4 cannot be, but are planned for.
        let two = request(2, "tp=4", 8, 1);
        assert_eq!((crew(&two, 2), crew(&two, 1)), (Some((2, 1, 4, 8)), Some((1, 1, 2, 1))));
    }

    #[test]
    fn a_process_is_lost_when_signals_end_it_twice() {
        let eight = request(4, "dp=4", 8, 2);
        let mut fleet = Fleet::new(&eight).unwrap();
        let failure = |number, end| Failure { number, end, said: None };
        let mut after = |number, end, saved| {
            fleet.note(&failure(number, end), saved, &mut Planner);
            fleet.available()
        };
        assert_eq!([after(1, End::Signal(9), None), after(1, End::Signal(9), Some(5))], [4, 4], "it had saved");
        assert_eq!([after(1, End::Status(5), Some(5)), after(1, End::Signal(9), Some(5))], [4, 4]);
        assert_eq!([after(1, End::Signal(9), Some(5)), after(0, End::Signal(9), Some(5))], [3, 3]);
        assert_eq!([after(0, End::Signal(9), Some(5)), after(0, End::Signal(9), Some(5))], [2, 2]);
        assert_eq!(after(0, End::Signal(9), Some(5)), 2, "fewer than may be");
    }

    #[test]
    fn a_file_states_the_number_of_processes() {
        let path = std::env::temp_dir().join(format!("meshwright-processes-{}", std::process::id()));
        let request = LaunchRequest { processes_from: Some(PathBuf::from(&path)), ..request(8, "dp=8", 24, 2) };
        let fleet = Fleet::new(&request).unwrap();
        assert_eq!(fleet.available(), 8, "there is no file");
        for (text, count) in [("6\n", 6), (" 12", 8), ("x", 8), ("0", 0)] {
            fs::write(&path, text).unwrap();
            assert_eq!(fleet.available(), count);
        }
        fs::remove_file(path).unwrap();
    }
}
