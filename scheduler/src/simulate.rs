//! The one simulator: when each action of any schedule runs, and what it waited for.
//!
//! A rank runs its row in order. An action starts when the rank is free and all it needs has arrived:
//! - F of stage s needs F of s-1;
//! - I or B of s needs its own F, and I or B of s+1;
//! - W needs its own I;
//! - slice k needs, on the same stage, F of slice k-1 for F and I or B of slice k+1 for I and B.
//!
//! What comes from another rank arrives the hop's [`StageCosts::comm`] after its end; sends do not hold up the sender
//! ([`can_run`] tells whether an order can be run where they do).
//! R, N, U, G, D, O and L take no time and no memory here.

mod deadlock;
mod places;
mod sends;
mod timeline;

pub use deadlock::{Blocked, Deadlock, On, Stand};
pub use places::Place;
pub use sends::{Sends, can_run};
pub use timeline::{Idle, Reason, Slot, Timeline, Wait};

use crate::costs::StageCosts;
use ir::schedule::{Action, Item, Kind, Schedule};
use places::{Need, Places};

/// Why a schedule cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// Ranks wait for each other, or for what never comes.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// An item that F, I, W and B cannot have, or one that stands twice.
    #[error("rank {rank}, position {position}: `{item}` {why}")]
    Item {
        /// The rank whose row holds it.
        rank: usize,
        /// Where in the row.
        position: usize,
        /// The item.
        item: Item,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The indices span more than the schedule does.
    #[error("the items name {stages} stages x {microbatches} micro-batches x {slices} slices, but are only {items}")]
    Incomplete {
        /// One more than the highest stage named.
        stages: usize,
        /// One more than the highest micro-batch named.
        microbatches: usize,
        /// One more than the highest slice named.
        slices: usize,
        /// How many items there are.
        items: usize,
    },
}

/// Runs a schedule on paper.
///
/// Time linear in the number of actions, as long as few ranks wait on the same one.
pub fn simulate(schedule: &Schedule, costs: &StageCosts) -> Result<Timeline, SimulateError> {
    let mut run = Run::new(schedule, costs)?;
    let ranks = schedule.rows.len();
    let mut needs: Vec<Option<Need>> = vec![None; ranks];
    let mut waiting: Vec<Vec<(usize, usize)>> = vec![Vec::new(); ranks]; // per producing rank: (position, who waits)
    let mut ready: Vec<usize> = (0..ranks).rev().collect();
    while let Some(rank) = ready.pop() {
        needs[rank] = run.advance(rank);
        if let Some(place) = needs[rank].and_then(|need| run.places.find(need)) {
            waiting[place.rank as usize].push((place.position as usize, rank));
        }
        let done = run.rows[rank].len();
        waiting[rank].retain(|&(position, waiter)| {
            if position < done {
                ready.push(waiter);
            }
            position >= done
        });
    }
    if needs.iter().any(Option::is_some) { Err(run.deadlock(&needs).into()) } else { Ok(run.finish()) }
}

struct Run<'a> {
    schedule: &'a Schedule,
    costs: &'a StageCosts,
    places: Places,
    /// What has run so far.
    rows: Vec<Vec<Slot>>,
}

/// The last thing that an action needs to arrive.
struct Arrival {
    time: f64,
    place: Place,
}

