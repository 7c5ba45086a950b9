//! Matching of communication: the two ends of messages, and the members of sums.

use super::costs::Cost;
use std::collections::{HashMap, VecDeque};
use trace::EventRef;

/// From, to, tag.
type ChannelKey = (i64, i64, u32);

/// Exchanges, complete or waiting for members.
#[derive(Default)]
pub(super) struct Exchanges {
    all: Vec<Exchange>,
    /// By channel, messages with one end so far. All of them have the same end.
    half: HashMap<ChannelKey, VecDeque<usize>>,
    /// By list of members.
    sums: HashMap<Vec<u32>, Sums>,
}

/// The sums over one list of members.
#[derive(Default)]
struct Sums {
    /// Their numbers, in order.
    begun: Vec<usize>,
    /// Number of sums that each rank has started.
    started: HashMap<usize, usize>,
}

struct Exchange {
    members: Vec<Member>,
    wait_reason: WaitReason,
    moved: Vec<Completion>,
}

#[derive(Clone)]
enum WaitReason {
    Receiver(i64),
    Sender(i64),
    Members(Vec<u32>),
}

/// A rank in an exchange, by its index.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) rank: usize,
    pub(super) cost: Cost,
}

/// The time at which a member's data has moved, and its event.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    pub(super) end: f64,
    pub(super) place: EventRef,
}

/// Arrival of a member at an exchange.
pub(super) struct Arrival {
    pub(super) number: usize,
    /// True if it was the last member.
    pub(super) complete: bool,
}

impl Exchanges {
    pub(super) fn send(&mut self, channel: ChannelKey, rank: usize, cost: Cost) -> Arrival {
        self.end(channel, true, Member { rank, cost })
    }

    pub(super) fn receive(&mut self, channel: ChannelKey, rank: usize, cost: Cost) -> Arrival {
        self.end(channel, false, Member { rank, cost })
    }

    fn end(&mut self, channel: ChannelKey, sends: bool, member: Member) -> Arrival {
        let half = self.half.entry(channel).or_default();
        let other = |&number: &usize| matches!(self.all[number].wait_reason, WaitReason::Sender(_)) == sends;
        if half.front().is_some_and(other) {
            let number = half.pop_front().unwrap_or_default();
            self.all[number].members.insert(if sends { 0 } else { 1 }, member);
            return Arrival { number, complete: true };
        }
        half.push_back(self.all.len());
        let wait_reason = if sends { WaitReason::Receiver(channel.1) } else { WaitReason::Sender(channel.0) };
        self.all.push(Exchange { members: vec![member], wait_reason, moved: Vec::new() });
        Arrival { number: self.all.len() - 1, complete: false }
    }

    pub(super) fn sum(&mut self, ranks: &[u32], rank: usize, cost: Cost) -> Arrival {
        let Sums { begun, started } = self.sums.entry(ranks.to_vec()).or_default();
        let place = started.entry(rank).or_default();
        if *place == begun.len() {
            begun.push(self.all.len());
            let wait_reason = WaitReason::Members(ranks.to_vec());
            self.all.push(Exchange { members: Vec::new(), wait_reason, moved: Vec::new() });
        }
        let number = begun[*place];
        *place += 1;
        self.all[number].members.push(Member { rank, cost });
        Arrival { number, complete: self.all[number].members.len() == ranks.len() }
    }

    pub(super) fn members(&self, number: usize) -> Vec<Member> {
        self.all[number].members.clone()
    }

    /// Records that the data moves from `start` on, with the events of the members.
    pub(super) fn moved(&mut self, number: usize, start: f64, places: &[EventRef]) {
        let exchange = &mut self.all[number];
        let ends = exchange.members.iter().map(|member| start + member.cost.seconds);
        exchange.moved = ends.zip(places).map(|(end, &place)| Completion { end, place }).collect();
    }

    /// The completion of the exchange for a rank, if all members have arrived.
    pub(super) fn completion(&self, number: usize, rank: usize) -> Option<Completion> {
        let exchange = &self.all[number];
        let place = exchange.members.iter().position(|member| member.rank == rank)?;
        exchange.moved.get(place).copied()
    }

    /// The missing members, in words.
    pub(super) fn missing(&self, number: usize) -> String {
        match &self.all[number].wait_reason {
            WaitReason::Receiver(stage) => format!("stage {stage} to receive it"),
            WaitReason::Sender(stage) => format!("stage {stage} to send it"),
            WaitReason::Members(ranks) => {
                let ranks = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                format!("all of the stages {ranks} to start it")
            }
        }
    }
}
