//! Order of a body's statements: reshards overlap with computation that does not depend on them.
//!
//! The algorithm is list scheduling on two streams. One stream computes, one statement at a time. The other executes the
//! reshards that have started, in order.
//!
//! A reshard starts as soon as its operands are available, but never before an earlier reshard of the text over the same
//! axes. Thus all ranks of a group execute their collectives in the same order.
//!
//! Among the statements that are ready, the one with the longest remaining work before the last reshard that needs it goes
//! first (Jackson's rule: largest tail first). Statements that no reshard needs keep their relative order, and fill the time
//! in which all others would wait.

use fusion::{Target, Unit, Uses};
use ir::mesh::Axes;
use ir::ops::Op;
use std::collections::HashMap;

/// Action on a unit, given by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OverlapStep {
    /// Runs its kernel.
    Compute(usize),
    /// Starts its reshard.
    Start(usize),
    /// Waits for it.
    Wait(usize),
}

/// A unit, as far as its order matters.
struct Item {
    seconds: f64,
    /// Its reshard goes on by itself.
    moves: bool,
    is_change: bool,
    /// Earlier units that must be over: they define what it reads, or use what it defines.
    needs: Vec<usize>,
    /// The one before it over the same axes, which must have started.
    behind: Option<usize>,
    /// Seconds from its end to that of the last reshard that needs it; 0 where none does.
    urgency: f64,
}

/// The order of statements, and of groups that run as one, on a mesh. Each reshard is waited for before its first use, or at the end.
pub(super) fn overlap(target: Target<'_>, units: &[Unit]) -> Vec<OverlapStep> {
    let mut list = List::new(items(target, units));
    while list.todo() {
        list.start();
        list.compute();
    }
    (0..units.len()).for_each(|item| list.wait(item));
    list.steps
}

fn items(target: Target<'_>, units: &[Unit]) -> Vec<Item> {
    let mut uses = Uses::default();
    let mut last_over: HashMap<Axes, usize> = HashMap::new();
    let mut items: Vec<Item> = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        let collective = unit.collective();
        let over = match collective.map(|stmt| &stmt.op) {
            Some(Op::Collective(collective)) if collective.communicates() => Some(collective.over().sorted()),
            _ => None,
        };
        items.push(Item {
            seconds: unit.seconds(target),
            moves: over.is_some(),
            is_change: collective.is_some(),
            needs: uses.needs(at, unit),
            behind: over.and_then(|over| last_over.insert(over, at)),
            urgency: 0.0,
        });
    }
    for at in (0..items.len()).rev() {
        let Item { seconds, moves, urgency, .. } = items[at];
        let urgency = if moves || urgency > 0.0 { seconds + urgency } else { 0.0 };
        for before in items[at].needs.clone().into_iter().chain(items[at].behind) {
            items[before].urgency = items[before].urgency.max(urgency);
        }
    }
    items
}

/// The order so far.
struct List {
    items: Vec<Item>,
    steps: Vec<OverlapStep>,
    /// When what has been computed, or has started, is over.
    ends: Vec<Option<f64>>,
    waited: Vec<bool>,
    /// Until when each lane is taken.
    computing: f64,
    moving: f64,
}

impl List {
    fn new(items: Vec<Item>) -> List {
        let count = items.len();
        let (ends, waited) = (vec![None; count], vec![false; count]);
        List { items, steps: Vec::new(), ends, waited, computing: 0.0, moving: 0.0 }
    }

    fn todo(&self) -> bool {
        self.ends.iter().any(Option::is_none)
    }

    /// When all that a statement needs is there; `None` if something has not begun, or it has itself.
    fn ready(&self, at: usize) -> Option<f64> {
        let item = &self.items[at];
        let begun = self.ends[at].is_none() && item.behind.is_none_or(|before| self.ends[before].is_some());
        let ends = item.needs.iter().map(|&before| self.ends[before]);
        ends.fold(begun.then_some(0.0), |latest, end| Some(f64::max(latest?, end?)))
    }

    /// Starts all reshards that need not wait, in order.
    fn start(&mut self) {
        for at in 0..self.items.len() {
            if self.items[at].moves && self.ready(at).is_some_and(|ready| ready <= self.computing) {
                self.issue(at);
            }
        }
    }

    /// Computes the most urgent statement that need not wait. If all must, lets time pass until the first need not.
    fn compute(&mut self) {
        let ready: Vec<(usize, f64)> =
            (0..self.items.len()).filter_map(|at| self.ready(at).map(|ready| (at, ready))).collect();
        let now = ready.iter().filter(|(at, ready)| !self.items[*at].moves && *ready <= self.computing);
        // Of equals the first: `max_by` gives the last.
        match now.rev().max_by(|(a, _), (b, _)| self.items[*a].urgency.total_cmp(&self.items[*b].urgency)) {
            Some(&(at, _)) => self.issue(at),
            None => {
                let next = ready.iter().map(|(_, ready)| *ready).min_by(f64::total_cmp);
                self.computing = next.map_or(self.computing, |next| next.max(self.computing));
            }
        }
    }

    fn issue(&mut self, at: usize) {
        for place in 0..self.items[at].needs.len() {
            self.wait(self.items[at].needs[place]);
        }
        let Item { seconds, moves, is_change, .. } = self.items[at];
        self.steps.push(if is_change { OverlapStep::Start(at) } else { OverlapStep::Compute(at) });
        if moves {
            self.moving = self.moving.max(self.computing) + seconds;
        } else {
            self.computing += seconds;
        }
        self.ends[at] = Some(if moves { self.moving } else { self.computing });
        if is_change && !moves {
            self.wait(at);
        }
    }

    /// Waits for a reshard, unless that has been done.
    fn wait(&mut self, at: usize) {
        if self.items[at].is_change && !std::mem::replace(&mut self.waited[at], true) {
            self.steps.push(OverlapStep::Wait(at));
        }
    }
}

#[cfg(test)]
#[path = "overlap_tests.rs"]
mod tests;