fn later(a: Option<Arrival>, b: Option<Arrival>) -> Option<Arrival> {
    match (&a, &b) {
        (Some(first), Some(second)) if second.time > first.time => b,
        (Some(_), _) => a,
        (None, _) => b,
    }
}

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule, costs: &'a StageCosts) -> Result<Run<'a>, SimulateError> {
        let places = Places::of(schedule, costs.f.len())?;
        let rows = schedule.rows.iter().map(|row| Vec::with_capacity(row.len())).collect();
        Ok(Run { schedule, costs, places, rows })
    }

    /// Runs a rank until its row ends or it needs what has not run yet.
    fn advance(&mut self, rank: usize) -> Option<Need> {
        while let Some(action) = self.schedule.rows[rank].get(self.rows[rank].len()) {
            let free = self.rows[rank].last().map_or(0.0, |slot| slot.end);
            let late = match self.arrival(rank, action) {
                Ok(arrival) => arrival.filter(|arrival| arrival.time > free),
                Err(need) => return Some(need),
            };
            let start = late.as_ref().map_or(free, |arrival| arrival.time);
            let waited_on = late.map(|arrival| self.wait(free, arrival.place));
            let end = start + self.costs.seconds(action);
            self.rows[rank].push(Slot { action: *action, start, end, waited_on });
        }
        None
    }

    /// When all that an action needs has arrived on its rank; the need that has not run, if any.
    fn arrival(&self, rank: usize, action: &Action) -> Result<Option<Arrival>, Need> {
        match *action {
            Action::One(item) => self.arrival_for(rank, item),
            Action::Pair(a, b) => Ok(later(self.arrival_for(rank, a)?, self.arrival_for(rank, b)?)),
        }
    }

    fn arrival_for(&self, rank: usize, item: Item) -> Result<Option<Arrival>, Need> {
        let mut latest = None;
        for need in self.places.needs(item).into_iter().flatten() {
            let place = self.places.find(need).ok_or(need)?;
            let slot = self.rows[place.rank as usize].get(place.position as usize).ok_or(need)?;
            let hop = if place.rank as usize == rank { 0.0 } else { self.hop(item) };
            let time = slot.end + hop;
            latest = later(latest, Some(Arrival { time, place }));
        }
        Ok(latest)
    }

    /// Seconds that what comes from another rank takes to an item: to F from the stage before, else from the one after.
    fn hop(&self, item: Item) -> f64 {
        let stage = item.stage.map_or(0, |stage| stage as usize);
        let hop = if item.kind == Kind::F { stage.checked_sub(1) } else { Some(stage) };
        hop.and_then(|hop| self.costs.comm.get(hop)).copied().unwrap_or(0.0)
    }

    /// A rank was free at `since` and waited for what runs at `place`.
    fn wait(&self, since: f64, place: Place) -> Wait {
        let over = self.rows[place.rank as usize][place.position as usize].end <= since;
        Wait { since, place, reason: if over { Reason::Latency } else { Reason::Dependency } }
    }

    fn finish(mut self) -> Timeline {
        let peak_memory = (0..self.rows.len()).map(|rank| self.account_memory(rank)).collect();
        Timeline::new(self.rows, peak_memory)
    }

    /// The peak of a rank, with memory as the reason of each gap in which the limit kept out its next F.
    fn account_memory(&mut self, rank: usize) -> f64 {
        let (mut held, mut peak) = (0.0_f64, 0.0_f64);
        let mut before = Vec::with_capacity(self.rows[rank].len());
        for slot in &self.rows[rank] {
            let (takes, frees) = self.costs.memory(&slot.action);
            before.push(held);
            peak = peak.max(held + takes);
            held += takes - frees;
        }
        if let Some(&limit) = self.costs.limit.as_ref().and_then(|limit| limit.get(rank)) {
            self.blame_memory(rank, &before, limit);
        }
        peak
    }

    /// Memory is the reason of a gap if the rank's next F arrived before its end, but did not fit beside what was held.
    fn blame_memory(&mut self, rank: usize, before: &[f64], limit: f64) {
        let mut next_f: Option<(f64, f64)> = None; // when it arrived, what it takes
        for (position, held) in before.iter().enumerate().rev() {
            let slot = self.rows[rank][position];
            let (takes, _) = self.costs.memory(&slot.action);
            if takes > 0.0 {
                let arrival = self.arrival(rank, &slot.action).ok().flatten();
                next_f = Some((arrival.map_or(0.0, |arrival| arrival.time), takes));
            } else if let Some(wait) = &mut self.rows[rank][position].waited_on
                && next_f.is_some_and(|(arrived, takes)| arrived < slot.start && held + takes > limit * (1.0 + 1e-9))
            {
                wait.reason = Reason::Memory;
            }
        }
    }

    fn deadlock(&self, needs: &[Option<Need>]) -> Deadlock {
        let next = |rank: usize| self.schedule.rows[rank].get(self.rows[rank].len()).copied();
        let blocked = |rank: usize| {
            let need = needs[rank]?;
            let place = self.places.find(need);
            let action = place.map(|place| self.schedule.rows[place.rank as usize][place.position as usize]);
            let makes = |item: &Item| self.places.made_by(*item) == Some(need);
            let item = action.and_then(|action| action.items().find(makes));
            let other = place.and_then(|place| Some((place.rank as usize, next(place.rank as usize)?)));
            Some(Blocked { at: next(rank)?, on: On::Result(item.unwrap_or(self.places.maker(need))), other })
        };
        let stand = |rank: usize| Stand {
            done: self.schedule.rows[rank][..self.rows[rank].len()].to_vec(),
            blocked: blocked(rank),
        };
        Deadlock { ranks: (0..self.rows.len()).map(stand).collect() }
    }
}

#[cfg(test)]
mod tests;
