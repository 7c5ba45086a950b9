//! Parking and notification of threads, and deadlock detection: if every thread is parked on another one, all of them get
//! an error at once.
//!
//! Parking: (1) mark the thread as parking; (2) re-check the condition; (3) decrement `awake`; (4) park. Notifying: (1)
//! make the condition true; (2) increment `awake` for each waiter; (3) unpark it. `awake` therefore never under-counts and
//! no wake-up is lost.
//!
//! A message to or from another process that is under way counts as an awake thread: it will wake somebody. Threads of several processes
//! that wait for each other are therefore no deadlock of one of them.

use super::{RankFailure, WaitReason};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Polls of a waiting thread before it parks. With more threads than cores, the awaited thread may need this core.
const SPINS: usize = 64;
/// Further polls with several processes, between which others may have the core: what comes from one of them is often that near.
const YIELDS: usize = 32;

const AWAKE: u8 = 0;
/// Parked until another thread makes progress.
const WAITING: u8 = 1;
/// Parked without work.
const IDLE: u8 = 2;

/// Parkers of all threads of all ranks, with deadlock detection.
pub(super) struct ParkingLot {
    /// The ranks of this process; each has a thread, or two: those of the async workers come last.
    ranks: Vec<usize>,
    /// The members of groups, by their numbers.
    groups: Mutex<Vec<Vec<usize>>>,
    /// The names of exchanges, by their numbers.
    ops: Mutex<Vec<String>>,
    /// The last step that has begun.
    step: AtomicU64,
    /// The number of the process and its host, if there are several processes.
    place: OnceLock<String>,
    awake: AtomicUsize,
    /// How often threads have been counted as awake from outside: nobody has while it stays.
    entries: AtomicU64,
    parkers: Box<[Parker]>,
    /// The wait of the first rank's device, with a number that changes whenever it goes on.
    device: Mutex<Option<(u64, WaitReason)>>,
    abort: AbortFlag,
    /// The thread that tells other processes of a failure.
    courier: OnceLock<Thread>,
}

/// Parking state of one thread.
struct Parker {
    state: AtomicU8,
    thread: OnceLock<Thread>,
    wait_reason: Mutex<WaitReason>,
    /// Nanoseconds in which it has waited for other ranks.
    waited: AtomicU64,
}

/// Flag that the first failing rank raises.
#[derive(Default)]
struct AbortFlag {
    raised: AtomicBool,
    first: Mutex<Option<RankFailure>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ParkingLot {
    /// A lot for the threads of these ranks, all of them asleep.
    pub(super) fn new(ranks: Vec<usize>, async_threads: bool) -> ParkingLot {
        let threads = if async_threads { 2 * ranks.len() } else { ranks.len() };
        let parkers = (0..threads).map(|_| Parker {
            state: AtomicU8::new(AWAKE),
            thread: OnceLock::new(),
            wait_reason: Mutex::new(WaitReason::AsyncWorker),
            waited: AtomicU64::new(0),
        });
        ParkingLot {
            ranks,
            groups: Mutex::default(),
            ops: Mutex::new(vec!["a collective".to_string()]),
            step: AtomicU64::new(0),
            place: OnceLock::new(),
            awake: AtomicUsize::new(0),
            entries: AtomicU64::new(0),
            parkers: parkers.collect(),
            device: Mutex::default(),
            abort: AbortFlag::default(),
            courier: OnceLock::new(),
        }
    }

    /// The ranks of this process.
    pub(super) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Gives a group its number.
    pub(super) fn number(&self, members: &[usize]) -> u32 {
        let mut groups = locked(&self.groups);
        groups.push(members.to_vec());
        groups.len() as u32 - 1
    }

    /// Gives the name of an exchange its number.
    pub(super) fn number_op(&self, op: &str) -> u32 {
        let mut ops = locked(&self.ops);
        let known = ops.iter().position(|known| known == op);
        known.unwrap_or_else(|| {
            ops.push(op.to_string());
            ops.len() - 1
        }) as u32
    }

    /// Notes the process of these ranks, for the message of a failure.
    pub(super) fn note_place(&self, place: String) {
        self.place.get_or_init(|| place);
    }

    /// Notes the step that begins, for the message of a failure.
    pub(super) fn note_step(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// The last step that has begun.
    pub(super) fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    /// True if no thread is awake but for a number of messages that are under way.
    pub(super) fn is_still(&self, messages: usize) -> bool {
        self.awake.load(Ordering::SeqCst) == messages
    }

    /// True if some threads wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.first_waiting().is_some()
    }

    /// Notes what the device of the first rank waits for.
    pub(super) fn note_device(&self, waits: Option<(u64, WaitReason)>) {
        *locked(&self.device) = waits;
    }

    /// The number that changes whenever the device of the first rank goes on, if it waits.
    pub(super) fn device(&self) -> Option<u64> {
        locked(&self.device).map(|(moved, _)| moved)
    }

    /// Lets a thread be unparked when a rank fails.
    pub(super) fn tell(&self, courier: Thread) {
        self.courier.get_or_init(|| courier);
    }

    /// Counts `threads` more threads as awake.
    pub(super) fn enter(&self, threads: usize) {
        self.entries.fetch_add(1, Ordering::SeqCst);
        self.awake.fetch_add(threads, Ordering::SeqCst);
    }

    /// Counts one thread less as awake.
    pub(super) fn leave(&self) {
        self.decrement_awake();
    }

    /// Parks until `pending` returns none.
    ///
    /// # Errors
    /// A rank failed, or the threads are deadlocked.
    pub(super) fn wait(&self, me: usize, pending: &mut dyn FnMut() -> Option<WaitReason>) -> Result<(), RankFailure> {
        self.park_until(me, WAITING, pending)
    }

    /// Parks an idle thread until `has_work`.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn park(&self, me: usize, has_work: &mut dyn FnMut() -> bool) -> Result<(), RankFailure> {
        self.park_until(me, IDLE, &mut || (!has_work()).then_some(WaitReason::AsyncWorker))
    }

