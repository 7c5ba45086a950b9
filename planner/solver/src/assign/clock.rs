//! When to stop.

use std::time::{Duration, Instant};

use super::problem::Budget;

/// When several searches together are to be over.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// So long from now on; never, where no time is given.
    pub fn after(time: Option<Duration>) -> Deadline {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// The time that is left, where there is an end.
    pub fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}

/// Remaining budget.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    work: Option<u64>,
    deadline: Option<Instant>,
    done: u64,
}

impl Clock {
    /// Starts now.
    pub(crate) fn new(budget: &Budget) -> Clock {
        let deadline = budget.time.and_then(|time| Instant::now().checked_add(time));
        Clock { work: budget.work, deadline, done: 0 }
    }

    /// A clock that stops with this one, or after `work` more steps.
    pub(crate) fn part(&self, work: u64) -> Clock {
        Clock { work: Some(work.min(self.left().unwrap_or(u64::MAX))), deadline: self.deadline, done: 0 }
    }

    /// A clock that stops after a share of what is left; never, where there is no limit.
    pub(crate) fn share(&self, share: f64) -> Clock {
        let work = self.left().map(|left| (left as f64 * share) as u64);
        let deadline = self.deadline.map(|end| {
            let now = Instant::now();
            now + end.saturating_duration_since(now).mul_f64(share)
        });
        Clock { work, deadline, done: 0 }
    }

    /// Notes that steps were done.
    pub(crate) fn spend(&mut self, steps: u64) {
        self.done += steps;
    }

    /// Steps that are left, where they are counted.
    pub(crate) fn left(&self) -> Option<u64> {
        self.work.map(|all| all.saturating_sub(self.done))
    }

    /// Steps done so far.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Returns whether nothing is left.
    pub(crate) fn over(&self) -> bool {
        self.work.is_some_and(|all| self.done >= all) || self.deadline.is_some_and(|end| Instant::now() >= end)
    }
}
