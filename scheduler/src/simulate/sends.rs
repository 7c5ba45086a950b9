//! Feasibility of an order if sends block until the receiver is ready.

use super::deadlock::{Blocked, Deadlock, StalledRank, WaitsFor};
use super::positions::{ActionIndex, Need};
use super::{DependencyGraph, SimulateError};
use crate::costs::StageCosts;
use ir::schedule::{Item, Schedule};
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
    let scripts = (0..schedule.rows.len()).map(|rank| script(schedule, &places, rank, sends)).collect();
    let mut run =
        BlockingRun { schedule, scripts, next: vec![0; schedule.rows.len()], started: vec![[false; 2]; places.len()] };
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

/// Returns the receives and sends of a rank, in order.
fn script(schedule: &Schedule, places: &ActionIndex, rank: usize, sends: Sends) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut pending = Batch::new();
    for (at, action) in schedule.rows[rank].iter().enumerate() {
        let items = || action.items().filter_map(|item| Some((item, places.made_by(item)?)));
        let far = |need: Need| places.find(need).filter(|place| place.rank as usize != rank);
        let received = items().flat_map(|(_, made)| places.needs(made)).flatten().filter_map(|need| {
            let place = far(need)?;
            let from = schedule.rows[place.rank as usize][place.position as usize];
            let item = from.items().find(|&item| places.made_by(item) == Some(need))?;
            Some(End { message: places.number(need), receives: true, other: place.rank as usize, item, at })
        });
        pending.extend(received);
        batches.extend(batches_of(std::mem::take(&mut pending), sends));
        let sent = items().filter_map(|(item, made)| {
            let other = far(places.taker(made)?)?.rank as usize;
            Some(End { message: places.number(made), receives: false, other, item, at })
        });
        pending.extend(sent);
    }
    batches.extend(batches_of(pending, sends));
    batches
}

/// Groups the messages between two actions: in one batch, or in one batch per message.
fn batches_of(ends: Batch, sends: Sends) -> Vec<Batch> {
    match sends {
        Sends::Blocking => ends.into_iter().map(|end| vec![end]).collect(),
        _ if ends.is_empty() => Vec::new(),
        _ => vec![ends],
    }
}

struct BlockingRun<'a> {
    schedule: &'a Schedule,
    scripts: Vec<Vec<Batch>>,
    /// Current batch of each rank.
    next: Vec<usize>,
    /// True if the sender and the receiver of each message have started it.
    started: Vec<[bool; 2]>,
}

impl BlockingRun<'_> {
    fn run_on(&mut self) {
        let mut ready: Vec<usize> = (0..self.scripts.len()).collect();
        while let Some(rank) = ready.pop() {
            while let Some(batch) = self.scripts[rank].get(self.next[rank]) {
                for end in batch {
                    let started = &mut self.started[end.message][usize::from(end.receives)];
                    if !std::mem::replace(started, true) {
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
        self.started[end.message] == [true, true]
    }

    /// Returns the first unfinished end that a rank waits for: a receive if there is one, else a send.
    fn waits_for(&self, rank: usize) -> Option<End> {
        let batch = self.scripts[rank].get(self.next[rank])?;
        let open = || batch.iter().filter(|end| !self.is_over(end));
        open().find(|end| end.receives).or_else(|| open().next()).copied()
    }

    fn deadlock(&self) -> Deadlock {
        let stand = |rank: usize| {
            let row = &self.schedule.rows[rank];
            let Some(end) = self.waits_for(rank) else { return StalledRank { done: row.clone(), blocked: None } };
            let on = if end.receives { WaitsFor::Result(end.item) } else { WaitsFor::Receipt(end.item) };
            let stands_at = |rank: usize| Some(self.schedule.rows[rank][self.waits_for(rank)?.at]);
            let other = stands_at(end.other).map(|action| (end.other, action));
            StalledRank { done: row[..end.at].to_vec(), blocked: Some(Blocked { at: row[end.at], on, other }) }
        };
        Deadlock { ranks: (0..self.scripts.len()).map(stand).collect() }
    }
}

#[cfg(test)]
mod tests;
