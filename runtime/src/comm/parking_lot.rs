//! Parking and notification of threads, and deadlock detection: if every thread is parked on another one, all of them get
//! an error at once.
//!
//! Parking: (1) mark the thread as parking; (2) re-check the condition; (3) decrement `awake`; (4) park. Notifying: (1)
//! make the condition true; (2) increment `awake` for each waiter; (3) unpark it. `awake` therefore never under-counts and
//! no wake-up is lost.

use super::{RankFailure, WaitReason};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};

/// Polls of a waiting thread before it parks. With more threads than cores, the awaited thread may need this core.
const SPINS: usize = 64;

const AWAKE: u8 = 0;
/// Parked until another thread makes progress.
const WAITING: u8 = 1;
/// Parked without work.
const IDLE: u8 = 2;

/// Parkers of all threads of all ranks, with deadlock detection.
pub(super) struct ParkingLot {
    awake: AtomicUsize,
    parkers: Box<[Parker]>,
    abort: AbortFlag,
}

/// Parking state of one thread.
struct Parker {
    state: AtomicU8,
    thread: OnceLock<Thread>,
    wait_reason: Mutex<WaitReason>,
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
    /// A lot for `threads` threads, all of them asleep.
    pub(super) fn new(threads: usize) -> ParkingLot {
        let parker = || Parker {
            state: AtomicU8::new(AWAKE),
            thread: OnceLock::new(),
            wait_reason: Mutex::new(WaitReason::Peers { group: 0 }),
        };
        ParkingLot {
            awake: AtomicUsize::new(0),
            parkers: (0..threads).map(|_| parker()).collect(),
            abort: AbortFlag::default(),
        }
    }

    /// Counts `threads` more threads as awake.
    pub(super) fn enter(&self, threads: usize) {
        self.awake.fetch_add(threads, Ordering::SeqCst);
    }

    /// Counts one thread less as awake.
    pub(super) fn leave(&self, describe: &dyn Fn(usize, WaitReason) -> String) {
        self.decrement_awake(describe);
    }

    /// Parks until `pending` returns none.
    ///
    /// # Errors
    /// A rank failed, or the threads are deadlocked.
    pub(super) fn wait(
        &self,
        me: usize,
        pending: &mut dyn FnMut() -> Option<WaitReason>,
        describe: &dyn Fn(usize, WaitReason) -> String,
    ) -> Result<(), RankFailure> {
        self.park_until(me, WAITING, pending, describe)
    }

    /// Parks an idle thread until `has_work`.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn park(
        &self,
        me: usize,
        has_work: &mut dyn FnMut() -> bool,
        describe: &dyn Fn(usize, WaitReason) -> String,
    ) -> Result<(), RankFailure> {
        self.park_until(me, IDLE, &mut || (!has_work()).then_some(WaitReason::AsyncWorker), describe)
    }

    fn park_until(
        &self,
        me: usize,
        how: u8,
        pending: &mut dyn FnMut() -> Option<WaitReason>,
        describe: &dyn Fn(usize, WaitReason) -> String,
    ) -> Result<(), RankFailure> {
        let parker = &self.parkers[me];
        loop {
            for _ in 0..SPINS {
                if let Some(failure) = self.failure() {
                    return Err(failure);
                }
                if pending().is_none() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            parker.thread.get_or_init(thread::current);
            parker.state.store(how, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let (pending, failed) = (pending(), self.abort.raised.load(Ordering::SeqCst));
            if let (Some(wait_reason), false) = (pending, failed) {
                *locked(&parker.wait_reason) = wait_reason;
                self.decrement_awake(describe);
                while parker.state.load(Ordering::SeqCst) != AWAKE {
                    thread::park();
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

    /// Raises the abort flag. Only the first failure is stored.
    pub(super) fn abort(&self, failure: RankFailure) {
        locked(&self.abort.first).get_or_insert(failure);
        self.abort.raised.store(true, Ordering::SeqCst);
        (0..self.parkers.len()).for_each(|parker| self.unpark(parker));
    }

    /// The first failure, if any.
    pub(super) fn failure(&self) -> Option<RankFailure> {
        self.abort.raised.load(Ordering::Acquire).then(|| locked(&self.abort.first).clone()).flatten()
    }

    /// Counts one thread less as awake. If the last awake thread parks while others wait, the threads are deadlocked.
    fn decrement_awake(&self, describe: &dyn Fn(usize, WaitReason) -> String) {
        if self.awake.fetch_sub(1, Ordering::SeqCst) > 1 || self.abort.raised.load(Ordering::SeqCst) {
            return;
        }
        let waiting =
            (0..self.parkers.len()).filter(|&parker| self.parkers[parker].state.load(Ordering::SeqCst) == WAITING);
        let waiting: Vec<usize> = waiting.collect();
        if let Some(&rank) = waiting.first() {
            let texts = waiting.into_iter().map(|parker| describe(parker, *locked(&self.parkers[parker].wait_reason)));
            let why = format!("all wait for each other: {}", texts.collect::<Vec<_>>().join("; "));
            self.abort(RankFailure { rank, why });
        }
    }
}
