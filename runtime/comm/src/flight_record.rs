//! The flight record of a process: the last messages that it began and that landed before a failure, and those that never did.

use super::courier::{Job, Landing, Way};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Name and version of the schema of a [`WireRecord`].
pub(super) const RECORD_SCHEMA: &str = "meshwright.flight-record/1";

/// The number of events that are recorded.
const MOST: usize = 256;

/// The last events of a process on the wire, before a failure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WireRecord {
    /// `meshwright.flight-record/1`.
    pub schema: &'static str,
    /// The last step that began.
    pub step: u64,
    /// The number of the process.
    pub process: usize,
    /// Its machine.
    pub host: String,
    /// The rank that failed first, of any process.
    pub failed_rank: usize,
    /// The cause.
    pub why: String,
    /// The waits of threads here, in words.
    pub waits: Vec<String>,
    /// Messages that have begun and not landed.
    pub pending: Vec<WireMessage>,
    /// The last messages that began or landed, the latest last.
    pub events: Vec<WireEvent>,
}

/// A message on the wire.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WireMessage {
    /// `send`, `receive` or `sum`.
    way: Way,
    /// The other process; of a sum the first other one.
    pub process: usize,
    /// The number of the lane between the two processes; of a sum that of the group.
    pub lane: u32,
    /// The group or channel that it belongs to.
    pub of: String,
    /// The number among the exchanges of the group or the messages of the channel.
    pub number: u64,
    /// Its bytes, or the most that are awaited.
    pub bytes: usize,
}

/// A message that began or landed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WireEvent {
    /// Seconds before the record was made.
    pub seconds_ago: f64,
    /// `begun` or `landed`.
    event: EventKind,
    /// The message.
    #[serde(flatten)]
    pub message: WireMessage,
}

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EventKind {
    Begun,
    Landed,
}

/// The last events, as the courier notes them.
#[derive(Default)]
pub(super) struct Events(VecDeque<Noted>);

struct Noted {
    at: Instant,
    kind: EventKind,
    message: (Way, usize, u32, u64, usize),
    landing: Arc<dyn Landing>,
}

impl Events {
    pub(super) fn note(&mut self, kind: EventKind, job: &Job, bytes: usize) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        let message = (job.way, job.process, job.tag, job.target.number, bytes);
        self.0.push_back(Noted { at: Instant::now(), kind, message, landing: job.landing.clone() });
    }

    /// The events in words.
    pub(super) fn list(&self) -> Vec<WireEvent> {
        let events = self.0.iter().map(|noted| {
            let (way, process, lane, number, bytes) = noted.message;
            let message = WireMessage { way, process, lane, of: noted.landing.name(), number, bytes };
            WireEvent { seconds_ago: noted.at.elapsed().as_secs_f64(), event: noted.kind, message }
        });
        events.collect()
    }
}

impl WireMessage {
    /// A message that is under way.
    pub(super) fn of(job: &Job) -> WireMessage {
        let (way, process, lane, number) = (job.way, job.process, job.tag, job.target.number);
        WireMessage { way, process, lane, of: job.landing.name(), number, bytes: job.bytes.len() }
    }
}
