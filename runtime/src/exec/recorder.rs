//! Event buffer of one thread of a rank: each entry is a step of a body invocation with its start and end. Its memory is
//! allocated at load.

use super::rank_program::RankProgram;
use crate::comm::Communicator;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Event buffer of one thread. No other thread writes to the buffer, so its lock is uncontended.
#[derive(Clone)]
pub(super) struct EventRecorder {
    events: Arc<Mutex<Vec<RecordedEvent>>>,
}

/// An event with its start and end.
#[derive(Clone, Copy)]
pub(super) struct RecordedEvent {
    pub(super) kind: EventKind,
    pub(super) start: Instant,
    pub(super) end: Instant,
}

/// The kind of an event. Numbers are indices of the rank program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
}

impl EventRecorder {
    /// A buffer with memory for all events of a step of any of these programs.
    pub(super) fn new<C: Communicator>(rank_programs: &[RankProgram<C>]) -> EventRecorder {
        let events = |rank_program: &RankProgram<C>| {
            let of_runs = rank_program.runs.iter().map(|run| 1 + 3 * rank_program.codes[run.code].steps.len());
            2 * rank_program.actions.len() + of_runs.sum::<usize>()
        };
        let room = rank_programs.iter().map(events).max().unwrap_or(0);
        EventRecorder { events: Arc::new(Mutex::new(Vec::with_capacity(room))) }
    }

    /// Records an event that ends now.
    pub(super) fn record(&self, kind: EventKind, start: Instant) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < events.capacity() {
            events.push(RecordedEvent { kind, start, end: Instant::now() });
        }
    }

    /// Removes all events.
    pub(super) fn clear(&self) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// All events since the last [`clear`](EventRecorder::clear), in the order of their ends.
    pub(super) fn events(&self) -> Vec<RecordedEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
