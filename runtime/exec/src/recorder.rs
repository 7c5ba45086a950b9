//! Event buffer of one thread of a rank: each entry is a step of a body invocation with its start and end. Its memory is
//! allocated at load. What a device does is marked in its streams; the times of marks come at the end of a step.

use super::rank_program::RankProgram;
use comm::Communicator;
use device::backend::Mark;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Event buffer of one thread. No other thread writes to the buffer, so its lock is uncontended.
#[derive(Clone)]
pub(super) struct EventRecorder {
    is_on: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<MarkedEvent>>>,
    /// Times of a device's marks, which the threads of a rank share.
    times: Arc<Mutex<Vec<Instant>>>,
}

/// An event with the marks of its start and end, and the bytes that it has moved if the step decides them.
type MarkedEvent = (EventKind, [Mark; 2], Option<u64>);

/// An event with its start and end.
#[derive(Clone, Copy)]
pub(super) struct RecordedEvent {
    pub(super) kind: EventKind,
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// True if a device timed it.
    pub(super) by_device: bool,
    /// The bytes that it has moved, if the step decides them.
    pub(super) bytes: Option<u64>,
}

/// The kind of an event. Numbers are indices of the rank program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum EventKind {
    /// An action other than a body invocation.
    Action(u32),
    /// A body invocation, from its first step to its end.
    Run(u32),
    /// A step of a body invocation. A wait includes the sums that follow.
    Step(u32, u32),
    /// The sums that follow a wait.
    Sums(u32, u32),
    /// An exchange of a body step, from its start to its completion.
    StepExchange(u32, u32),
    /// An exchange of an action, from its start to its completion.
    Exchange(u32),
    /// The copy that an action starts as the second end of a message, on a device.
    Message(u32),
    /// The copies to host memory or back that an action starts.
    HostCopy(u32),
}

impl EventRecorder {
    /// Buffers of the main thread and of the async worker, each with memory for all events of a step of any of these programs.
    pub(super) fn pair<C: Communicator>(rank_programs: &[RankProgram<C>]) -> [EventRecorder; 2] {
        let events = rank_programs.iter().map(|rank_program| {
            let of_runs = rank_program.runs.iter().map(|run| 1 + 3 * rank_program.codes[run.code].steps.len());
            2 * rank_program.actions.len() + of_runs.sum::<usize>()
        });
        let room = events.max().unwrap_or(0);
        let (is_on, times) = (Arc::default(), Arc::default());
        [(); 2].map(|()| EventRecorder {
            is_on: Arc::clone(&is_on),
            events: Arc::new(Mutex::new(Vec::with_capacity(room))),
            times: Arc::clone(&times),
        })
    }

    /// Removes all events.
    pub(super) fn clear(&self) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Says whether the rank records what it does from here on.
    pub(super) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// True if the rank records what it does.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records an event.
    pub(super) fn record(&self, kind: EventKind, start_and_end: [Mark; 2]) {
        self.record_moved(kind, start_and_end, None);
    }

    /// Records an event that has moved a number of bytes, if the step decides them.
    pub(super) fn record_moved(&self, kind: EventKind, start_and_end: [Mark; 2], bytes: Option<u64>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < events.capacity() {
            events.push((kind, start_and_end, bytes));
        }
    }

    /// Takes the times of the marks of a device.
    pub(super) fn set_times(&self, times: Vec<Instant>) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    /// All events since the last [`clear`](EventRecorder::clear), in the order of their ends.
    pub(super) fn events(&self) -> Vec<RecordedEvent> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        for &(kind, marks, bytes) in self.events.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let by_device = matches!(marks[0], Mark::Device(_));
            let marks = marks.map(|mark| match mark {
                Mark::Host(time) => Some(time),
                Mark::Device(number) => times.get(number).copied(),
            });
            // A step that failed has no times.
            if let [Some(start), Some(end)] = marks {
                events.push(RecordedEvent { kind, start, end, by_device, bytes });
            }
        }
        events
    }
}
