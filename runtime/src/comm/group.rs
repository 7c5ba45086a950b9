//! A group of threads that meet: who has arrived, and where each one's tensors lie.

use super::Stopped;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How often a waiting thread looks before it sleeps. There may be more threads than cores, and then the one that is
/// awaited needs this one's core.
const LOOKS: usize = 64;

/// Raised by the first rank that fails.
#[derive(Default)]
pub(crate) struct Alarm {
    raised: AtomicBool,
    first: Mutex<Option<Stopped>>,
}

impl Alarm {
    /// Raises it; only the first report counts. The caller wakes who waits.
    pub(crate) fn raise(&self, stopped: Stopped) {
        locked(&self.first).get_or_insert(stopped);
        self.raised.store(true, Ordering::Release);
    }

    /// Who raised it, if anyone.
    pub(crate) fn check(&self) -> Option<Stopped> {
        self.raised.load(Ordering::Acquire).then(|| locked(&self.first).clone()).flatten()
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a member's tensors lie while it meets: (first element, number of elements) of sources and of results.
#[derive(Default)]
pub(crate) struct Published {
    pub(crate) sources: Vec<(*const f32, usize)>,
    pub(crate) results: Vec<(*const f32, usize)>,
}

/// The meeting place of some ranks.
pub(crate) struct Group {
    arrived: Mutex<usize>,
    changed: Condvar,
    /// Meetings that are complete.
    meetings: AtomicU64,
    /// Members that may still read the others' memory.
    reading: AtomicUsize,
    slots: Vec<UnsafeCell<Published>>,
}

// SAFETY: a slot is written only by its member, before a meeting, and read by the others only between that meeting and
// the last one of the exchange; the meetings order the two.
unsafe impl Sync for Group {}
// SAFETY: the pointers in the slots are used as above, whichever thread they come from.
unsafe impl Send for Group {}

impl Group {
    pub(crate) fn new(members: usize) -> Group {
        Group {
            arrived: Mutex::new(0),
            changed: Condvar::new(),
            meetings: AtomicU64::new(0),
            reading: AtomicUsize::new(0),
            slots: (0..members).map(|_| UnsafeCell::default()).collect(),
        }
    }

    /// Waits until all members have arrived; they may read each other's memory if `reads`, and each then drops a
    /// [`Reading`]. A member that gives up because of the alarm leaves a meeting that never completes.
    pub(crate) fn meet(&self, alarm: &Alarm, reads: bool) -> Result<(), Stopped> {
        let mut arrived = locked(&self.arrived);
        let meeting = self.meetings.load(Ordering::Acquire);
        if let Some(stopped) = alarm.check() {
            return Err(stopped);
        }
        *arrived += 1;
        if *arrived == self.slots.len() {
            *arrived = 0;
            self.reading.store(if reads { self.slots.len() } else { 0 }, Ordering::Release);
            self.meetings.store(meeting + 1, Ordering::Release);
            drop(arrived);
            self.changed.notify_all();
            return Ok(());
        }
        drop(arrived);
        let complete = || self.meetings.load(Ordering::Acquire) != meeting;
        for _ in 0..LOOKS {
            if complete() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let mut arrived = locked(&self.arrived);
        while !complete() {
            if let Some(stopped) = alarm.check() {
                return Err(stopped);
            }
            arrived = self.changed.wait(arrived).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Wakes the members that wait, so that they see the alarm.
    pub(crate) fn wake(&self) {
        drop(locked(&self.arrived));
        self.changed.notify_all();
    }

    /// Waits until no member reads another's memory: before memory that was published goes away early.
    pub(crate) fn wait_for_readers(&self) {
        while self.reading.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    }

    /// The slot of a member, to be written by itself outside of meetings.
    ///
    /// # Safety
    /// The caller is that member, and no other member reads: no meeting is open.
    #[allow(clippy::mut_from_ref, reason = "the meetings order the writer and the readers")]
    pub(crate) unsafe fn slot_mut(&self, member: usize) -> &mut Published {
        // SAFETY: as the caller says.
        unsafe { &mut *self.slots[member].get() }
    }

    /// The slot of a member.
    ///
    /// # Safety
    /// The caller is between the first and the last meeting of an exchange.
    pub(crate) unsafe fn slot(&self, member: usize) -> &Published {
        // SAFETY: as the caller says; the member does not write it in between.
        unsafe { &*self.slots[member].get() }
    }
}

/// A member's leave to read the others' memory. Where its holder panics, its own memory stays until no one reads.
pub(crate) struct Reading<'a>(pub(crate) &'a Group);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::AcqRel);
        if std::thread::panicking() {
            self.0.wait_for_readers();
        }
    }
}
