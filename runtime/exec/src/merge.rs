//! Joins the events that several ranks share, of this and of other processes, and gives the trace of the step.

use super::recorder::EventKind;
use comm::ThreadRole;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::HashMap;
use trace::{BodyRunId, Event, EventRef, Flow, Stream, Trace, TraceSite};

/// The events of the ranks of one process, by its clock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Timeline {
    /// The sites that events refer to.
    pub(super) sites: Vec<TraceSite>,
    pub(super) ranks: Vec<RankTimeline>,
}

/// The events of a rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct RankTimeline {
    pub(super) rank: u64,
    /// Its pipeline rank.
    pub(super) stage: u32,
    pub(super) exchanges: Vec<(ExchangeKey, Side)>,
    pub(super) messages: Vec<(MessageKey, Side)>,
    /// Copies to host memory and back.
    pub(super) copies: Vec<Side>,
    /// Events of the main thread and of the async worker.
    pub(super) threads: [Vec<ThreadEvent>; 2],
}

/// Name of an exchange, which is the same for all members: the group, and the number among its exchanges.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct ExchangeKey {
    pub(super) ranks: Vec<usize>,
    pub(super) role: ThreadRole,
    pub(super) number: usize,
}

/// Name of a message, which is the same for both ends: the channel, and the number among its messages.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct MessageKey {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
    pub(super) number: usize,
}

/// One rank's side of an exchange, a message or a copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) kind: EventKind,
    pub(super) stream: Stream,
    pub(super) site: u32,
    pub(super) run: Option<BodyRunId>,
    /// Start and end in seconds.
    pub(super) times: (f64, f64),
    /// The end of the wait for a message.
    pub(super) known: Option<f64>,
    /// True if a device timed the movement itself.
    pub(super) by_device: bool,
    /// The bytes that have moved, if the step decides them.
    pub(super) bytes: Option<u64>,
}

/// An event of a thread.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct ThreadEvent {
    pub(super) kind: EventKind,
    pub(super) site: u32,
    /// Start and end in seconds.
    pub(super) times: (f64, f64),
    pub(super) run: Option<BodyRunId>,
    /// The event that a wait waits for.
    pub(super) awaits: Option<EventKind>,
}

impl Timeline {
    /// Moves all times to another clock.
    pub(super) fn shift(&mut self, by: impl Fn(f64) -> f64) {
        for rank in &mut self.ranks {
            let exchanges = rank.exchanges.iter_mut().map(|(_, side)| side);
            let messages = rank.messages.iter_mut().map(|(_, side)| side);
            for side in exchanges.chain(messages).chain(&mut rank.copies) {
                side.times = (by(side.times.0), by(side.times.1));
                side.known = side.known.map(&by);
            }
            for event in rank.threads.iter_mut().flatten() {
                event.times = (by(event.times.0), by(event.times.1));
            }
        }
    }

    /// The time of the first event; none if there is no event.
    fn first(&self) -> Option<f64> {
        let threads = self.ranks.iter().flat_map(|rank| rank.threads.iter().flatten());
        threads.map(|event| event.times.0).min_by(f64::total_cmp)
    }
}

/// The trace of a step, from the timelines of all processes by one clock. It begins at 0, or with the first event before that.
pub(super) fn merge(mut timelines: Vec<Timeline>) -> Trace {
    let first = timelines.iter().filter_map(Timeline::first).fold(0.0, f64::min);
    if first < 0.0 {
        timelines.iter_mut().for_each(|timeline| timeline.shift(|at| at - first));
    }
    let mut merger = Merger::new(timelines);
    merger.exchanges();
    merger.messages();
    for rank in 0..merger.ranks.len() {
        std::mem::take(&mut merger.ranks[rank].events.copies).into_iter().for_each(|side| merger.join(&[(rank, side)]));
    }
    for rank in 0..merger.ranks.len() {
        // The async worker comes first, since the main thread waits for it.
        merger.thread(rank, ThreadRole::Async);
        merger.thread(rank, ThreadRole::Main);
    }
    merger.trace.sort();
    merger.trace
}

struct Merger {
    trace: Trace,
    ranks: Vec<MergedRank>,
}

struct MergedRank {
    events: RankTimeline,
    /// The number of its process.
    process: usize,
    /// The trace events of exchanges, body invocations, and messages (by the action that starts them).
    places: HashMap<EventKind, EventRef>,
}

/// Sides of one exchange or message, each with the place of its rank.
type Sides = Vec<(usize, Side)>;

fn last_end(sides: &Sides) -> f64 {
    sides.iter().map(|(_, side)| side.times.1).fold(0.0, f64::max)
}

