//! Results of a simulation: times, bubble, memory, gaps and their reasons, the critical path.

use super::{ActionPosition, Simulation};
use ir::schedule::{Action, Schedule};

/// A schedule in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// `rows[r]` is what rank r does, in order.
    pub rows: Vec<Vec<Slot>>,
    /// End of the last action, from time 0: what a step pays that ends in a barrier.
    pub makespan: f64,
    /// The longest time any rank takes from its first start to its last end: the zero-bubble papers' figure.
    pub span: f64,
    /// Seconds of work of each rank.
    pub busy: Vec<f64>,
    /// The most memory each rank holds, in the unit of the costs.
    pub peak_memory: Vec<f64>,
}

/// An action in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// What runs.
    pub action: Action,
    /// From when.
    pub start: f64,
    /// Until when.
    pub end: f64,
    /// Why the rank was idle before it; `None` if it was not.
    pub waited_on: Option<Wait>,
}

/// A gap before an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// When the rank had become free.
    pub since: f64,
    /// What arrived last.
    pub place: ActionPosition,
    /// What would have to change to close the gap.
    pub reason: Reason,
}

/// Why a rank is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The other rank had not ended yet.
    Dependency,
    /// The other rank had ended: only the message was on its way.
    Latency,
    /// The rank's next F had arrived, but the memory limit kept it out.
    Memory,
}

/// The idle seconds of a rank; with its busy seconds they make up the makespan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Idle {
    /// Waiting for another rank to end.
    pub dependency: f64,
    /// Waiting for a message on its way.
    pub latency: f64,
    /// Kept from working ahead by the memory limit.
    pub memory: f64,
    /// After its last action.
    pub barrier: f64,
}

impl Reason {
    /// Why a rank that was free by then waited for what ended at `made`, memory aside.
    pub(super) fn of_wait(made: f64, free: f64) -> Reason {
        if made <= free { Reason::Latency } else { Reason::Dependency }
    }
}

impl Idle {
    /// A gap from when the rank was free to the start of its next action, for what ended at `made`.
    pub(super) fn add(&mut self, reason: Reason, free: f64, made: f64, start: f64) {
        let made = made.max(free);
        if reason == Reason::Memory {
            self.memory += start - free;
        } else {
            self.dependency += made - free;
            self.latency += start - made;
        }
    }
}

impl Timeline {
    /// That of a schedule's run.
    pub(super) fn of(schedule: &Schedule, run: &Simulation<'_>) -> Timeline {
        let mut rows: Vec<Vec<Slot>> = schedule.rows.iter().map(|row| Vec::with_capacity(row.len())).collect();
        let mut places: Vec<ActionPosition> = Vec::with_capacity(run.timed().len());
        for (rank, times) in run.timed() {
            let row = &mut rows[rank];
            let place = ActionPosition { rank: rank as u32, position: row.len() as u32 };
            let since = row.last().map_or(0.0, |slot| slot.end);
            let waited_on = times.reason.map(|reason| Wait { since, place: places[times.after as usize], reason });
            let action = schedule.rows[rank][row.len()];
            row.push(Slot { action, start: times.start, end: times.end, waited_on });
            places.push(place);
        }
        Timeline::new(rows, run.peak_memory.clone())
    }

    fn new(rows: Vec<Vec<Slot>>, peak_memory: Vec<f64>) -> Timeline {
        let ends = rows.iter().filter_map(|row| Some((row.first()?.start, row.last()?.end)));
        let (makespan, span) =
            ends.fold((0.0_f64, 0.0_f64), |(makespan, span), (start, end)| (makespan.max(end), span.max(end - start)));
        let busy = rows.iter().map(|row| row.iter().map(|slot| slot.end - slot.start).sum()).collect();
        Timeline { rows, makespan, span, busy, peak_memory }
    }

    /// The idle share of the makespan of the busiest rank.
    pub fn bubble(&self) -> f64 {
        self.idle_share(self.makespan)
    }

    /// The idle share of the span of the busiest rank, as the zero-bubble papers count.
    pub fn bubble_span(&self) -> f64 {
        self.idle_share(self.span)
    }

    fn idle_share(&self, of: f64) -> f64 {
        let busiest = self.busy.iter().copied().fold(0.0, f64::max);
        if of > 0.0 { (of - busiest) / of } else { 0.0 }
    }

    /// Where a rank's idle seconds go. A gap that another rank's work and then a message fill counts in both.
    pub fn idle(&self, rank: usize) -> Idle {
        let row = &self.rows[rank];
        let mut idle = Idle { barrier: self.makespan - row.last().map_or(0.0, |slot| slot.end), ..Idle::default() };
        for (slot, Wait { since, place, reason }) in row.iter().filter_map(|slot| Some((slot, slot.waited_on?))) {
            idle.add(reason, since, self.slot(place).end, slot.start);
        }
        idle
    }

    /// The chain of actions that sets the makespan, first to last: each starts when the one before it ends, or when the
    /// message of the one before it arrives.
    pub fn critical_path(&self) -> Vec<ActionPosition> {
        let place = |rank: usize, position: usize| ActionPosition { rank: rank as u32, position: position as u32 };
        let ends_last = |row: &Vec<Slot>| row.iter().position(|slot| slot.end >= self.makespan);
        let last = self.rows.iter().enumerate().find_map(|(rank, row)| Some(place(rank, ends_last(row)?)));
        let before = |at: &ActionPosition| match self.slot(*at).waited_on {
            Some(wait) => Some(wait.place),
            None => Some(ActionPosition { position: at.position.checked_sub(1)?, ..*at }),
        };
        let mut path: Vec<ActionPosition> = std::iter::successors(last, before).collect();
        path.reverse();
        path
    }

    /// The action at a place.
    pub fn slot(&self, place: ActionPosition) -> &Slot {
        &self.rows[place.rank as usize][place.position as usize]
    }
}
