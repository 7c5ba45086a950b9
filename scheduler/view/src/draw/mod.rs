//! Pictures of timelines: SVG for print, an interactive HTML page, and a trace for Perfetto.
//!
//! A [`Picture`] is their common input: a row of bars per rank, the reasons for idle time between them, and the rank's
//! memory.

pub(crate) mod axis;
mod figures;
mod html;
mod ink;
mod measured;
mod page;
mod svg;
mod trace;

pub use figures::verdict;
pub use html::html;
pub use measured::{MeasuredError, measured};
pub use page::{escaped, filled, page};
pub use svg::svg;
pub use trace::trace;

use crate::report::ScheduleReport;
use ir::schedule::{Action, Item, Kind};
use scheduler::costs::{ActionMemory, StageCosts};
use scheduler::simulate::{Reason, Slot, Timeline, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// A timeline with all that is drawn of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Its title: `1f1b: 4 ranks, 8 micro-batches`.
    pub title: String,
    /// Its figures: makespan, bound, bubble.
    pub summary: String,
    /// The unit of times.
    pub unit: String,
    /// The end of the last bar.
    pub makespan: f64,
    /// One for each rank.
    pub rows: Vec<DrawnRow>,
}

/// Row of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnRow {
    /// `rank 3`.
    pub name: String,
    /// In the order of time.
    pub bars: Vec<Bar>,
    /// The most that it holds; `None` where memory is not known.
    pub peak: Option<f64>,
    /// The most that it may hold.
    pub limit: Option<f64>,
}

/// An action in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its colour and hatching.
    pub hue: Hue,
    /// `2F3`, `(0F3|7B1)`.
    pub name: String,
    /// Its label: one text, or those of a pair.
    pub texts: Vec<String>,
    /// From when.
    pub start: f64,
    /// Until when.
    pub end: f64,
    /// Position among the rank's stages, from 0 for the first to 1 for the last. In two chains 0 goes down, 1 up.
    pub shade: f64,
    /// True if it is on the critical path.
    pub critical: bool,
    /// Why the rank was idle before it.
    pub gap: Option<Gap>,
    /// Memory of the rank.
    pub memory: Option<BarMemory>,
}

/// Memory of a rank around a bar, in the unit of the schedule's costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BarMemory {
    /// While the bar's action runs.
    pub during: f64,
    /// After the action.
    pub after: f64,
}

/// The colour and the hatching of a bar.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hue {
    /// Forward.
    F,
    /// Gradient of the inputs.
    I,
    /// Gradient of the weights.
    W,
    /// I and W in one.
    B,
    /// An overlapped pair.
    P,
    /// Anything else.
    X,
}

/// Idle time before a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// When the rank had become free.
    pub since: f64,
    /// When what it waited for was made, if that came later: from then on the message is under way.
    pub made: f64,
    /// `dependency`, `latency` or `memory`.
    pub reason: &'static str,
    /// The bar that it waited for: row and index.
    pub on: [usize; 2],
}

impl Picture {
    /// Picture of a schedule; the costs are those of the timeline.
    pub fn of(report: &ScheduleReport, timeline: &Timeline, costs: &StageCosts) -> Picture {
        let critical = timeline.critical_path().iter().map(|place| (place.rank, place.position)).collect();
        let drawing = Drawing { timeline, costs, chunks: Chunks::of(timeline), critical };
        Picture {
            title: figures::title(report),
            summary: figures::summary(report),
            unit: report.unit.clone(),
            makespan: timeline.makespan,
            rows: (0..timeline.rows.len()).map(|rank| drawing.row(rank)).collect(),
        }
    }

    /// The most memory that any rank holds or may hold; 0 where none is known.
    pub(crate) fn most_memory(&self) -> f64 {
        self.rows.iter().flat_map(|row| [row.peak, row.limit]).flatten().fold(0.0, f64::max)
    }

    /// The hues that occur.
    pub(crate) fn hues(&self) -> BTreeSet<Hue> {
        self.rows.iter().flat_map(|row| &row.bars).map(|bar| bar.hue).collect()
    }
}

