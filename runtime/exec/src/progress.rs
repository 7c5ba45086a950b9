//! Progress of the threads of ranks. A thread notes each instruction that it begins, by two stores and without a clock. The thread that
//! waits for the ranks of a process looks at these notes from time to time: a rank is stuck if it stays at one instruction for too long.

use comm::ThreadRole;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest instruction of a rank so far, times this, is no sign that the rank is stuck.
const FACTOR: u32 = 20;

/// The time that each instruction may take in the first step and the first evaluation: memory is touched first, and no instruction has
/// shown yet how long it takes.
const FIRST: Duration = Duration::from_secs(300);

/// The number of looks within the limit, and the most time between two.
const LOOKS: u32 = 64;
const PAUSE: Duration = Duration::from_secs(1);

/// Place of a thread in its rank program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Site {
    /// The thread has nothing to compute: it waits for others, or for the next step.
    Idle,
    /// The beginning of a step, at which the device gets its input.
    Begin,
    /// The end of a step, at which the device gives its results.
    End,
    /// A copy of a parameter or state to or from the rank's memory, by its number.
    State(u32),
    /// An action, by its number.
    Action(u32),
    /// A step of a body invocation, by their numbers.
    Step(u32, u32),
}

impl Site {
    fn code(self) -> u64 {
        match self {
            Site::Idle => 0,
            Site::Begin => 1,
            Site::End => 2,
            Site::State(slot) => 1 << 32 | u64::from(slot),
            Site::Action(action) => 2 << 32 | u64::from(action),
            Site::Step(run, step) => (3 + u64::from(run)) << 32 | u64::from(step),
        }
    }

    fn of(code: u64) -> Site {
        match (code >> 32, code as u32) {
            (0, 0) => Site::Idle,
            (0, 1) => Site::Begin,
            (0, _) => Site::End,
            (1, slot) => Site::State(slot),
            (2, action) => Site::Action(action),
            (run, step) => Site::Step((run - 3) as u32, step),
        }
    }
}

/// Note of a thread, which others read: its site, and how many it has had.
#[derive(Default)]
pub(super) struct Note {
    site: AtomicU64,
    count: AtomicU64,
}

/// A thread's own end of its note.
#[derive(Default)]
pub(super) struct Progress {
    note: Arc<Note>,
    count: u64,
    /// True if the next kernel never ends, to test what finds it.
    pub(super) sticks: bool,
}

impl Progress {
    pub(super) fn note(&self) -> Arc<Note> {
        self.note.clone()
    }

    /// Notes that the thread begins what is at a site.
    pub(super) fn begin(&mut self, site: Site) {
        self.count += 1;
        self.note.site.store(site.code(), Ordering::Relaxed);
        self.note.count.store(self.count, Ordering::Relaxed);
        if self.sticks && matches!(site, Site::Step(..) | Site::End) {
            loop {
                thread::park();
            }
        }
    }

    /// Notes that the thread has nothing to compute.
    pub(super) fn rest(&self) {
        self.note.site.store(Site::Idle.code(), Ordering::Relaxed);
    }
}

/// Watch over the ranks of a process.
pub(super) struct Watch {
    limit: Duration,
    ranks: Vec<Watched>,
    /// The rank program that runs or has run last.
    row: usize,
    /// The rank programs that have run once.
    have_run: BTreeSet<usize>,
    looked: Instant,
}

/// Knowledge of the watch about a rank.
struct Watched {
    /// The main thread and the async worker.
    threads: [Seen; 2],
    /// The longest time at one instruction.
    longest: Duration,
}

/// Knowledge of the watch about a thread: its note, and for how long this has been the same.
struct Seen {
    note: Arc<Note>,
    was: (u64, u64),
    since: Duration,
}

/// A rank that is stuck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stuck {
    /// Its place among the ranks of the process.
    pub(super) place: usize,
    /// The thread, and where it is.
    pub(super) role: ThreadRole,
    pub(super) site: Site,
    /// The rank program.
    pub(super) row: usize,
    /// For how long it has been there.
    pub(super) since: Duration,
}

impl Watch {
    /// A watch over ranks by the notes of their main threads and async workers. An instruction may always take as long as the limit.
    pub(super) fn new(limit: Duration, notes: impl Iterator<Item = [Arc<Note>; 2]>) -> Watch {
        let ranks = notes.map(|notes| {
            let threads = notes.map(|note| Seen { note, was: (0, 0), since: Duration::ZERO });
            Watched { threads, longest: Duration::ZERO }
        });
        Watch { limit, ranks: ranks.collect(), row: 0, have_run: BTreeSet::new(), looked: Instant::now() }
    }

    /// The time between two looks.
    pub(super) fn pause(&self) -> Duration {
        (self.limit / LOOKS).min(PAUSE)
    }

    /// Begins to watch the ranks at a rank program, or without one between two.
    pub(super) fn begin(&mut self, row: Option<usize>, now: Instant) {
        (self.row, self.looked) = (row.unwrap_or(self.row), now);
    }

    /// Notes that all ranks have come to the end of a rank program or of what they did without one.
    pub(super) fn end(&mut self, row: Option<usize>) {
        self.have_run.extend(row);
        for Watched { threads, longest } in &mut self.ranks {
            threads.iter_mut().for_each(|thread| *longest = std::mem::take(&mut thread.since).max(*longest));
        }
    }

