//! Feasibility of an order if sends block until the receiver is ready.

use super::deadlock::{Blocked, Deadlock, StalledRank, WaitsFor};
use super::positions::{ActionIndex, ActionPosition, Need};
use super::{DependencyGraph, SimulateError};
use crate::costs::StageCosts;
use ir::schedule::{Action, Item, Schedule};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Blocking behaviour of sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sends {
    /// A send returns at once, and the message waits for the receiver. Every order without cyclic dependencies can run.
    #[default]
    Async,
    /// The sends of an action and the receives of the next one start together, as one batch, and the rank goes on when all have
    /// finished. This is `batch_isend_irecv` of PyTorch, `send_forward_recv_backward` and its like of Megatron-LM. A message
    /// has finished once both of its ranks have started it.
    Batched,
    /// Each receive and send blocks: before an action its receives, then the action, then its sends, each in the order of its
    /// items. A send finishes when the receiver has reached the matching receive.
    Blocking,
}

impl fmt::Display for Sends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sends::Async => "asynchronous",
            Sends::Batched => "batched",
            Sends::Blocking => "blocking",
        })
    }
}

/// Checks that the rows can be run to their ends in the order given. The duration of messages does not matter.
///
/// # Errors
///
/// Returns the errors of [`DependencyGraph::of`], and a [`Deadlock`] if ranks that send to each other block.
pub fn can_run(schedule: &Schedule, costs: &StageCosts, sends: Sends) -> Result<(), SimulateError> {
    DependencyGraph::of(schedule, costs.f.len())?;
    if sends == Sends::Async {
        return Ok(());
    }
    let places = ActionIndex::of(schedule, costs.f.len())?;
    let ranks = (0..schedule.rows.len()).map(|rank| RankMessages { schedule, places: &places, rank });
    let mut run = BlockingRun {
        schedule,
        scripts: ranks.map(|messages| messages.script(sends)).collect(),
        next: vec![0; schedule.rows.len()],
        started: vec![Started::default(); places.len()],
    };
    run.run_on();
    if run.scripts.iter().zip(&run.next).all(|(script, &next)| next == script.len()) {
        Ok(())
    } else {
        Err(run.deadlock().into())
    }
}

/// One end of a message.
#[derive(Clone, Copy)]
struct End {
    /// Number of the message: that of its result.
    message: usize,
    receives: bool,
    /// The rank at the other end.
    other: usize,
    /// Item that produces the result.
    item: Item,
    /// Position of the rank's row at which the message starts.
    at: usize,
}

/// Ends of messages that a rank starts together. The rank goes on when all have finished.
type Batch = Vec<End>;

/// The messages of a rank.
struct RankMessages<'a> {
    schedule: &'a Schedule,
    places: &'a ActionIndex,
    rank: usize,
}

impl RankMessages<'_> {
    /// Returns the receives and sends of the rank, in order.
    fn script(&self, sends: Sends) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        let mut pending = Batch::new();
        for (at, action) in self.schedule.rows[self.rank].iter().enumerate() {
            let made = action.items().filter_map(|item| self.places.made_by(item));
            let needs = made.flat_map(|made| self.places.needs(made)).flatten();
            pending.extend(needs.filter_map(|need| self.receive(need, at)));
            batches.extend(batches_of(std::mem::take(&mut pending), sends));
            pending.extend(action.items().filter_map(|item| self.send(item, at)));
        }
        batches.extend(batches_of(pending, sends));
        batches
    }

    /// Returns the receive of an input from another rank.
    fn receive(&self, need: Need, at: usize) -> Option<End> {
        let place = self.elsewhere(need)?;
        let from = self.schedule.rows[place.rank as usize][place.position as usize];
        let item = from.items().find(|&item| self.places.made_by(item) == Some(need))?;
        Some(End { message: self.places.number(need), receives: true, other: place.rank as usize, item, at })
    }

    /// Returns the send of an item's result to another rank.
    fn send(&self, item: Item, at: usize) -> Option<End> {
        let made = self.places.made_by(item)?;
        let other = self.elsewhere(self.places.taker(made)?)?.rank as usize;
        Some(End { message: self.places.number(made), receives: false, other, item, at })
    }

    /// Returns the position of a result's producer if it is on another rank.
    fn elsewhere(&self, need: Need) -> Option<ActionPosition> {
        self.places.find(need).filter(|place| place.rank as usize != self.rank)
    }
}

/// Groups the messages between two actions: in one batch, or in one batch per message.
fn batches_of(ends: Batch, sends: Sends) -> Vec<Batch> {
    match sends {
        Sends::Blocking => ends.into_iter().map(|end| vec![end]).collect(),
        _ if ends.is_empty() => Vec::new(),
        _ => vec![ends],
    }
}

/// The ends of a message that their ranks have started.
#[derive(Clone, Copy, Default)]
struct Started {
    sender: bool,
    receiver: bool,
}

struct BlockingRun<'a> {
    schedule: &'a Schedule,
    scripts: Vec<Vec<Batch>>,
    /// Current batch of each rank.
    next: Vec<usize>,
    /// The started ends of each message.
    started: Vec<Started>,
}

impl BlockingRun<'_> {
    fn run_on(&mut self) {
        let mut ready: Vec<usize> = (0..self.scripts.len()).collect();
        while let Some(rank) = ready.pop() {
            while let Some(batch) = self.scripts[rank].get(self.next[rank]) {
                for end in batch {
                    let started = &mut self.started[end.message];
                    let own = if end.receives { &mut started.receiver } else { &mut started.sender };
                    if !std::mem::replace(own, true) {
                        ready.push(end.other);
                    }
                }
                if batch.iter().any(|end| !self.is_over(end)) {
                    break;
                }
                self.next[rank] += 1;
            }
        }
    }

    fn is_over(&self, end: &End) -> bool {
        let started = self.started[end.message];
        started.sender && started.receiver
    }

    /// Returns the first unfinished end that a rank waits for: a receive if there is one, else a send.
    fn waits_for(&self, rank: usize) -> Option<End> {
        let batch = self.scripts[rank].get(self.next[rank])?;
        batch.iter().filter(|end| !self.is_over(end)).min_by_key(|end| !end.receives).copied()
    }

    fn deadlock(&self) -> Deadlock {
        Deadlock { ranks: (0..self.scripts.len()).map(|rank| self.stalled(rank)).collect() }
    }

    fn stalled(&self, rank: usize) -> StalledRank {
        let row = &self.schedule.rows[rank];
        let Some(end) = self.waits_for(rank) else { return StalledRank { done: row.clone(), blocked: None } };
        let on = if end.receives { WaitsFor::Result(end.item) } else { WaitsFor::Receipt(end.item) };
        let other = self.blocked_action(end.other).map(|action| (end.other, action));
        StalledRank { done: row[..end.at].to_vec(), blocked: Some(Blocked { at: row[end.at], on, other }) }
    }

    /// Returns the action at whose messages a rank waits.
    fn blocked_action(&self, rank: usize) -> Option<Action> {
        Some(self.schedule.rows[rank][self.waits_for(rank)?.at])
    }
}

#[cfg(test)]
mod tests;
