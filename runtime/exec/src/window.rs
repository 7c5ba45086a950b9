//! The most exchanges of a group, or messages of a channel, that a rank begins before it waits for the first of them.

use super::rank_program::{Action, BodyRun, BodyStep, RankProgram};
use comm::Communicator;
use std::collections::HashMap;
use std::sync::Arc;

/// Place of an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Slot {
    /// An exchange of the instruction stream.
    Row(usize),
    /// An exchange of the body that runs.
    Body(usize),
    /// A message.
    Message(usize),
}

/// Operations begun so far, by the address of their group or channel.
#[derive(Default)]
struct Windows {
    begun: HashMap<usize, usize>,
    /// The group or channel of each operation in flight, and its number there.
    open: HashMap<Slot, (usize, usize)>,
    most: usize,
}

/// The widest window of a rank program; 1 at least.
pub(super) fn widest<C: Communicator>(rank_program: &RankProgram<C>) -> usize {
    let mut windows = Windows { most: 1, ..Windows::default() };
    for action in &rank_program.actions {
        match action {
            Action::Run(run) | Action::StartRun { run, .. } => windows.body(rank_program, &rank_program.runs[*run]),
            Action::Start { call, completion, .. } => {
                windows.begin(Arc::as_ptr(&call.group).addr(), Slot::Row(*completion));
            }
            Action::Wait { completion, .. } => windows.end(Slot::Row(*completion)),
            Action::StartMessage { channel, message_slot, .. } => {
                windows.begin(Arc::as_ptr(channel).addr(), Slot::Message(*message_slot));
            }
            Action::WaitMessage { message_slot, .. } => windows.end(Slot::Message(*message_slot)),
            Action::StartCopies { .. } | Action::WaitCopies { .. } => {}
            Action::Feed { .. } | Action::Copy { .. } | Action::Add { .. } | Action::Out { .. } => {}
        }
    }
    windows.most
}

impl Windows {
    fn body<C: Communicator>(&mut self, rank_program: &RankProgram<C>, run: &BodyRun) {
        for step in &rank_program.codes[run.code].steps {
            match step {
                BodyStep::Start { call, completion, .. } => {
                    self.begin(Arc::as_ptr(&call.group).addr(), Slot::Body(*completion));
                }
                BodyStep::Wait { completion, .. } => self.end(Slot::Body(*completion)),
                BodyStep::Launch { .. } | BodyStep::Accumulate { .. } | BodyStep::Group { .. } => {}
            }
        }
    }

    fn begin(&mut self, queue: usize, slot: Slot) {
        let begun = self.begun.entry(queue).or_default();
        self.open.insert(slot, (queue, *begun));
        *begun += 1;
    }

    fn end(&mut self, slot: Slot) {
        // Started bodies have a completion slot, and no exchange in it.
        if let Some((queue, number)) = self.open.remove(&slot) {
            self.most = self.most.max(self.begun[&queue] - number);
        }
    }
}
