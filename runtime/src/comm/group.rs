//! A group of ranks that exchange data, with one arrival counter per phase: published, reduced, read.
//!
//! Exchanges of a group are numbered; each member counts for itself, and all members agree. Exchange `n` uses slot `n`
//! modulo the number of slots, which is the most exchanges that a member begins before it has waited for the first of them. A member
//! that begins exchange `n` has waited for the exchange that used the slot before, so all members have finished reading. Counters only
//! increase, so a late reader is not confused by a reused slot. A phase is also in the work of a device: each member records an event
//! at the end of each phase, before it counts itself.

use super::medium::Medium;
use crate::backend::Span;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A group of ranks and the slots of its exchanges.
pub(super) struct Group<E> {
    /// Its number among the groups of the process.
    pub(super) id: u32,
    /// The members, in the order in which sums go.
    pub(super) ranks: Vec<usize>,
    slots: OnceLock<Box<[ExchangeSlot<E>]>>,
}

/// Counters and buffer tables of the exchange that uses the slot.
pub(super) struct ExchangeSlot<E> {
    published: AtomicU64,
    reduced: AtomicU64,
    read: AtomicU64,
    buffer_tables: Box<[UnsafeCell<BufferTable>]>,
    /// The events of each member at the ends of the phases.
    events: Box<[[E; 3]]>,
}

// SAFETY: a table is written only by its member, before it counts itself as published, and read by others only after all
// have and before they count themselves as having read; the next writing comes after all have read.
unsafe impl<E: Sync> Sync for ExchangeSlot<E> {}

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
pub struct GroupMember<M: Medium> {
    pub(super) group: Arc<Group<M::Event>>,
    pub(super) place: usize,
    /// The stream of the thread that begins exchanges.
    pub(super) own: M::Stream,
    /// The stream of the exchanges.
    pub(super) transfers: M::Stream,
    next: AtomicU64,
}

impl<E> Group<E> {
    pub(super) fn new(id: u32, ranks: &[usize]) -> Group<E> {
        Group { id, ranks: ranks.to_vec(), slots: OnceLock::new() }
    }

    /// The slot of an exchange that has begun.
    pub(super) fn slot(&self, number: u64) -> &ExchangeSlot<E> {
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

impl<E> ExchangeSlot<E> {
    fn new(members: usize, tensors: usize, event: impl Fn() -> E) -> ExchangeSlot<E> {
        let buffer_table =
            || BufferTable { sources: Vec::with_capacity(tensors), results: Vec::with_capacity(tensors) };
        ExchangeSlot {
            published: AtomicU64::new(0),
            reduced: AtomicU64::new(0),
            read: AtomicU64::new(0),
            buffer_tables: (0..members).map(|_| UnsafeCell::new(buffer_table())).collect(),
            events: (0..members).map(|_| [event(), event(), event()]).collect(),
        }
    }

    /// The event of a member at the end of a phase.
    pub(super) fn event(&self, member: usize, phase: Phase) -> &E {
        &self.events[member][phase as usize]
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

impl<M: Medium> GroupMember<M> {
    pub(super) fn new(group: Arc<Group<M::Event>>, place: usize, [own, transfers]: [M::Stream; 2]) -> GroupMember<M> {
        GroupMember { group, place, own, transfers, next: AtomicU64::new(0) }
    }

    /// Begins the next exchange: publishes the locations of this member's tensors and returns the exchange's number. The
    /// group has `slots` slots, with memory for `tensors` tensors in each.
    pub(super) fn publish(&self, medium: &M, [sources, results]: [&[Span]; 2], [slots, tensors]: [usize; 2]) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let members = self.group.ranks.len();
        let event = || medium.event().unwrap_or_else(|why| panic!("{why}"));
        let slot = |_| ExchangeSlot::new(members, tensors, event);
        self.group.slots.get_or_init(|| (0..slots.max(1)).map(slot).collect());
        let slot = self.group.slot(number);
        // SAFETY: this is the member's own table, and all have read what it published in the same slot before.
        let buffer_table = unsafe { &mut *slot.buffer_tables[self.place].get() };
        buffer_table.sources.clear();
        buffer_table.sources.extend_from_slice(sources);
        buffer_table.results.clear();
        buffer_table.results.extend_from_slice(results);
        medium.record(&self.own, slot.event(self.place, Phase::Published));
        number
    }
}
