//! Matching of communication: the two ends of messages, and the members of sums.

use super::price::Cost;
use std::collections::{HashMap, VecDeque};
use trace::Place;

/// From, to, tag.
type Line = (i64, i64, u32);

/// What has met and what still waits for others.
#[derive(Default)]
pub(super) struct Meetings {
    all: Vec<Meeting>,
    /// Per line, messages with one end so far: all have the same.
    half: HashMap<Line, VecDeque<usize>>,
    /// Per list of members.
    sums: HashMap<Vec<u32>, Sums>,
}

/// The sums of equal members.
#[derive(Default)]
struct Sums {
    /// Their numbers, in order.
    begun: Vec<usize>,
    /// How many each rank has started.
    started: HashMap<usize, usize>,
}

struct Meeting {
    members: Vec<Member>,
    awaited: Awaited,
    moved: Vec<Moved>,
}

#[derive(Clone)]
enum Awaited {
    Receiver(i64),
    Sender(i64),
    Members(Vec<u32>),
}

/// A rank that takes part, by its number among the ranks.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) rank: usize,
    pub(super) cost: Cost,
}

/// When a member's data has moved, and the event.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    pub(super) end: f64,
    pub(super) place: Place,
}

/// A member has come.
pub(super) struct Met {
    pub(super) number: usize,
    /// It was the last.
    pub(super) complete: bool,
}

impl Meetings {
    pub(super) fn send(&mut self, line: Line, rank: usize, cost: Cost) -> Met {
        self.end(line, true, Member { rank, cost })
    }

    pub(super) fn receive(&mut self, line: Line, rank: usize, cost: Cost) -> Met {
        self.end(line, false, Member { rank, cost })
    }

    fn end(&mut self, line: Line, sends: bool, member: Member) -> Met {
        let half = self.half.entry(line).or_default();
        let other = |&number: &usize| matches!(self.all[number].awaited, Awaited::Sender(_)) == sends;
        if half.front().is_some_and(other) {
            let number = half.pop_front().unwrap_or_default();
            self.all[number].members.insert(if sends { 0 } else { 1 }, member);
            return Met { number, complete: true };
        }
        half.push_back(self.all.len());
        let awaited = if sends { Awaited::Receiver(line.1) } else { Awaited::Sender(line.0) };
        self.all.push(Meeting { members: vec![member], awaited, moved: Vec::new() });
        Met { number: self.all.len() - 1, complete: false }
    }

    pub(super) fn sum(&mut self, ranks: &[u32], rank: usize, cost: Cost) -> Met {
        let Sums { begun, started } = self.sums.entry(ranks.to_vec()).or_default();
        let place = started.entry(rank).or_default();
        if *place == begun.len() {
            begun.push(self.all.len());
            let awaited = Awaited::Members(ranks.to_vec());
            self.all.push(Meeting { members: Vec::new(), awaited, moved: Vec::new() });
        }
        let number = begun[*place];
        *place += 1;
        self.all[number].members.push(Member { rank, cost });
        Met { number, complete: self.all[number].members.len() == ranks.len() }
    }

    pub(super) fn members(&self, number: usize) -> Vec<Member> {
        self.all[number].members.clone()
    }

    /// The data moves from `start` on, as these events of the members say.
    pub(super) fn moved(&mut self, number: usize, start: f64, places: &[Place]) {
        let meeting = &mut self.all[number];
        let ends = meeting.members.iter().map(|member| start + member.cost.seconds);
        meeting.moved = ends.zip(places).map(|(end, &place)| Moved { end, place }).collect();
    }

    /// When it is over for a rank, if all have come.
    pub(super) fn over(&self, number: usize, rank: usize) -> Option<Moved> {
        let meeting = &self.all[number];
        let place = meeting.members.iter().position(|member| member.rank == rank)?;
        meeting.moved.get(place).copied()
    }

    /// Who has not come, in words.
    pub(super) fn missing(&self, number: usize) -> String {
        match &self.all[number].awaited {
            Awaited::Receiver(stage) => format!("stage {stage} to receive it"),
            Awaited::Sender(stage) => format!("stage {stage} to send it"),
            Awaited::Members(ranks) => {
                let ranks = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                format!("all of the stages {ranks} to start it")
            }
        }
    }
}