    fn park_until(
        &self,
        me: usize,
        how: u8,
        pending: &mut dyn FnMut() -> Option<WaitReason>,
    ) -> Result<(), RankFailure> {
        let parker = &self.parkers[me];
        let polls = if self.place.get().is_some() { SPINS + YIELDS } else { SPINS };
        loop {
            for poll in 0..polls {
                if let Some(failure) = self.failure() {
                    return Err(failure);
                }
                if pending().is_none() {
                    return Ok(());
                }
                if poll < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
            }
            parker.thread.get_or_init(thread::current);
            parker.state.store(how, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let (pending, failed) = (pending(), self.abort.raised.load(Ordering::SeqCst));
            if let (Some(wait_reason), false) = (pending, failed) {
                *locked(&parker.wait_reason) = wait_reason;
                let since = Instant::now();
                self.decrement_awake();
                while parker.state.load(Ordering::SeqCst) != AWAKE {
                    thread::park();
                }
                if wait_reason != WaitReason::AsyncWorker {
                    parker.waited.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
            } else if parker.state.swap(AWAKE, Ordering::SeqCst) == AWAKE {
                // Another thread has already unparked this thread and counted it as awake.
                self.awake.fetch_sub(1, Ordering::SeqCst);
            }
            if pending.is_none() && !failed {
                return Ok(());
            }
        }
    }

    /// The time in which a thread has waited for other ranks so far.
    pub(super) fn waited(&self, thread_index: usize) -> Duration {
        Duration::from_nanos(self.parkers[thread_index].waited.load(Ordering::Relaxed))
    }

    /// Unparks a thread, whose condition may have changed.
    pub(super) fn unpark(&self, thread_index: usize) {
        fence(Ordering::SeqCst);
        let parker = &self.parkers[thread_index];
        let state = parker.state.load(Ordering::SeqCst);
        if state == AWAKE {
            return;
        }
        // The count comes first: after the exchange the thread may park again at any time, as the last one.
        self.awake.fetch_add(1, Ordering::SeqCst);
        match parker.state.compare_exchange(state, AWAKE, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => parker.thread.get().into_iter().for_each(Thread::unpark),
            // A third thread has unparked it. The caller is awake, so the count stays above zero.
            Err(_) => drop(self.awake.fetch_sub(1, Ordering::SeqCst)),
        }
    }

    /// Raises the abort flag. Only the first failure is stored, and returned.
    pub(super) fn abort(&self, failure: RankFailure) -> RankFailure {
        let first = locked(&self.abort.first).get_or_insert(failure).clone();
        self.abort.raised.store(true, Ordering::SeqCst);
        (0..self.parkers.len()).for_each(|parker| self.unpark(parker));
        self.courier.get().into_iter().for_each(Thread::unpark);
        first
    }

    /// Aborts all ranks, since one of this process failed.
    pub(super) fn fail(&self, rank: usize, why: &str) {
        self.abort(RankFailure::new(rank, self.located(why)));
    }

    /// Aborts all ranks, since one of this process is stuck. Returns the first failure.
    pub(super) fn give_up(&self, rank: usize, why: &str) -> RankFailure {
        let why = self.located(why) + &self.who_waits_for(rank);
        self.abort(RankFailure { rank, why, is_stuck: true })
    }

    /// A cause of a failure with its step and process.
    fn located(&self, why: &str) -> String {
        match (self.step(), self.place.get()) {
            (0, None) => why.to_string(),
            (step, None) => format!("{why} (step {step})"),
            (step, Some(place)) => format!("{why} (step {step}, {place})"),
        }
    }

    /// The first failure, if any.
    pub(super) fn failure(&self) -> Option<RankFailure> {
        self.abort.raised.load(Ordering::Acquire).then(|| locked(&self.abort.first).clone()).flatten()
    }

    /// Counts one thread less as awake. If the last awake thread parks while others wait, the threads are deadlocked.
    fn decrement_awake(&self) {
        if self.awake.fetch_sub(1, Ordering::SeqCst) > 1 || self.abort.raised.load(Ordering::SeqCst) {
            return;
        }
        // The count may have been zero at the end of a step, and this thread have stood still until the next one. If no thread is awake
        // before and after, and none has entered meanwhile, nothing has moved.
        let entries = self.entries.load(Ordering::SeqCst);
        let first = if self.is_asleep_since(entries) { self.first_waiting() } else { None };
        if let Some(first) = first.filter(|_| self.is_asleep_since(entries)) {
            let texts = self.waiting().map(|parker| self.describe(parker, *locked(&self.parkers[parker].wait_reason)));
            let why = format!("all wait for each other: {}", texts.collect::<Vec<_>>().join("; "));
            self.abort(RankFailure::new(self.ranks[first % self.ranks.len()], why));
        }
    }

    /// True if no thread is awake, and none has entered since this number of entries.
    fn is_asleep_since(&self, entries: u64) -> bool {
        self.awake.load(Ordering::SeqCst) == 0 && self.entries.load(Ordering::SeqCst) == entries
    }

    fn describe(&self, parker: usize, wait_reason: WaitReason) -> String {
        let count = self.ranks.len();
        let (rank, whose) = (self.ranks[parker % count], if parker < count { "" } else { "the async worker of " });
        let what = match wait_reason {
            WaitReason::Peers { group, number, op } => {
                let groups = locked(&self.groups);
                let peers = groups.get(group as usize).into_iter().flatten().filter(|&&peer| peer != rank);
                let peers: Vec<String> = peers.map(ToString::to_string).collect();
                let (noun, peers) = (if peers.len() == 1 { "rank" } else { "ranks" }, peers.join(", "));
                format!("{noun} {peers} in {} (exchange {number})", locked(&self.ops)[op as usize])
            }
            WaitReason::Receiver { rank, tag } => format!("rank {rank} to receive tag {tag}"),
            WaitReason::Sender { rank, tag } => format!("rank {rank} to send tag {tag}"),
            WaitReason::AsyncWorker => "its async worker".to_string(),
        };
        format!("{whose}rank {rank} waits for {what}")
    }

    /// The text of each wait.
    pub(super) fn waits(&self) -> Vec<String> {
        self.reasons().map(|(parker, reason)| self.describe(parker, reason)).collect()
    }

    /// The text of a wait for a rank, or if there is none of another wait, behind a semicolon.
    pub(super) fn who_waits_for(&self, rank: usize) -> String {
        let for_rank = self.reasons().find(|(_, reason)| match *reason {
            WaitReason::Peers { group, .. } => {
                locked(&self.groups).get(group as usize).is_some_and(|ranks| ranks.contains(&rank))
            }
            WaitReason::Receiver { rank: peer, .. } | WaitReason::Sender { rank: peer, .. } => peer == rank,
            WaitReason::AsyncWorker => false,
        });
        let found = for_rank.or_else(|| self.reasons().next());
        found.map_or(String::new(), |(parker, reason)| format!("; {}", self.describe(parker, reason)))
    }

    /// The reasons of all waits, with the parker of each.
    fn reasons(&self) -> impl Iterator<Item = (usize, WaitReason)> {
        let device = locked(&self.device).map(|(_, reason)| (0, reason));
        self.waiting().map(|parker| (parker, *locked(&self.parkers[parker].wait_reason))).chain(device)
    }

    /// The parkers of threads that wait.
    fn waiting(&self) -> impl Iterator<Item = usize> {
        (0..self.parkers.len()).filter(|&parker| self.is_waiting(parker))
    }

    /// The first of them. A step that ends may ask, and allocates nothing.
    fn first_waiting(&self) -> Option<usize> {
        self.waiting().next()
    }

    fn is_waiting(&self, parker: usize) -> bool {
        self.parkers[parker].state.load(Ordering::SeqCst) == WAITING
    }
}
