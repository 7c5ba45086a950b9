//! A group of ranks that exchange data, with one arrival counter per stage: published, made, read.
//!
//! Exchanges of a group are numbered; each member counts for itself, and all members agree. Exchange `n` uses round `n`
//! modulo the number of rounds, which is the largest number of exchanges a member has in flight. A member that begins
//! exchange `n` has completed the exchange that used the round before, so all members have finished reading. Counters only
//! increase, so a late reader is not confused by a reused round.

use crate::backend::Span;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Some ranks, and their exchanges.
pub(super) struct Group {
    /// Its number among the groups of the process.
    pub(super) id: u32,
    /// The members, in the order in which sums go.
    pub(super) ranks: Vec<usize>,
    rounds: OnceLock<Box<[Round]>>,
}

/// One exchange at a time.
pub(super) struct Round {
    published: AtomicU64,
    made: AtomicU64,
    read: AtomicU64,
    tables: Box<[UnsafeCell<Table>]>,
}

// SAFETY: a table is written only by its member, before it counts itself as published, and read by others only after all
// have and before they count themselves as having read; the next writing comes after all have read.
unsafe impl Sync for Round {}

/// Where a member's tensors lie.
pub(super) struct Table {
    pub(super) sources: Vec<Span>,
    pub(super) results: Vec<Span>,
}

/// A stage of an exchange, which is over when all members have come so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// All have said where their tensors lie.
    Published,
    /// All have made their own part of a sum.
    Made,
    /// All have read what they need.
    Read,
}

/// A rank's place in a group.
pub struct Seat {
    pub(super) group: Arc<Group>,
    pub(super) place: usize,
    next: AtomicU64,
}

impl Group {
    pub(super) fn new(id: u32, ranks: &[usize]) -> Group {
        Group { id, ranks: ranks.to_vec(), rounds: OnceLock::new() }
    }

    /// The round of an exchange, which has begun.
    pub(super) fn round(&self, number: u64) -> &Round {
        let rounds = self.rounds.get().map_or(&[][..], |rounds| rounds);
        &rounds[(number % rounds.len() as u64) as usize]
    }

    /// Counts a member as having come to the end of a stage; whether it was the last.
    pub(super) fn arrive(&self, number: u64, stage: Stage) -> bool {
        self.round(number).count(stage).fetch_add(1, Ordering::AcqRel) + 1 == self.target(number)
    }

    /// Whether all members have come to the end of a stage.
    pub(super) fn have_all(&self, number: u64, stage: Stage) -> bool {
        self.round(number).count(stage).load(Ordering::Acquire) >= self.target(number)
    }

    /// What a count of the exchange's round reaches with it.
    fn target(&self, number: u64) -> u64 {
        let rounds = self.rounds.get().map_or(1, |rounds| rounds.len()) as u64;
        self.ranks.len() as u64 * (number / rounds + 1)
    }
}

impl Round {
    fn new(members: usize, tensors: usize) -> Round {
        let table = || Table { sources: Vec::with_capacity(tensors), results: Vec::with_capacity(tensors) };
        Round {
            published: AtomicU64::new(0),
            made: AtomicU64::new(0),
            read: AtomicU64::new(0),
            tables: (0..members).map(|_| UnsafeCell::new(table())).collect(),
        }
    }

    fn count(&self, stage: Stage) -> &AtomicU64 {
        match stage {
            Stage::Published => &self.published,
            Stage::Made => &self.made,
            Stage::Read => &self.read,
        }
    }

    /// Where a member's tensors lie.
    ///
    /// # Safety
    /// All have published, and the caller has not yet counted itself as having read.
    pub(super) unsafe fn table(&self, member: usize) -> &Table {
        // SAFETY: as the caller says; the member does not write it in between.
        unsafe { &*self.tables[member].get() }
    }
}

impl Seat {
    pub(super) fn new(group: Arc<Group>, place: usize) -> Seat {
        Seat { group, place, next: AtomicU64::new(0) }
    }

    /// Begins the next exchange: says where this member's tensors lie. There are `rounds` and room for `tensors` in each.
    /// The exchange's number.
    pub(super) fn publish(&self, sources: &[Span], results: &[Span], rounds: usize, tensors: usize) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let members = self.group.ranks.len();
        self.group.rounds.get_or_init(|| (0..rounds.max(1)).map(|_| Round::new(members, tensors)).collect());
        // SAFETY: this is the member's own table, and all have read what it said in the same round before.
        let table = unsafe { &mut *self.group.round(number).tables[self.place].get() };
        table.sources.clear();
        table.sources.extend_from_slice(sources);
        table.results.clear();
        table.results.extend_from_slice(results);
        number
    }
}
