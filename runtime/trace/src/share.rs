//! Time shares of a step on each rank: computation, exposed communication, and waiting for others.

use super::{Event, EventRef, SiteKind, Stream, Trace};
use std::collections::BTreeMap;

/// Parts of one rank's step, in seconds. All fields but `streams` sum to the step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RankShare {
    /// The rank.
    pub rank: u64,
    /// Seconds in kernels of the row, by kind.
    pub compute: BTreeMap<SiteKind, f64>,
    /// Seconds in which the row waits while data moves, by the axes that it moves over.
    pub exposed: BTreeMap<String, f64>,
    /// Seconds in which the instruction stream waits for started bodies of the same rank.
    pub async_work: f64,
    /// Seconds in which the row waits for other ranks to come so far.
    pub waiting: f64,
    /// Seconds in which it does none of this: before its first event, between events, after its last.
    pub idle: f64,
    /// Seconds in which each stream is busy.
    pub streams: BTreeMap<Stream, f64>,
}

impl RankShare {
    /// Seconds in kernels of the row.
    pub fn computing(&self) -> f64 {
        self.compute.values().sum()
    }
}

/// Parts of the step on each rank, in rank order.
pub fn shares(trace: &Trace) -> Vec<RankShare> {
    let mut ranks: BTreeMap<u64, RankShare> = BTreeMap::new();
    for track in &trace.tracks {
        let share = ranks.entry(track.rank).or_insert(RankShare { rank: track.rank, ..RankShare::default() });
        let works =
            track.events.iter().filter(|event| !matches!(trace.site(event).kind, SiteKind::Run | SiteKind::Wait));
        *share.streams.entry(track.stream.clone()).or_default() += works.map(|event| event.seconds).sum::<f64>();
        if track.stream == Stream::Main {
            track.events.iter().for_each(|event| account(trace, event, share));
        }
    }
    for share in ranks.values_mut() {
        let told = share.computing() + share.exposed.values().sum::<f64>() + share.async_work + share.waiting;
        share.idle = (trace.seconds - told).max(0.0);
    }
    ranks.into_values().collect()
}

fn account(trace: &Trace, event: &Event, share: &mut RankShare) {
    let site = trace.site(event);
    match site.kind {
        SiteKind::Run => {}
        // What is started takes the row a moment, too.
        SiteKind::Transfer => *share.exposed.entry(site.axes.clone()).or_default() += event.seconds,
        SiteKind::Wait => {
            let told = event.awaits.map_or(0.0, |place| expose(trace, place, event.start, event.end(), share));
            share.waiting += event.seconds - told;
        }
        kind => *share.compute.entry(kind).or_default() += event.seconds,
    }
}

/// Attributes a row's wait for an event to the event, as far as the event fills the wait. Returns the attributed seconds.
fn expose(trace: &Trace, place: EventRef, from: f64, to: f64, share: &mut RankShare) -> f64 {
    if to <= from {
        return 0.0;
    }
    let event = trace.event(place);
    let overlap = (event.end().min(to) - event.start.max(from)).max(0.0);
    let site = trace.site(event);
    if site.kind != SiteKind::Run {
        *share.exposed.entry(site.axes.clone()).or_default() += overlap;
        return overlap;
    }
    // A started body may queue behind others. The instruction stream waits for all that they wait for; the rest is computation.
    let mut told = 0.0;
    for step in &trace.tracks[place.track as usize].events {
        if let (SiteKind::Wait, Some(awaited)) = (trace.site(step).kind, step.awaits) {
            told += expose(trace, awaited, from.max(step.start), to.min(step.end()), share);
        }
    }
    share.async_work += to - from - told;
    to - from
}
