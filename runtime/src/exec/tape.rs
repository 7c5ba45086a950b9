//! Event buffer of one thread of a rank: each entry is a step of a body invocation with its start and end. Its memory is
//! allocated at load.

use super::sheet::Sheet;
use crate::comm::Communicator;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The marks of one thread. Each has its own: its lock is never waited for.
#[derive(Clone)]
pub(super) struct Tape {
    marks: Arc<Mutex<Vec<Mark>>>,
}

/// Something that was done.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) what: What,
    pub(super) start: Instant,
    pub(super) end: Instant,
}

/// What was done. Numbers are those of the sheet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum What {
    /// An action of the row that runs no body.
    Action(u32),
    /// A run, from its first step to its end.
    Run(u32),
    /// A step of a run; of a wait, the sums that follow it too.
    Step(u32, u32),
    /// The sums that follow a wait.
    Sums(u32, u32),
    /// An exchange that this step of a run has begun, to its end.
    StepFlight(u32, u32),
    /// An exchange that this action has begun, to its end.
    Request(u32),
}

impl Tape {
    /// With room for all that any of these rows does in a step.
    pub(super) fn new<C: Communicator>(sheets: &[Sheet<C>]) -> Tape {
        let marks = |sheet: &Sheet<C>| {
            let of_runs = sheet.runs.iter().map(|run| 1 + 3 * sheet.codes[run.code].steps.len());
            2 * sheet.actions.len() + of_runs.sum::<usize>()
        };
        let room = sheets.iter().map(marks).max().unwrap_or(0);
        Tape { marks: Arc::new(Mutex::new(Vec::with_capacity(room))) }
    }

    /// Notes what has just ended.
    pub(super) fn note(&self, what: What, start: Instant) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() < marks.capacity() {
            marks.push(Mark { what, start, end: Instant::now() });
        }
    }

    /// Begins anew.
    pub(super) fn clear(&self) {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// All marks since the last [`clear`](Tape::clear), in the order of their ends.
    pub(super) fn marks(&self) -> Vec<Mark> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