impl Merger {
    fn new(timelines: Vec<Timeline>) -> Merger {
        let (mut trace, mut ranks) = (Trace::default(), Vec::new());
        let mut known: HashMap<TraceSite, u32> = HashMap::new();
        let is_alone = timelines.len() == 1;
        for (process, timeline) in timelines.into_iter().enumerate() {
            let mut sites = Vec::with_capacity(timeline.sites.len());
            for site in timeline.sites {
                let number = trace.sites.len() as u32;
                // The sites of one process are distinct as they are.
                let known = if is_alone { number } else { *known.entry(site.clone()).or_insert(number) };
                trace.sites.extend((known == number).then_some(site));
                sites.push(known);
            }
            for mut events in timeline.ranks {
                let exchanges = events.exchanges.iter_mut().map(|(_, side)| &mut side.site);
                let messages = events.messages.iter_mut().map(|(_, side)| &mut side.site);
                let copies = events.copies.iter_mut().map(|side| &mut side.site);
                let threads = events.threads.iter_mut().flatten().map(|event| &mut event.site);
                for site in exchanges.chain(messages).chain(copies).chain(threads) {
                    *site = sites[*site as usize];
                }
                ranks.push(MergedRank { events, process, places: HashMap::new() });
            }
        }
        ranks.sort_by_key(|rank| rank.events.rank);
        Merger { trace, ranks }
    }

    /// Exchanges move data once all members have begun.
    fn exchanges(&mut self) {
        let mut groups: HashMap<ExchangeKey, Sides> = HashMap::new();
        for (place, rank) in self.ranks.iter_mut().enumerate() {
            for (key, side) in std::mem::take(&mut rank.events.exchanges) {
                groups.entry(key).or_default().push((place, side));
            }
        }
        let mut groups: Vec<Sides> = groups.into_values().filter(|sides| sides.len() > 1).collect();
        for sides in &mut groups {
            let all_there = sides.iter().map(|(_, side)| side.times.0).fold(0.0, f64::max);
            let on_host = sides.iter_mut().filter(|(_, side)| !side.by_device);
            on_host.for_each(|(_, side)| side.times.0 = all_there.min(side.times.1));
            sides.sort_by_key(|(place, _)| *place);
        }
        groups.sort_by(|a, b| last_end(a).total_cmp(&last_end(b)).then(a[0].0.cmp(&b[0].0)));
        groups.iter().for_each(|sides| self.join(sides));
    }

    /// In one process the end of a message that starts second copies the data, unless a device does so later. Between processes it moves
    /// from when both have started until the receiver has it.
    fn messages(&mut self) {
        let mut channels: HashMap<MessageKey, Sides> = HashMap::new();
        for (place, rank) in self.ranks.iter_mut().enumerate() {
            for (key, side) in std::mem::take(&mut rank.events.messages) {
                channels.entry(key).or_default().push((place, side));
            }
        }
        let mut channels: Vec<Sides> = channels.into_values().filter(|sides| sides.len() == 2).collect();
        for sides in &mut channels {
            let second = sides.iter().max_by(|(_, a), (_, b)| {
                (a.by_device, a.times.0).partial_cmp(&(b.by_device, b.times.0)).unwrap_or(Ordering::Equal)
            });
            let mut times = second.map_or((0.0, 0.0), |(_, side)| side.times);
            let [from, to] = [0, 1].map(|end| self.ranks[sides[end].0].process);
            if from != to {
                let received = sides.iter().find(|(_, side)| side.stream == Stream::Receives);
                let end = received.map_or(times.1, |(_, side)| side.known.unwrap_or(side.times.1));
                times = (times.0.min(end), end);
            }
            sides.iter_mut().for_each(|(_, side)| side.times = times);
            sides.sort_by_key(|(_, side)| side.stream != Stream::Sends);
        }
        channels.sort_by(|a, b| a[0].1.times.0.total_cmp(&b[0].1.times.0));
        channels.iter().for_each(|sides| self.join(sides));
    }

    /// Appends the events of an exchange to the tracks of its ranks, and joins the events by flows.
    fn join(&mut self, sides: &[(usize, Side)]) {
        let mut places: Vec<EventRef> = Vec::new();
        for (rank, side) in sides {
            let RankTimeline { rank: number, stage, .. } = self.ranks[*rank].events;
            let track = self.trace.track(number, stage, &side.stream);
            let before = self.trace.tracks[track as usize].events.last().map_or(0.0, Event::end);
            let start = side.times.0.max(before).min(side.times.1.max(before));
            let seconds = (side.times.1 - start).max(0.0);
            let event = Event { site: side.site, start, seconds, run: side.run, awaits: None, bytes: side.bytes };
            let place = self.trace.push(track, event);
            self.ranks[*rank].places.insert(side.kind, place);
            places.push(place);
        }
        for pair in places.windows(2) {
            if self.trace.event(pair[0]).start <= self.trace.event(pair[1]).end() {
                self.trace.flows.push(Flow { from: pair[0], to: pair[1] });
            }
        }
    }

    /// Appends the events of one thread of a rank.
    fn thread(&mut self, rank: usize, role: ThreadRole) {
        let stream = if role == ThreadRole::Main { Stream::Main } else { Stream::Async };
        let MergedRank { events: RankTimeline { rank: number, stage, threads, .. }, places, .. } =
            &mut self.ranks[rank];
        for event in std::mem::take(&mut threads[usize::from(role == ThreadRole::Async)]) {
            let ThreadEvent { kind, site, times: (start, end), run, awaits } = event;
            let awaits = awaits.and_then(|kind| places.get(&kind).copied());
            let track = self.trace.track(*number, *stage, &stream);
            let place = self.trace.push(track, Event { site, start, seconds: end - start, run, awaits, bytes: None });
            if let EventKind::Run(_) = kind {
                places.insert(kind, place);
            }
        }
    }
}
