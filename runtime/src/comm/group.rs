//! A group of ranks that exchange data, with one arrival counter per phase: published, reduced, read.
//!
//! Exchanges of a group are numbered; each member counts for itself, and all members agree. Exchange `n` uses slot `n`
//! modulo the number of slots, which is the largest number of exchanges a member has in flight. A member that begins
//! exchange `n` has completed the exchange that used the slot before, so all members have finished reading. Counters only
//! increase, so a late reader is not confused by a reused slot.

use crate::backend::Span;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A group of ranks and the slots of its exchanges.
pub(super) struct Group {
    /// Its number among the groups of the process.
    pub(super) id: u32,
    /// The members, in the order in which sums go.
    pub(super) ranks: Vec<usize>,
    slots: OnceLock<Box<[ExchangeSlot]>>,
}

/// Counters and buffer tables of the exchange that uses the slot.
pub(super) struct ExchangeSlot {
    published: AtomicU64,
    reduced: AtomicU64,
    read: AtomicU64,
    buffer_tables: Box<[UnsafeCell<BufferTable>]>,
}

// SAFETY: a table is written only by its member, before it counts itself as published, and read by others only after all
// have and before they count themselves as having read; the next writing comes after all have read.
unsafe impl Sync for ExchangeSlot {}

/// Locations of a member's tensors.
pub(super) struct BufferTable {
    pub(super) sources: Vec<Span>,
    pub(super) results: Vec<Span>,
}

/// A phase of an exchange. A phase is complete when all members have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// All members have published the locations of their tensors.
    Published,
    /// All members have reduced their own part of a sum.
    Reduced,
    /// All members have read their sources.
    Read,
}

/// A rank's membership in a group.
pub struct GroupMember {
    pub(super) group: Arc<Group>,
    pub(super) place: usize,
    next: AtomicU64,
}

impl Group {
    pub(super) fn new(id: u32, ranks: &[usize]) -> Group {
        Group { id, ranks: ranks.to_vec(), slots: OnceLock::new() }
    }

    /// The slot of an exchange that has begun.
    pub(super) fn slot(&self, number: u64) -> &ExchangeSlot {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        &slots[(number % slots.len() as u64) as usize]
    }

    /// Counts one more member as arrived at the end of a phase. Returns whether it was the last one.
    pub(super) fn arrive(&self, number: u64, phase: Phase) -> bool {
        self.slot(number).count(phase).fetch_add(1, Ordering::AcqRel) + 1 == self.target(number)
    }

    /// True if all members have arrived at the end of a phase.
    pub(super) fn have_all(&self, number: u64, phase: Phase) -> bool {
        self.slot(number).count(phase).load(Ordering::Acquire) >= self.target(number)
    }

    /// The count that the slot's counters reach when the exchange completes.
    fn target(&self, number: u64) -> u64 {
        let slots = self.slots.get().map_or(1, |slots| slots.len()) as u64;
        self.ranks.len() as u64 * (number / slots + 1)
    }
}

impl ExchangeSlot {
    fn new(members: usize, tensors: usize) -> ExchangeSlot {
        let buffer_table =
            || BufferTable { sources: Vec::with_capacity(tensors), results: Vec::with_capacity(tensors) };
        ExchangeSlot {
            published: AtomicU64::new(0),
            reduced: AtomicU64::new(0),
            read: AtomicU64::new(0),
            buffer_tables: (0..members).map(|_| UnsafeCell::new(buffer_table())).collect(),
        }
    }

    fn count(&self, phase: Phase) -> &AtomicU64 {
        match phase {
            Phase::Published => &self.published,
            Phase::Reduced => &self.reduced,
            Phase::Read => &self.read,
        }
    }

    /// Locations of a member's tensors.
    ///
    /// # Safety
    /// All have published, and the caller has not yet counted itself as having read.
    pub(super) unsafe fn buffer_table(&self, member: usize) -> &BufferTable {
        // SAFETY: by the caller's contract; the member does not write it in between.
        unsafe { &*self.buffer_tables[member].get() }
    }
}

impl GroupMember {
    pub(super) fn new(group: Arc<Group>, place: usize) -> GroupMember {
        GroupMember { group, place, next: AtomicU64::new(0) }
    }

    /// Begins the next exchange: publishes the locations of this member's tensors and returns the exchange's number. The
    /// group has `slots` slots, with memory for `tensors` tensors in each.
    pub(super) fn publish(&self, sources: &[Span], results: &[Span], slots: usize, tensors: usize) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let members = self.group.ranks.len();
        self.group.slots.get_or_init(|| (0..slots.max(1)).map(|_| ExchangeSlot::new(members, tensors)).collect());
        // SAFETY: this is the member's own table, and all have read what it published in the same slot before.
        let buffer_table = unsafe { &mut *self.group.slot(number).buffer_tables[self.place].get() };
        buffer_table.sources.clear();
        buffer_table.sources.extend_from_slice(sources);
        buffer_table.results.clear();
        buffer_table.results.extend_from_slice(results);
        number
    }
}
