//! Messages of an imported schedule. Each message has one sender and one receiver, and appears where it can be sent and
//! used. Both ends list messages in the same order, since NCCL and gloo match messages by order.

use super::ReadError;
use super::csv::{Cell, Placed};
use ir::schedule::{Item, Kind};
use std::collections::BTreeMap;

/// One end of a message: `0SEND_F1`, `1RECV_F1`, `1SEND_B1`, `0RECV_B1`, with the stage at this end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Message {
    sends: bool,
    forward: bool,
    stage: u32,
    microbatch: u32,
}

/// The message of a word such as `SEND_F1` behind its stage.
pub(super) fn message(stage: &str, word: &str) -> Option<Message> {
    let (kind, number) = word.split_at_checked("SEND_F".len())?;
    let (sends, forward) = match kind {
        "SEND_F" => (true, true),
        "RECV_F" => (false, true),
        "SEND_B" => (true, false),
        "RECV_B" => (false, false),
        _ => return None,
    };
    Some(Message { sends, forward, stage: stage.parse().ok()?, microbatch: number.parse().ok()? })
}

impl Message {
    /// The other end: of what stage 0 sends forward, the receiving at stage 1. None before stage 0.
    fn other(self) -> Option<Message> {
        let up = self.sends == self.forward;
        let stage = if up { self.stage.checked_add(1) } else { self.stage.checked_sub(1) };
        Some(Message { sends: !self.sends, stage: stage?, ..self })
    }
}

impl std::fmt::Display for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.sends { "SEND" } else { "RECV" };
        let pass = if self.forward { 'F' } else { 'B' };
        write!(f, "{}{word}_{pass}{}", self.stage, self.microbatch)
    }
}

/// A rank and a position among its cells.
type At = (usize, usize);

struct Ends {
    messages: BTreeMap<Message, At>,
    computed: BTreeMap<Item, At>,
}

/// Number of messages, if all match.
pub(super) fn check(rows: &[Vec<Placed>]) -> Result<usize, ReadError> {
    let ends = Ends::of(rows)?;
    for (&message, &at) in &ends.messages {
        ends.check_message(message, at).map_err(|why| refused(rows, at, message.to_string(), why))?;
    }
    if !ends.messages.is_empty() {
        for (&item, &at) in &ends.computed {
            ends.check_input(item, at).map_err(|why| refused(rows, at, item.to_string(), why))?;
        }
    }
    same_order(rows, &ends)?;
    Ok(ends.messages.len() / 2)
}

fn refused(rows: &[Vec<Placed>], (rank, at): At, text: String, why: Mismatch) -> ReadError {
    let placed = &rows[rank][at];
    ReadError::Message { line: placed.line, column: placed.column, text, why: why.to_string() }
}

/// Error of a message, or of an item without its message. The text follows that of the cell.
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    #[error("appears twice")]
    Twice,
    #[error("has no stage before it")]
    FirstStage,
    #[error("has no {0}")]
    NoOtherEnd(Message),
    #[error("has its {0} on the same rank, where nothing is sent")]
    SameRank(Message),
    #[error("is sent before it is computed there")]
    SentEarly,
    #[error("is received after it is used there")]
    ReceivedLate,
    #[error("sends what is not computed")]
    NotComputed,
    #[error("receives what nothing uses")]
    NotUsed,
    #[error("has no {needed}, which would bring what rank {there} computes")]
    NoInput { needed: Message, there: usize },
    #[error("is received where rank {from} sends what {expected} should receive")]
    OtherOrder { from: usize, expected: Message },
}

impl Ends {
    fn of(rows: &[Vec<Placed>]) -> Result<Ends, ReadError> {
        let mut ends = Ends { messages: BTreeMap::new(), computed: BTreeMap::new() };
        for (rank, row) in rows.iter().enumerate() {
            for (at, placed) in row.iter().enumerate() {
                match &placed.cell {
                    Cell::Compute(action) => action.items().for_each(|item| {
                        ends.computed.entry(item).or_insert((rank, at));
                    }),
                    Cell::Message(message) if ends.messages.insert(*message, (rank, at)).is_some() => {
                        return Err(refused(rows, (rank, at), message.to_string(), Mismatch::Twice));
                    }
                    Cell::Message(_) | Cell::Care(_) => {}
                }
            }
        }
        Ok(ends)
    }

    /// Position of the F, I or B of a stage and micro-batch in this direction.
    fn pass(&self, forward: bool, stage: u32, microbatch: u32) -> Option<At> {
        let kinds: &[Kind] = if forward { &[Kind::F] } else { &[Kind::I, Kind::B] };
        kinds.iter().find_map(|&kind| self.computed.get(&Item::new(kind, stage, microbatch)).copied())
    }

    /// Checks that a message has another end on another rank, and is sent after what makes it or received before what uses it.
    fn check_message(&self, message: Message, (rank, at): At) -> Result<(), Mismatch> {
        let other = message.other().ok_or(Mismatch::FirstStage)?;
        let &(there, _) = self.messages.get(&other).ok_or(Mismatch::NoOtherEnd(other))?;
        if there == rank {
            return Err(Mismatch::SameRank(other));
        }
        match (self.pass(message.forward, message.stage, message.microbatch), message.sends) {
            (Some((on, made)), true) if on != rank || made > at => Err(Mismatch::SentEarly),
            (Some((on, used)), false) if on != rank || used < at => Err(Mismatch::ReceivedLate),
            (Some(_), _) => Ok(()),
            (None, true) => Err(Mismatch::NotComputed),
            (None, false) => Err(Mismatch::NotUsed),
        }
    }

    /// If messages are written out, every value from another rank needs one.
    fn check_input(&self, item: Item, (rank, _): At) -> Result<(), Mismatch> {
        let (Some(stage), Some(microbatch)) = (item.stage, item.microbatch) else { return Ok(()) };
        let forward = match item.kind {
            Kind::F => true,
            Kind::I | Kind::B => false,
            _ => return Ok(()),
        };
        let needed = Message { sends: false, forward, stage, microbatch };
        let from = needed.other().and_then(|sent| self.pass(forward, sent.stage, microbatch));
        match from {
            Some((there, _)) if there != rank && !self.messages.contains_key(&needed) => {
                Err(Mismatch::NoInput { needed, there })
            }
            _ => Ok(()),
        }
    }
}

/// Between two ranks messages arrive in the order in which they are sent.
fn same_order(rows: &[Vec<Placed>], ends: &Ends) -> Result<(), ReadError> {
    // By sender and receiver: what is sent, in order, and the receivings to compare it with.
    let mut sent: BTreeMap<(usize, usize), Vec<Message>> = BTreeMap::new();
    let mut received: BTreeMap<(usize, usize), Vec<(Message, At)>> = BTreeMap::new();
    for (rank, row) in rows.iter().enumerate() {
        for (at, placed) in row.iter().enumerate() {
            let Cell::Message(message) = placed.cell else { continue };
            let Some((other, &(there, _))) = message.other().and_then(|other| ends.messages.get_key_value(&other))
            else {
                continue;
            };
            if message.sends {
                sent.entry((rank, there)).or_default().push(*other);
            } else {
                received.entry((there, rank)).or_default().push((message, (rank, at)));
            }
        }
    }
    for (between, received) in &received {
        let sent = sent.get(between).map_or(&[][..], Vec::as_slice);
        if let Some((&expected, &(message, at))) = sent.iter().zip(received).find(|(sent, got)| **sent != got.0) {
            return Err(refused(rows, at, message.to_string(), Mismatch::OtherOrder { from: between.0, expected }));
        }
    }
    Ok(())
}
