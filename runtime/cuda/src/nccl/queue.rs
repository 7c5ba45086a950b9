//! Operations of a group or channel of NCCL, between two events each, by which a watch sees whether the device is inside of one.

use super::super::device::Device;
use super::super::error::Error;
use super::super::stream::{Event, Stream};
use super::recordings::Recordings;
use comm::WaitReason;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Operations of a group or channel.
pub(super) struct Queue {
    /// The stream of the thread that begins them.
    own: Arc<Stream>,
    recordings: Arc<Recordings>,
    next: AtomicU64,
    /// True while the thread gives the stream an operation, which may wait for other members.
    gives: AtomicBool,
    /// Operation `n` has slot `n` modulo the number of slots.
    slots: OnceLock<Box<[Slot]>>,
}

/// An operation: the events before and after it, and what it waits for.
struct Slot {
    given: [Event; 2],
    /// The events of one that is recorded, which nobody may ask for.
    recorded: [Event; 2],
    reason: Mutex<Option<WaitReason>>,
}

impl Queue {
    /// The queue of a thread, by its stream, in a rank with these recordings.
    pub(super) fn new(own: Arc<Stream>, recordings: &Arc<Recordings>) -> Arc<Queue> {
        let (next, gives, slots) = Default::default();
        Arc::new(Queue { own, recordings: recordings.clone(), next, gives, slots })
    }

    fn make_slots(&self, device: &Arc<Device>, count: usize) -> Result<&[Slot], Error> {
        if self.slots.get().is_none() {
            let events = || Ok::<_, Error>([Event::new(device)?, Event::new(device)?]);
            let slot = |_| Ok(Slot { given: events()?, recorded: events()?, reason: Mutex::default() });
            let made = (0..count.max(1)).map(slot).collect::<Result<_, Error>>()?;
            self.slots.get_or_init(|| made);
        }
        Ok(self.slots.get().map_or(&[], |slots| slots))
    }

    /// Gives a stream an operation after all that the thread has given so far. Returns its number. `reason` tells what an operation waits
    /// for, by its number; `operation` gives it, by the number of a slot.
    pub(super) fn operate(
        &self,
        (device, count): (&Arc<Device>, usize),
        stream: &Stream,
        reason: impl FnOnce(u64) -> WaitReason,
        operation: impl FnOnce(usize) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let slots = self.make_slots(device, count)?;
        let number = self.next.fetch_add(1, Ordering::AcqRel);
        let at = (number % slots.len() as u64) as usize;
        let (slot, reason) = (&slots[at], reason(number));
        if self.recordings.is_made() {
            let [before, after] = &slot.recorded;
            self.own.record(before)?;
            stream.wait(before)?;
            let place = self.recordings.mark(stream, Some(reason), 0)?;
            operation(at)?;
            self.recordings.mark(stream, None, place)?;
            stream.record(after)?;
            return Ok(number);
        }
        self.recordings.count();
        *slot.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        let [before, after] = &slot.given;
        self.own.record(before)?;
        stream.wait(before)?;
        self.gives.store(true, Ordering::Release);
        let given = operation(at);
        self.gives.store(false, Ordering::Release);
        given?;
        stream.record(after)?;
        Ok(number)
    }

    /// Lets what the thread gives from here on come after an operation.
    pub(super) fn receive(&self, number: u64) -> Result<(), Error> {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        match slots.get((number % slots.len().max(1) as u64) as usize) {
            Some(Slot { recorded: [_, after], .. }) if self.recordings.is_made() => self.own.wait(after),
            Some(Slot { given: [_, after], .. }) => self.own.wait(after),
            None => Ok(()),
        }
    }

    /// A number that changes whenever an operation is given or has ended, and what the device waits for inside of one.
    pub(super) fn look(&self) -> (u64, Option<WaitReason>) {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        let given = self.next.load(Ordering::Acquire);
        let known = &slots[..slots.len().min(given as usize)];
        let ended = known.iter().filter(|slot| slot.given[1].is_done()).count() as u64;
        let last = || slots.get((given.saturating_sub(1) % slots.len().max(1) as u64) as usize);
        let inside = match self.gives.load(Ordering::Acquire) {
            true => last(),
            false => known.iter().find(|Slot { given: [before, after], .. }| before.is_done() && !after.is_done()),
        };
        (2 * given + ended, inside.and_then(|slot| *slot.reason.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
