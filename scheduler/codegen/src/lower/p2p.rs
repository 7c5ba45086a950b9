//! Point-to-point messages between ranks: their order, and the point by which each send must have completed.

use super::flow::{Flow, Origin};
use super::stream::ValueKey;
use ir::graph::Model;
use ir::schedule::{Action, Item, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A value or cotangent that another rank needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Message {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) what: ValueKey,
}

/// All messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Per pair of ranks in the order in which they are sent. The tag of a message is its place.
    sent: BTreeMap<(u32, u32), Vec<Message>>,
    sends: HashMap<Message, ScheduledSend>,
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScheduledSend {
    /// Its place among those of its pair of ranks.
    pub(super) tag: u32,
    /// The sender's last action that begins, in an order of all actions, before that with which the receive starts: only
    /// after it may the sender wait for the receiver, else ranks could wait for each other.
    pub(super) due: usize,
}

impl Messages {
    /// The messages of rows of items.
    pub(super) fn new(model: &Model, flow: &Flow, rows: &[Vec<Action>]) -> Messages {
        let rows: Vec<Vec<Item>> = rows.iter().map(|row| row.iter().flat_map(Action::items).collect()).collect();
        let mut all = Messages::default();
        let (mut sends, mut needs) = (Vec::new(), Vec::new());
        for (rank, row) in (0..).zip(&rows) {
            sends.push(row.iter().map(|item| sent_by(model, flow, rank, item)).collect::<Vec<_>>());
            needs.push(row.iter().map(|item| needed_by(flow, rank, item)).collect::<Vec<_>>());
        }
        for message in sends.iter().flatten().flatten() {
            all.sent.entry((message.from, message.to)).or_default().push(*message);
        }
        let rounds = rounds(&sends, &needs);
        for ((from, to), messages) in &all.sent {
            let mut opened = usize::MAX;
            let needed = first_needs(&needs[*to as usize]);
            for (tag, message) in messages.iter().enumerate().rev() {
                opened = opened.min(needed.get(message).copied().unwrap_or(usize::MAX));
                let begins = rounds[*to as usize].get(start_of_receive(opened)).copied().unwrap_or(usize::MAX);
                let due = rounds[*from as usize].partition_point(|&round| round < begins).saturating_sub(1);
                all.sends.insert(*message, ScheduledSend { tag: tag as u32, due });
            }
        }
        all
    }

    /// The messages from one rank to another in the order in which they are sent.
    pub(super) fn between(&self, from: u32, to: u32) -> &[Message] {
        self.sent.get(&(from, to)).map_or(&[], Vec::as_slice)
    }

    /// The message as it is sent, if it is.
    pub(super) fn send(&self, message: &Message) -> Option<ScheduledSend> {
        self.sends.get(message).copied()
    }
}

/// The action that starts the receive of what an action needs: the one before it.
pub(super) fn start_of_receive(action: usize) -> usize {
    action.saturating_sub(1)
}

/// Messages that an item's rank sends after it.
fn sent_by(model: &Model, flow: &Flow, rank: u32, item: &Item) -> Vec<Message> {
    let Some(mb) = item.microbatch else { return Vec::new() };
    let runs = flow.runs_of(item).into_iter();
    let mut messages = Vec::new();
    match item.kind {
        Kind::F => {
            for &made in runs.flat_map(|run| flow.runs[run].results.iter().flatten()) {
                let readers = flow.readers(made, mb).into_iter();
                messages.extend(readers.map(|to| Message { from: rank, to, what: ValueKey::Value(made, mb) }));
            }
        }
        Kind::I | Kind::B => {
            for slot in runs.rev().flat_map(|run| flow.slots(model, run)) {
                if let Origin::Made(made) = slot.origin
                    && flow.maker(made, mb) != rank
                {
                    let what = ValueKey::Cotangent(made, slot.index, mb);
                    messages.push(Message { from: rank, to: flow.maker(made, mb), what });
                }
            }
        }
        _ => {}
    }
    messages
}

/// Messages that an item needs from other ranks.
fn needed_by(flow: &Flow, rank: u32, item: &Item) -> Vec<Message> {
    let Some(mb) = item.microbatch else { return Vec::new() };
    let runs = flow.runs_of(item).into_iter();
    let mut messages = Vec::new();

    match item.kind {
        Kind::F => {
            for origin in runs.flat_map(|run| &flow.runs[run].args) {
                if let Origin::Made(made) = *origin {
                    messages.push(Message { from: flow.maker(made, mb), to: rank, what: ValueKey::Value(made, mb) });
                }
            }
        }
        Kind::I | Kind::B => {
            for &made in runs.flat_map(|run| flow.runs[run].results.iter().flatten()) {
                for (index, &(reader, _)) in flow.made[made].cotangents.iter().enumerate() {
                    let what = ValueKey::Cotangent(made, index, mb);
                    messages.push(Message { from: flow.rank(reader, mb), to: rank, what });
                }
            }
        }
        _ => {}
    }
    messages.retain(|message| message.from != rank);
    messages
}

/// The first item of a row that needs each message.
fn first_needs(needs: &[Vec<Message>]) -> HashMap<Message, usize> {
    let mut first = HashMap::new();
    for (at, message) in needs.iter().enumerate().flat_map(|(at, needs)| needs.iter().map(move |need| (at, need))) {
        first.entry(*message).or_insert(at);
    }
    first
}

/// When each item runs if all take equally long and begin as soon as what they need is there. Items that never can have no
/// number.
fn rounds(sends: &[Vec<Vec<Message>>], needs: &[Vec<Vec<Message>>]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = vec![Vec::new(); sends.len()];
    let mut there: HashSet<Message> = HashSet::new();
    for round in 0.. {
        let mut ready: Vec<usize> = (0..sends.len()).collect();
        ready.retain(|&rank| {
            let next = needs[rank].get(rounds[rank].len());
            next.is_some_and(|needs| needs.iter().all(|need| there.contains(need)))
        });
        if ready.is_empty() {
            break;
        }
        for rank in ready {
            there.extend(&sends[rank][rounds[rank].len()]);
            rounds[rank].push(round);
        }
    }
    rounds
}
