//! Results of a simulation: times, bubble, memory, gaps and their reasons, the critical path.

use super::{ActionPosition, Simulation};
use ir::schedule::{Action, Schedule};

/// A schedule with the times of its actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Actions of each rank, in order.
    pub rows: Vec<Vec<Slot>>,
    /// End of the last action, from time 0: the time of a step that ends in a barrier.
    pub makespan: f64,
    /// Longest time of a rank from its first start to its last end: the cost of the zero-bubble papers.
    pub span: f64,
    /// Seconds of work of each rank.
    pub busy: Vec<f64>,
    /// Peak memory of each rank, in the unit of the costs.
    pub peak_memory: Vec<f64>,
}

/// An action with its times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// The action.
    pub action: Action,
    /// Its start.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// The wait before it; `None` without a gap.
    pub waited_on: Option<Wait>,
}

/// A gap before an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// End of the rank's previous action.
    pub since: f64,
    /// Position of the action whose result arrived last.
    pub place: ActionPosition,
    /// Reason of the gap.
    pub reason: Reason,
}

/// Reason of a rank's idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The other rank had not finished.
    Dependency,
    /// The other rank had finished, and the message was in flight.
    Latency,
    /// The rank's next F had arrived, but the memory limit blocked it.
    Memory,
}

/// Idle seconds of a rank by reason; with its busy seconds they sum to the makespan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Idle {
    /// Seconds waiting for another rank to finish.
    pub dependency: f64,
    /// Seconds waiting for a message in flight.
    pub latency: f64,
    /// Seconds in which the memory limit blocked an F.
    pub memory: f64,
    /// Seconds after the rank's last action.
    pub barrier: f64,
}

impl Reason {
    /// Returns the reason of a wait for a result that was computed at `made`, on a rank that was free at `free`, memory aside.
    pub(super) fn of_wait(made: f64, free: f64) -> Reason {
        if made <= free { Reason::Latency } else { Reason::Dependency }
    }
}

impl Idle {
    /// Adds a gap from `free` to the `start` of the next action, whose input was computed at `made`.
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
    /// Builds the timeline of a schedule's simulation.
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

    /// Returns the idle share of the makespan of the busiest rank.
    pub fn bubble(&self) -> f64 {
        self.idle_share(self.makespan)
    }

    /// Returns the idle share of the span of the busiest rank, as the zero-bubble papers define it.
    pub fn bubble_span(&self) -> f64 {
        self.idle_share(self.span)
    }

    fn idle_share(&self, of: f64) -> f64 {
        let busiest = self.busy.iter().copied().fold(0.0, f64::max);
        if of > 0.0 { (of - busiest) / of } else { 0.0 }
    }

    /// Returns the idle seconds of a rank by reason. A gap that another rank's work and then a message fill counts in both.
    pub fn idle(&self, rank: usize) -> Idle {
        let row = &self.rows[rank];
        let mut idle = Idle { barrier: self.makespan - row.last().map_or(0.0, |slot| slot.end), ..Idle::default() };
        for (slot, Wait { since, place, reason }) in row.iter().filter_map(|slot| Some((slot, slot.waited_on?))) {
            idle.add(reason, since, self.slot(place).end, slot.start);
        }
        idle
    }

    /// Returns the critical path, first action first. Each action starts when the previous one of the path ends, or when the
    /// message of the previous one arrives.
    pub fn critical_path(&self) -> Vec<ActionPosition> {
        let last = self.rows.iter().enumerate().find_map(|(rank, row)| {
            let position = row.iter().position(|slot| slot.end >= self.makespan)?;
            Some(ActionPosition { rank: rank as u32, position: position as u32 })
        });
        let mut path: Vec<ActionPosition> = std::iter::successors(last, |&at| self.start_cause(at)).collect();
        path.reverse();
        path
    }

    /// Returns the action for whose end or message the one at a position waited; `None` at the beginning of a row.
    fn start_cause(&self, at: ActionPosition) -> Option<ActionPosition> {
        match self.slot(at).waited_on {
            Some(wait) => Some(wait.place),
            None => Some(ActionPosition { position: at.position.checked_sub(1)?, ..at }),
        }
    }

    /// Returns the action at a position.
    pub fn slot(&self, place: ActionPosition) -> &Slot {
        &self.rows[place.rank as usize][place.position as usize]
    }
}