    /// Looks at all ranks, and gives one that is stuck. `is_waiting`: whether the ranks' devices wait for others, and the ranks with them.
    pub(super) fn look(&mut self, now: Instant, is_waiting: bool) -> Option<Stuck> {
        // A process that was stopped, or had no processor, has not seen that nothing moved meanwhile.
        let passed = now.saturating_duration_since(self.looked).min(2 * self.pause());
        self.looked = now;
        let least = if self.have_run.contains(&self.row) { self.limit } else { self.limit.max(FIRST) };
        for (place, Watched { threads, longest }) in self.ranks.iter_mut().enumerate() {
            threads.iter_mut().for_each(|thread| *longest = thread.look(passed, is_waiting).max(*longest));
            let limit = least.max(*longest * FACTOR);
            let mut threads = threads.iter().zip([ThreadRole::Main, ThreadRole::Async]);
            if let Some((thread, role)) = threads.find(|(thread, _)| thread.since > limit) {
                let site = Site::of(thread.was.0);
                return Some(Stuck { place, role, site, row: self.row, since: thread.since });
            }
        }
        None
    }
}

impl Seen {
    /// Looks after a time has passed. Gives the time at the instruction that has ended since the last look.
    fn look(&mut self, passed: Duration, is_waiting: bool) -> Duration {
        let is = (self.note.site.load(Ordering::Relaxed), self.note.count.load(Ordering::Relaxed));
        if is == self.was && is.0 != Site::Idle.code() && !is_waiting {
            self.since += passed;
            return Duration::ZERO;
        }
        self.was = is;
        match std::mem::take(&mut self.since) {
            Duration::ZERO => Duration::ZERO,
            since => since + passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A rank whose first step has ended, by the time of a watch over it.
    struct Case {
        progress: Progress,
        worker: Progress,
        watch: Watch,
        now: Instant,
    }

    impl Case {
        fn new() -> Case {
            let (progress, worker, now) = (Progress::default(), Progress::default(), Instant::now());
            let mut watch = Watch::new(LIMIT, [[progress.note(), worker.note()]].into_iter());
            watch.begin(Some(0), now);
            watch.end(Some(0));
            Case { progress, worker, watch, now }
        }

        /// Looks again and again for a time, and gives how much of it passed before the rank was stuck.
        fn look_for(&mut self, long: f64, is_waiting: bool) -> Option<f64> {
            let began = self.now;
            while self.now - began < seconds(long) {
                self.now += self.watch.pause();
                if self.watch.look(self.now, is_waiting).is_some() {
                    return Some((self.now - began).as_secs_f64());
                }
            }
            None
        }
    }

    #[test]
    fn sites_are_told_from_their_codes() {
        let (most, runs) = (u32::MAX, u32::MAX - 3);
        let sites = [Site::Idle, Site::Begin, Site::End, Site::State(0), Site::State(most), Site::Action(0)];
        let steps = [Site::Step(0, 0), Site::Step(0, most), Site::Step(1, 0), Site::Step(runs, most)];
        for site in sites.into_iter().chain([Site::Action(most)]).chain(steps) {
            assert_eq!(Site::of(site.code()), site);
        }
    }

    #[test]
    fn who_stays_at_an_instruction_is_stuck() {
        let mut case = Case::new();
        case.progress.begin(Site::Step(3, 4));
        let found = case.look_for(100.0, false).unwrap();
        assert!((60.0..64.0).contains(&found), "{found}");
        case.now += seconds(0.5);
        let stuck = case.watch.look(case.now, false).unwrap();
        assert_eq!((stuck.place, stuck.role, stuck.site, stuck.row), (0, ThreadRole::Main, Site::Step(3, 4), 0));
        let mut case = Case::new();
        case.worker.begin(Site::Action(2));
        assert!(case.look_for(59.0, false).is_none() && case.look_for(9.0, false).is_some());
        case.now += seconds(0.5);
        assert_eq!(case.watch.look(case.now, false).unwrap().role, ThreadRole::Async);
    }

    #[test]
    fn who_goes_on_or_waits_is_not_stuck() {
        let mut case = Case::new();
        for _ in 0..10 {
            // The thread is at the same instruction in one step after the other.
            case.progress.begin(Site::Step(3, 4));
            assert_eq!(case.look_for(50.0, false), None);
        }
        case.progress.begin(Site::Step(3, 5));
        assert_eq!(case.look_for(5000.0, true), None);
        case.progress.rest();
        assert_eq!(case.look_for(5000.0, false), None);
    }

    #[test]
    fn long_instructions_show_that_others_may_be_long() {
        let mut case = Case::new();
        case.progress.begin(Site::Step(0, 0));
        assert_eq!(case.look_for(10.0, false), None);
        case.progress.begin(Site::Step(0, 1));
        assert_eq!(case.look_for(180.0, false), None);
        assert!(case.look_for(50.0, false).is_some());
    }

    #[test]
    fn the_last_instruction_of_a_step_counts() {
        let mut case = Case::new();
        case.progress.begin(Site::End);
        assert_eq!(case.look_for(10.0, false), None);
        case.progress.rest();
        case.watch.end(Some(0));
        case.watch.begin(Some(0), case.now);
        case.progress.begin(Site::Begin);
        assert!(case.look_for(150.0, false).is_none() && case.look_for(80.0, false).is_some());
    }

    #[test]
    fn instructions_of_a_first_step_may_be_longer() {
        let mut case = Case::new();
        case.watch.begin(Some(1), case.now);
        case.progress.begin(Site::Step(0, 0));
        assert_eq!(case.look_for(299.0, false), None);
        assert!(case.look_for(9.0, false).is_some());
    }

    #[test]
    fn a_process_that_did_not_look_has_seen_nothing() {
        let mut case = Case::new();
        case.progress.begin(Site::Begin);
        for _ in 0..20 {
            case.now += seconds(1000.0);
            assert_eq!(case.watch.look(case.now, false), None);
        }
        assert!(case.look_for(60.0, false).is_some());
    }
}
