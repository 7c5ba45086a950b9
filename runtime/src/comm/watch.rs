//! Parking and notification of threads, and deadlock detection: if every thread is parked on another one, all of them get
//! an error at once.
//!
//! Parking: (1) mark the thread as parking; (2) re-check the condition; (3) decrement `awake`; (4) park. Notifying: (1)
//! make the condition true; (2) increment `awake` for each waiter; (3) unpark it. `awake` therefore never under-counts and
//! no wake-up is lost.

use super::{Awaited, Stopped};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};

/// How often a waiting thread looks before it sleeps. There may be more threads than cores, and then the one that is
/// awaited needs this one's core.
const LOOKS: usize = 64;

const AWAKE: u8 = 0;
/// Waits for another thread.
const WAITS: u8 = 1;
/// Has nothing to do.
const RESTS: u8 = 2;

/// All threads of all ranks.
pub(super) struct Watch {
    awake: AtomicUsize,
    beds: Box<[Bed]>,
    alarm: Alarm,
}

/// Where one thread sleeps.
struct Bed {
    state: AtomicU8,
    thread: OnceLock<Thread>,
    awaited: Mutex<Awaited>,
}

/// Raised by the first rank that fails.
#[derive(Default)]
struct Alarm {
    raised: AtomicBool,
    first: Mutex<Option<Stopped>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// For so many threads, of which none is counted.
    pub(super) fn new(threads: usize) -> Watch {
        let bed = || Bed {
            state: AtomicU8::new(AWAKE),
            thread: OnceLock::new(),
            awaited: Mutex::new(Awaited::Peers { group: 0 }),
        };
        Watch { awake: AtomicUsize::new(0), beds: (0..threads).map(|_| bed()).collect(), alarm: Alarm::default() }
    }

    /// So many more threads are awake.
    pub(super) fn enter(&self, threads: usize) {
        self.awake.fetch_add(threads, Ordering::SeqCst);
    }

    /// One that was awake will not be heard of for now.
    pub(super) fn leave(&self, describe: &dyn Fn(usize, Awaited) -> String) {
        self.one_less(describe);
    }

    /// Sleeps until `unmet` names nothing more that is waited for.
    ///
    /// # Errors
    /// A rank failed, or all wait.
    pub(super) fn wait(
        &self,
        me: usize,
        unmet: &mut dyn FnMut() -> Option<Awaited>,
        describe: &dyn Fn(usize, Awaited) -> String,
    ) -> Result<(), Stopped> {
        self.sleep(me, WAITS, unmet, describe)
    }

    /// Sleeps, as one who has nothing to do, until `called`.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn rest(
        &self,
        me: usize,
        called: &mut dyn FnMut() -> bool,
        describe: &dyn Fn(usize, Awaited) -> String,
    ) -> Result<(), Stopped> {
        self.sleep(me, RESTS, &mut || (!called()).then_some(Awaited::Lane), describe)
    }

    fn sleep(
        &self,
        me: usize,
        how: u8,
        unmet: &mut dyn FnMut() -> Option<Awaited>,
        describe: &dyn Fn(usize, Awaited) -> String,
    ) -> Result<(), Stopped> {
        let bed = &self.beds[me];
        loop {
            for _ in 0..LOOKS {
                if let Some(stopped) = self.failure() {
                    return Err(stopped);
                }
                if unmet().is_none() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            bed.thread.get_or_init(thread::current);
            bed.state.store(how, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let (unmet, failed) = (unmet(), self.alarm.raised.load(Ordering::SeqCst));
            if let (Some(awaited), false) = (unmet, failed) {
                *locked(&bed.awaited) = awaited;
                self.one_less(describe);
                while bed.state.load(Ordering::SeqCst) != AWAKE {
                    thread::park();
                }
            } else if bed.state.swap(AWAKE, Ordering::SeqCst) == AWAKE {
                // Somebody has woken this thread already, and counted it once more.
                self.awake.fetch_sub(1, Ordering::SeqCst);
            }
            if unmet.is_none() && !failed {
                return Ok(());
            }
        }
    }

    /// Wakes a thread, to which something may have happened.
    pub(super) fn wake(&self, whom: usize) {
        fence(Ordering::SeqCst);
        let bed = &self.beds[whom];
        let state = bed.state.load(Ordering::SeqCst);
        if state == AWAKE {
            return;
        }
        // Counted first: once its state has changed it may sleep again at any moment, and be the last.
        self.awake.fetch_add(1, Ordering::SeqCst);
        match bed.state.compare_exchange(state, AWAKE, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => bed.thread.get().into_iter().for_each(Thread::unpark),
            // Somebody else has woken it. Who wakes is awake itself, so that this is not the last.
            Err(_) => drop(self.awake.fetch_sub(1, Ordering::SeqCst)),
        }
    }

    /// Raises the alarm; only the first report counts.
    pub(super) fn raise(&self, stopped: Stopped) {
        locked(&self.alarm.first).get_or_insert(stopped);
        self.alarm.raised.store(true, Ordering::SeqCst);
        (0..self.beds.len()).for_each(|bed| self.wake(bed));
    }

    /// Who raised the alarm, if anyone.
    pub(super) fn failure(&self) -> Option<Stopped> {
        self.alarm.raised.load(Ordering::Acquire).then(|| locked(&self.alarm.first).clone()).flatten()
    }

    /// One thread less is awake. If it was the last and others wait, they wait for ever.
    fn one_less(&self, describe: &dyn Fn(usize, Awaited) -> String) {
        if self.awake.fetch_sub(1, Ordering::SeqCst) > 1 || self.alarm.raised.load(Ordering::SeqCst) {
            return;
        }
        let waiting = (0..self.beds.len()).filter(|&bed| self.beds[bed].state.load(Ordering::SeqCst) == WAITS);
        let waiting: Vec<usize> = waiting.collect();
        if let Some(&rank) = waiting.first() {
            let texts = waiting.into_iter().map(|bed| describe(bed, *locked(&self.beds[bed].awaited)));
            let why = format!("all wait for each other: {}", texts.collect::<Vec<_>>().join("; "));
            self.raise(Stopped { rank, why });
        }
    }
}