impl Bar {
    /// True if the rank was idle before it while a message was in flight.
    pub(crate) fn waits_for_message(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.reason != "memory" && gap.made < self.start)
    }
}

/// A timeline with what its bars depend on.
struct Drawing<'a> {
    timeline: &'a Timeline,
    costs: &'a StageCosts,
    chunks: Chunks,
    /// Ranks and positions of the critical path.
    critical: BTreeSet<(u32, u32)>,
}

impl Drawing<'_> {
    fn row(&self, rank: usize) -> DrawnRow {
        let mut bars = Vec::new();
        let mut held = 0.0;
        for (position, slot) in self.timeline.rows[rank].iter().enumerate() {
            let ActionMemory { takes, frees } = self.costs.memory(&slot.action);
            let during = held + takes;
            held = during - frees;
            bars.push(self.bar(rank, position, slot, BarMemory { during, after: held }));
        }
        // The end of a step takes no time here. Its bar follows all others, so that positions stay valid.
        bars.retain(|bar| bar.hue != Hue::X);
        let limit = self.costs.limit.as_ref().and_then(|limits| limits.get(rank)).copied();
        DrawnRow { name: format!("rank {rank}"), bars, peak: Some(self.timeline.peak_memory[rank]), limit }
    }

    fn bar(&self, rank: usize, position: usize, slot: &Slot, memory: BarMemory) -> Bar {
        let hue = match slot.action {
            Action::Pair(..) => Hue::P,
            Action::One(item) => Hue::of(item.kind),
        };
        let first = slot.action.items().next().and_then(|item| item.stage);
        let texts = slot.action.items().map(|item| Item { stage: item.stage.filter(|_| !self.chunks.one), ..item });
        Bar {
            hue,
            name: slot.action.to_string(),
            texts: texts.map(|item| item.to_string()).collect(),
            start: slot.start,
            end: slot.end,
            shade: first.map_or(0.0, |stage| self.chunks.shade(rank, stage)),
            critical: self.critical.contains(&(rank as u32, position as u32)),
            gap: slot.waited_on.map(|wait| self.gap(wait)),
            memory: Some(memory),
        }
    }

    fn gap(&self, wait: Wait) -> Gap {
        Gap {
            since: wait.since,
            made: self.timeline.slot(wait.place).end.max(wait.since),
            reason: match wait.reason {
                Reason::Dependency => "dependency",
                Reason::Latency => "latency",
                Reason::Memory => "memory",
            },
            on: [wait.place.rank as usize, wait.place.position as usize],
        }
    }
}

impl Hue {
    fn of(kind: Kind) -> Hue {
        match kind {
            Kind::F => Hue::F,
            Kind::I => Hue::I,
            Kind::W => Hue::W,
            Kind::B => Hue::B,
            _ => Hue::X,
        }
    }
}

/// The stages of each rank.
struct Chunks {
    of_rank: Vec<Vec<u32>>,
    /// True if each rank has one stage.
    one: bool,
    /// True if stages are on two ranks, one for each direction.
    two_ways: bool,
}

impl Chunks {
    fn of(timeline: &Timeline) -> Chunks {
        let mut ranks: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        let mut of_rank = vec![BTreeSet::new(); timeline.rows.len()];
        for (rank, row) in timeline.rows.iter().enumerate() {
            for stage in row.iter().flat_map(|slot| slot.action.items()).filter_map(|item| item.stage) {
                of_rank[rank].insert(stage);
                ranks.entry(stage).or_default().insert(rank);
            }
        }
        Chunks {
            one: of_rank.iter().all(|stages| stages.len() <= 1),
            of_rank: of_rank.into_iter().map(|stages| stages.into_iter().collect()).collect(),
            two_ways: ranks.values().any(|ranks| ranks.len() > 1),
        }
    }

    fn shade(&self, rank: usize, stage: u32) -> f64 {
        let stages = &self.of_rank[rank];
        if self.two_ways {
            return if stage as usize == rank { 0.0 } else { 1.0 };
        }
        let at = stages.iter().position(|&other| other == stage).unwrap_or(0);
        at as f64 / (stages.len().max(2) - 1) as f64
    }
}

#[cfg(test)]
mod tests;
