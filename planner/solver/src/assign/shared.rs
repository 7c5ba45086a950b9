//! The best assignment so far, which all searches read and better.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// An assignment of the net that a search began with.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    /// Its choices; empty while there is none.
    pub(crate) choice: Vec<usize>,
    /// Its cost.
    pub(crate) cost: f64,
}

impl Best {
    /// Nothing found.
    pub(crate) fn none() -> Best {
        Best { choice: Vec::new(), cost: f64::INFINITY }
    }
}

/// State that the searches of one net share.
#[derive(Debug)]
pub(crate) struct Shared {
    best: Mutex<Best>,
    done: AtomicBool,
}

impl Shared {
    /// Begins with an assignment.
    pub(crate) fn new(best: Best) -> Shared {
        Shared { best: Mutex::new(best), done: AtomicBool::new(false) }
    }

    /// The cost of the best one.
    pub(crate) fn cost(&self) -> f64 {
        self.best.lock().unwrap_or_else(PoisonError::into_inner).cost
    }

    /// The best one.
    pub(crate) fn best(&self) -> Best {
        self.best.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes an assignment if it costs less. Says whether it did.
    pub(crate) fn offer(&self, cost: f64, choice: impl FnOnce() -> Vec<usize>) -> bool {
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let better = cost < best.cost;
        if better {
            *best = Best { choice: choice(), cost };
        }
        better
    }

    /// Ends all searches.
    pub(crate) fn finish(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// Returns whether searches are to end.
    pub(crate) fn finished(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }
}
