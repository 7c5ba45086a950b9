//! Timeline of a step, measured or predicted: both have the same type, so that they can be compared directly.
//!
//! A track contains one rank's events in one stream: the instruction stream, the async stream, one communicator for each set
//! of axes and starting thread, outgoing and incoming messages. Events have the program's names, `layer.F %q = einsum`; the
//! event of a body invocation encloses those of its steps. Flows join the two ends of a message and the members of a sum
//! over stages.
//!
//! The crate is above `ir` alone. `runtime` records traces, `runtime/simulator` predicts them. [`write()`] writes Chrome's trace
//! event format for ui.perfetto.dev, and [`Profile`] sums up steps.
//!
//! ```
//! use meshwright_trace::{Event, SiteKind, Stream, Trace, TraceSite, write};
//!
//! let site = TraceSite {
//!     name: "layer.F %q = einsum".to_string(),
//!     op: "einsum".to_string(),
//!     kind: SiteKind::Matmul,
//!     flops: 1 << 20,
//!     bytes: 1 << 16,
//!     axes: String::new(),
//!     shapes: "64x128, 128x64".to_string(),
//! };
//! let mut trace = Trace { sites: vec![site], ..Trace::default() };
//! let track = trace.track(0, 0, &Stream::Main);
//! for start in [0.0, 3e-3] {
//!     trace.push(track, Event { site: 0, start, seconds: 1e-3, run: None, awaits: None, bytes: None });
//! }
//! assert_eq!(trace.seconds, 4e-3);
//!
//! let mut json = Vec::new();
//! write(&trace, &mut json)?;
//! assert!(String::from_utf8_lossy(&json).contains("layer.F %q = einsum"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod chrome;
mod profile;
mod share;
mod site;
#[cfg(test)]
mod tests;

pub use chrome::write;
pub use profile::{KernelTime, Peak, Profile, seconds_by_share};
pub use share::{RankShare, shares};
pub use site::{SiteKind, TraceSite, body_sites, instr_site, moved_by};

use serde::{Deserialize, Serialize};

/// A step in time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// The sites of the events.
    pub sites: Vec<TraceSite>,
    /// Tracks by rank, then by stream.
    pub tracks: Vec<Track>,
    /// Dependencies between events of different tracks.
    pub flows: Vec<Flow>,
    /// Seconds from the start of the step to the end of its last event.
    pub seconds: f64,
    /// A remark on how the times came about; empty if there is none.
    pub note: String,
    /// The processes of the ranks, if there are several.
    pub processes: Vec<TraceProcess>,
}

/// A process of a traced step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceProcess {
    /// The name of its machine.
    pub host: String,
    /// Its ranks.
    pub ranks: Vec<u64>,
}

/// The events of one stream of a rank, by start time.
#[derive(Clone, PartialEq, Debug)]
pub struct Track {
    /// The rank.
    pub rank: u64,
    /// The pipeline rank that it belongs to.
    pub stage: u32,
    /// The stream.
    pub stream: Stream,
    /// The events.
    pub events: Vec<Event>,
}

/// A sequence of events of a rank; the streams of a rank run concurrently.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Stream {
    /// The instruction stream, on the main thread.
    Main,
    /// Started bodies, on the async worker.
    Async,
    /// Collectives over these axes that the instruction stream starts.
    Collectives(String),
    /// Collectives over these axes that started bodies start.
    AsyncCollectives(String),
    /// Messages to other stages.
    Sends,
    /// Messages from other stages.
    Receives,
    /// Copies to host memory.
    Offloads,
    /// Copies from host memory.
    Loads,
}

/// An event with its duration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// Index of [`Trace::sites`].
    pub site: u32,
    /// Seconds from the start of the step.
    pub start: f64,
    /// Duration in seconds.
    pub seconds: f64,
    /// The body invocation; none for other instructions.
    pub run: Option<BodyRunId>,
    /// The event that a wait waits for.
    pub awaits: Option<EventRef>,
    /// The bytes that it has moved, if that differs between steps; those of the site otherwise.
    pub bytes: Option<u64>,
}

/// Identity of a body invocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BodyRunId {
    /// The call of the model.
    pub call: u32,
    /// Its instance.
    pub instance: u32,
    /// The micro-batch; none in R, N and U.
    pub microbatch: Option<u32>,
}

/// Reference to an event of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventRef {
    /// The track.
    pub track: u32,
    /// The index of the event in the track.
    pub event: u32,
}

/// A dependency between two events. The second event does not end before the first one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its start.
    pub from: EventRef,
    /// Its end.
    pub to: EventRef,
}

impl Trace {
    /// An event.
    pub fn event(&self, place: EventRef) -> &Event {
        &self.tracks[place.track as usize].events[place.event as usize]
    }

    /// The site of an event.
    pub fn site(&self, event: &Event) -> &TraceSite {
        &self.sites[event.site as usize]
    }

    /// The track of a rank and stream, which is added on first use.
    pub fn track(&mut self, rank: u64, stage: u32, stream: &Stream) -> u32 {
        let known = self.tracks.iter().position(|track| track.rank == rank && track.stream == *stream);
        known.unwrap_or_else(|| {
            self.tracks.push(Track { rank, stage, stream: stream.clone(), events: Vec::new() });
            self.tracks.len() - 1
        }) as u32
    }

    /// Puts tracks in order.
    pub fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.tracks.len()).collect();
        order.sort_by_key(|&old| (self.tracks[old].rank, self.tracks[old].stream.clone()));
        let mut now = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| now[old] = new as u32);
        let mut old: Vec<Option<Track>> = std::mem::take(&mut self.tracks).into_iter().map(Some).collect();
        self.tracks = order.iter().filter_map(|&at| old[at].take()).collect();
        let events = self.tracks.iter_mut().flat_map(|track| &mut track.events);
        let awaited = events.filter_map(|event| event.awaits.as_mut());
        let ends = self.flows.iter_mut().flat_map(|flow| [&mut flow.from, &mut flow.to]);
        awaited.chain(ends).for_each(|place| place.track = now[place.track as usize]);
    }

    /// Appends an event to a track and returns its reference.
    pub fn push(&mut self, track: u32, event: Event) -> EventRef {
        self.seconds = self.seconds.max(event.end());
        let events = &mut self.tracks[track as usize].events;
        events.push(event);
        EventRef { track, event: events.len() as u32 - 1 }
    }
}

impl Event {
    /// When it is over.
    pub fn end(&self) -> f64 {
        self.start + self.seconds
    }
}

impl Stream {
    /// As it is shown: `row`, `over tp`.
    pub fn label(&self) -> String {
        match self {
            Stream::Main => "row".to_string(),
            Stream::Async => "async runs".to_string(),
            Stream::Collectives(axes) => format!("over {axes}"),
            Stream::AsyncCollectives(axes) => format!("over {axes}, async runs"),
            Stream::Sends => "sends".to_string(),
            Stream::Receives => "receives".to_string(),
            Stream::Offloads => "to host memory".to_string(),
            Stream::Loads => "from host memory".to_string(),
        }
    }
}
