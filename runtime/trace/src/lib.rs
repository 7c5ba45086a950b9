//! Timeline of a step, measured or predicted: both have the same type, so that they can be compared directly.
//!
//! A track contains one rank's events in one lane: the instruction stream, the async stream, one communicator for each set
//! of axes and starting thread, outgoing and incoming messages. Events have the program's names, `layer.F %q = einsum`; the
//! event of a body invocation encloses those of its steps. Flows join the two ends of a message and the members of a sum
//! over stages.

mod chrome;
mod profile;
mod share;
mod site;
#[cfg(test)]
mod tests;

pub use chrome::write;
pub use profile::{KernelTime, Peak, Profile, seconds_by_share};
pub use share::{RankShare, shares};
pub use site::{Kind, Site, body_sites, instr_site, moved_by};

/// A step in time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// What events are of.
    pub sites: Vec<Site>,
    /// In the order of ranks, then of lanes.
    pub tracks: Vec<Track>,
    /// What goes from one event to another.
    pub flows: Vec<Flow>,
    /// Seconds from the start of the step to the end of its last event.
    pub seconds: f64,
}

/// What a rank does in a lane, by start.
#[derive(Clone, PartialEq, Debug)]
pub struct Track {
    /// The rank.
    pub rank: u64,
    /// The pipeline rank that it belongs to.
    pub stage: u32,
    /// Where it does it.
    pub lane: Lane,
    /// What it does.
    pub events: Vec<Event>,
}

/// What goes on at the same time on a rank.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// The row.
    Row,
    /// Runs that were started.
    Beside,
    /// Layout changes over these axes that the row starts.
    Changes(String),
    /// Those that started runs start.
    ChangesBeside(String),
    /// Messages to other stages.
    Sends,
    /// Messages from other stages.
    Receives,
}

/// Something that takes time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// What: an index of [`Trace::sites`].
    pub site: u32,
    /// Seconds from the start of the step.
    pub start: f64,
    /// Seconds that it takes.
    pub seconds: f64,
    /// For which run of a block; none for what the row does between runs.
    pub run: Option<RunAt>,
    /// Of a wait: what it waits for.
    pub awaits: Option<Place>,
}

/// Which run of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunAt {
    /// The call of the model.
    pub call: u32,
    /// Its instance.
    pub instance: u32,
    /// The micro-batch; none in R, N and U.
    pub microbatch: Option<u32>,
}

/// An event of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The track.
    pub track: u32,
    /// Its event.
    pub event: u32,
}

/// What goes from one event to another, which does not end before the first has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Where it begins.
    pub from: Place,
    /// Where it ends.
    pub to: Place,
}

impl Trace {
    /// An event.
    pub fn event(&self, place: Place) -> &Event {
        &self.tracks[place.track as usize].events[place.event as usize]
    }

    /// What an event is of.
    pub fn site(&self, event: &Event) -> &Site {
        &self.sites[event.site as usize]
    }

    /// The track of a rank and lane, made if there is none yet.
    pub fn track(&mut self, rank: u64, stage: u32, lane: &Lane) -> u32 {
        let known = self.tracks.iter().position(|track| track.rank == rank && track.lane == *lane);
        known.unwrap_or_else(|| {
            self.tracks.push(Track { rank, stage, lane: lane.clone(), events: Vec::new() });
            self.tracks.len() - 1
        }) as u32
    }

    /// Puts tracks in order.
    pub fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.tracks.len()).collect();
        order.sort_by_key(|&old| (self.tracks[old].rank, self.tracks[old].lane.clone()));
        let mut now = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| now[old] = new as u32);
        let mut old: Vec<Option<Track>> = std::mem::take(&mut self.tracks).into_iter().map(Some).collect();
        self.tracks = order.iter().filter_map(|&at| old[at].take()).collect();
        let moved = |place: &mut Place| place.track = now[place.track as usize];
        self.tracks
            .iter_mut()
            .flat_map(|track| &mut track.events)
            .filter_map(|event| event.awaits.as_mut())
            .for_each(moved);
        self.flows.iter_mut().flat_map(|flow| [&mut flow.from, &mut flow.to]).for_each(moved);
    }

    /// Adds an event to a track and gives its place.
    pub fn push(&mut self, track: u32, event: Event) -> Place {
        self.seconds = self.seconds.max(event.end());
        let events = &mut self.tracks[track as usize].events;
        events.push(event);
        Place { track, event: events.len() as u32 - 1 }
    }
}

impl Event {
    /// When it is over.
    pub fn end(&self) -> f64 {
        self.start + self.seconds
    }
}

impl Lane {
    /// As it is shown: `row`, `over tp`.
    pub fn label(&self) -> String {
        match self {
            Lane::Row => "row".to_string(),
            Lane::Beside => "started runs".to_string(),
            Lane::Changes(axes) => format!("over {axes}"),
            Lane::ChangesBeside(axes) => format!("over {axes}, started runs"),
            Lane::Sends => "sends".to_string(),
            Lane::Receives => "receives".to_string(),
        }
    }
}
