//! A group of ranks that exchange data, with one arrival counter per phase: published, reduced, read.
//!
//! Exchanges of a group are numbered; each member counts for itself, and all members agree. Exchange `n` uses slot `n`
//! modulo the number of slots, which is the most exchanges that a member begins before it has waited for the first of them. A member
//! that begins exchange `n` has waited for the exchange that used the slot before, so all members have finished reading. Counters only
//! increase, and a request has the counts that end its phases, so a late reader is not confused by a reused slot. A phase is also in the
//! work of a device: each member records an event at the end of each phase, before it counts itself.
//!
//! Members may be in other processes. Then the counters count the members of this process, and the parcels of its slot: one that has
//! come ends `Published` (sources) or `Reduced` (pieces of results) with them, and one that has gone ends `Read`. A sum that the wire
//! adds ends `Reduced` too; the last member of the process that has added its blocks begins it. So an exchange is
//! complete only when its parcels have come and gone, and its slot, with their memory, is free. The first member that begins an
//! exchange posts the receives of all of its parcels, in the order of exchanges.

use super::courier::{Courier, Job, Landing, Target, Way};
use super::crossing::{Crossing, FittedExchange, Lane, Parcel, processes_of};
use super::execute::pack;
use super::medium::{Buffers, Half, Medium, PeerBuffers};
use super::parking_lot::{ParkingLot, locked};
use super::sums::WireSum;
use device::arena::Arena;
use device::backend::Span;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A group of ranks and the slots of its exchanges.
pub(super) struct Group<M: Medium> {
    /// Its number among the groups of the process.
    pub(super) id: u32,
    /// The members, in the order in which sums go.
    pub(super) ranks: Vec<usize>,
    /// The places of the members of this process, and the parkers of their threads that complete exchanges.
    pub(super) local: Vec<usize>,
    parkers: Vec<usize>,
    slots: OnceLock<Box<[ExchangeSlot<M>]>>,
    /// Its lanes to members of other processes, if there are any.
    pub(super) far: Option<FarGroup>,
}

/// The lanes of a group between processes, and the state of its receives.
pub(super) struct FarGroup {
    /// The process of each member.
    pub(super) homes: Vec<usize>,
    /// The lanes with the other process and the number of each.
    pub(super) lanes: Mutex<Lanes>,
    /// The most bytes of staging memory for what comes in an exchange, and for what each member of this process packs, in their order.
    bytes: Mutex<(usize, Vec<usize>)>,
    /// The start of each member's parcels in the staging memory.
    areas: OnceLock<Vec<usize>>,
    /// The number of the group among those for which the wire adds, if it adds for this one.
    pub(super) sums: OnceLock<Arc<OnceLock<u32>>>,
    /// The exchanges whose receives are posted so far, and the counts that end the phases of the last one in each slot.
    posted: Mutex<Posted>,
}

/// The other process of each lane, and the number of the lane.
pub(super) type Lanes = BTreeMap<Lane, (usize, Arc<OnceLock<u32>>)>;

#[derive(Default)]
struct Posted {
    next: u64,
    targets: Vec<[u64; 3]>,
}

/// Counters and buffer tables of the exchange that uses the slot.
pub(super) struct ExchangeSlot<M: Medium> {
    counts: [AtomicU64; 3],
    buffer_tables: Box<[UnsafeCell<BufferTable>]>,
    /// The events of each member at the ends of the phases.
    events: Box<[[M::Event; 3]]>,
    /// The parcels of the exchange.
    pub(super) staging: Option<M::Memory>,
}

// SAFETY: a table is written only by its member, before it counts itself as published, and read by others only after all
// have and before they count themselves as having read; the next writing comes after all have read.
unsafe impl<M: Medium> Sync for ExchangeSlot<M> {}

/// Locations of a member's tensors.
#[derive(Default)]
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

/// An exchange that a member has begun.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) number: u64,
    /// The counts that end its phases.
    pub(super) targets: [u64; 3],
}

impl Begun {
    fn target(&self, phase: Phase) -> Target {
        Target { number: self.number, phase: phase as usize, count: self.targets[phase as usize] }
    }
}

/// The number of a group's slots, and of the tensors in each.
#[derive(Clone, Copy)]
pub(super) struct Capacity {
    pub(super) slots: usize,
    pub(super) tensors: usize,
}

/// A rank's membership in a group.
pub struct GroupMember<M: Medium> {
    pub(super) group: Arc<Group<M>>,
    pub(super) place: usize,
    /// The stream of the thread that begins exchanges.
    pub(super) own: M::Stream,
    /// The stream of the exchanges.
    pub(super) transfers: M::Stream,
    next: AtomicU64,
    /// The next exchange to pull, if there are far members: parcels of results go in the order of exchanges.
    pulls: AtomicU64,
}

impl<M: Medium> Group<M> {
    /// A group with the places and parkers of its members of this process, and the processes of all members.
    pub(super) fn new(id: u32, ranks: &[usize], local: Vec<(usize, usize)>, homes: Vec<usize>) -> Group<M> {
        let (local, parkers): (Vec<usize>, Vec<usize>) = local.into_iter().unzip();
        let far = (local.len() < ranks.len()).then(|| FarGroup {
            homes,
            lanes: Mutex::default(),
            bytes: Mutex::new((0, vec![0; local.len()])),
            areas: OnceLock::new(),
            sums: OnceLock::new(),
            posted: Mutex::default(),
        });
        Group { id, ranks: ranks.to_vec(), local, parkers, slots: OnceLock::new(), far }
    }

    /// The slot of an exchange that has begun.
    pub(super) fn slot(&self, number: u64) -> &ExchangeSlot<M> {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        &slots[(number % slots.len() as u64) as usize]
    }

    /// Counts one more arrival at the end of a phase. Returns how many are missing.
    pub(super) fn arrive(&self, begun: Begun, phase: Phase) -> u64 {
        let before = self.slot(begun.number).counts[phase as usize].fetch_add(1, Ordering::AcqRel);
        begun.targets[phase as usize] - (before + 1)
    }

    /// True if all have arrived at the end of a phase.
    pub(super) fn have_all(&self, begun: Begun, phase: Phase) -> bool {
        self.slot(begun.number).counts[phase as usize].load(Ordering::Acquire) >= begun.targets[phase as usize]
    }

    /// Makes the slots.
    ///
    /// # Errors
    /// There is no memory, or the device has no more events.
    pub(super) fn make_slots(&self, medium: &M, capacity: Capacity) -> Result<(), String> {
        if self.slots.get().is_some() {
            return Ok(());
        }
        let staging = self.far.as_ref().map(FarGroup::lay_out);
        let slots = (0..capacity.slots.max(1)).map(|_| self.make_slot(medium, capacity.tensors, staging));
        let made = slots.collect::<Result<Box<[_]>, String>>()?;
        if let Some(far) = &self.far {
            locked(&far.posted).targets = vec![[0; 3]; made.len()];
        }
        self.slots.get_or_init(|| made);
        Ok(())
    }

    fn make_slot(&self, medium: &M, tensors: usize, staging: Option<usize>) -> Result<ExchangeSlot<M>, String> {
        let (mut buffer_tables, mut events) = (Vec::new(), Vec::new());
        for place in 0..self.ranks.len() {
            let most = if self.local.contains(&place) { tensors } else { 0 };
            let table = BufferTable { sources: Vec::with_capacity(most), results: Vec::with_capacity(most) };
            buffer_tables.push(UnsafeCell::new(table));
            events.push([medium.event()?, medium.event()?, medium.event()?]);
        }
        Ok(ExchangeSlot {
            counts: Default::default(),
            buffer_tables: buffer_tables.into(),
            events: events.into(),
            staging: staging.map(|bytes| medium.staging(bytes)).transpose()?,
        })
    }
}

impl FarGroup {
    /// The processes of the members, in the order of their numbers.
    pub(super) fn processes(&self) -> Vec<usize> {
        processes_of(&self.homes)
    }

    /// Gives parcels their lanes, and reserves their memory for a member of this process, by its place among them.
    pub(super) fn reserve(&self, member: usize, crossing: &mut Crossing) {
        let mut lanes = locked(&self.lanes);
        for parcel in crossing.sends.iter_mut().chain(&mut crossing.receives).flatten() {
            let (_, tag) = lanes.entry(parcel.lane).or_insert_with(|| (parcel.process, parcel.tag.clone()));
            parcel.tag = tag.clone();
        }
        crossing.sum.iter_mut().for_each(|sum| sum.group = self.sums.get_or_init(Arc::default).clone());
        let (receives, sends) = &mut *locked(&self.bytes);
        *receives = (*receives).max(crossing.bytes[0]);
        sends[member] = sends[member].max(crossing.bytes[1]);
    }

    /// Assigns areas of a slot's staging memory, and returns its bytes.
    fn lay_out(&self) -> usize {
        let (receives, sends) = &*locked(&self.bytes);
        let (mut end, mut areas) = (*receives, Vec::with_capacity(sends.len()));
        for bytes in sends {
            areas.push(end);
            end += bytes;
        }
        self.areas.get_or_init(|| areas);
        end
    }
}

impl<M: Medium> ExchangeSlot<M> {
    /// The event of a member at the end of a phase.
    pub(super) fn event(&self, member: usize, phase: Phase) -> &M::Event {
        &self.events[member][phase as usize]
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

impl<M: Medium> Landing for Group<M> {
    fn name(&self) -> String {
        format!("the group of ranks {}", self.ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
    }

    fn land(&self, target: Target, lot: &ParkingLot) {
        let phase = [Phase::Published, Phase::Reduced, Phase::Read][target.phase];
        let mut targets = [0; 3];
        targets[target.phase] = target.count;
        if self.arrive(Begun { number: target.number, targets }, phase) == 0 {
            self.parkers.iter().for_each(|&parker| lot.unpark(parker));
        }
    }
}

/// Buffers of a rank whose memory is the host's.
fn on_host<M: Medium>(peer: PeerBuffers<'_, M::Memory>) -> PeerBuffers<'_, Arena> {
    let PeerBuffers { memory, sources, results } = peer;
    PeerBuffers { memory: M::host(memory).expect("staging memory is the host's"), sources, results }
}

impl<M: Medium> GroupMember<M> {
    pub(super) fn new(group: Arc<Group<M>>, place: usize, own: M::Stream, transfers: M::Stream) -> GroupMember<M> {
        GroupMember { group, place, own, transfers, next: AtomicU64::new(0), pulls: AtomicU64::new(0) }
    }

    /// Begins the next exchange: publishes the locations of this member's tensors. The group has slots of this capacity.
    pub(super) fn publish(&self, medium: &M, sources: &[Span], results: &[Span], capacity: Capacity) -> Begun {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.group.make_slots(medium, capacity).unwrap_or_else(|why| panic!("{why}"));
        let slot = self.group.slot(number);
        // SAFETY: this is the member's own table, and all have read what it published in the same slot before.
        let buffer_table = unsafe { &mut *slot.buffer_tables[self.place].get() };
        buffer_table.sources.clear();
        buffer_table.sources.extend_from_slice(sources);
        buffer_table.results.clear();
        buffer_table.results.extend_from_slice(results);
        medium.record(&self.own, slot.event(self.place, Phase::Published));
        let slots = self.group.slots.get().map_or(1, |slots| slots.len()) as u64;
        Begun { number, targets: [self.group.local.len() as u64 * (number / slots + 1); 3] }
    }

    /// Posts the receives of an exchange, unless another member of this process has. Returns the counts that end its phases.
    pub(super) fn post(&self, courier: &Courier, crossing: &Crossing, number: u64) -> [u64; 3] {
        let (group, Some(far)) = (&self.group, &self.group.far) else { return [0; 3] };
        let slot = group.slot(number);
        let mut posted = locked(&far.posted);
        let at = (number % posted.targets.len() as u64) as usize;
        if posted.next > number {
            return posted.targets[at];
        }
        // Members begin exchanges in order, so nobody has begun this one without being here before.
        assert_eq!(posted.next, number, "exchanges of a group begin in order");
        posted.next += 1;
        let local = group.local.len() as u64;
        let reduced = crossing.receives[1].len() + usize::from(crossing.sum.is_some());
        let parcels = [crossing.receives[0].len(), reduced, crossing.local_sends];
        let targets = &mut posted.targets[at];
        targets.iter_mut().zip(parcels).for_each(|(target, parcels)| *target += local + parcels as u64);
        let targets = *targets;
        let Some(staging) = slot.staging.as_ref().and_then(M::host) else { return targets };
        for (parcels, phase) in crossing.receives.iter().zip([Phase::Published, Phase::Reduced]) {
            for parcel in parcels {
                let bytes = staging.place(parcel.offset, parcel.bytes);
                self.submit(courier, Way::Receive, parcel, bytes, Begun { number, targets }.target(phase));
            }
        }
        targets
    }

    /// Packs and sends the parcels of a half.
    ///
    /// # Safety
    /// Nobody writes the tensors.
    pub(super) unsafe fn send(
        &self,
        courier: &Courier,
        plan: &FittedExchange,
        half: Half,
        begun: Begun,
        tensors: Buffers<'_, M::Memory>,
    ) {
        let staging = self.group.slot(begun.number).staging.as_ref().and_then(M::host);
        let (Some(crossing), Some(staging), Some(memory)) = (&plan.crossing, staging, M::host(tensors.memory)) else {
            return;
        };
        let tensors = Buffers { memory, spans: tensors.spans };
        let member = self.group.local.iter().position(|place| *place == self.place).unwrap_or(0);
        let area = self.group.far.as_ref().and_then(|far| far.areas.get()).map_or(0, |areas| areas[member]);
        for parcel in &crossing.sends[half as usize] {
            // SAFETY: by the caller's contract. The slot is this exchange's, so its parcels of before have gone; each parcel has its place.
            let bytes = unsafe { pack(&plan.exchange, parcel, tensors, staging, area) };
            let bytes = staging.place(area + parcel.offset, bytes);
            self.submit(courier, Way::Send, parcel, bytes, begun.target(Phase::Read));
        }
    }

    fn submit(&self, courier: &Courier, way: Way, parcel: &Parcel, bytes: *mut [u8], target: Target) {
        let tag = *parcel.tag.get().expect("lanes have numbers before the first step");
        let landing = self.group.clone() as Arc<dyn Landing>;
        let (process, most, exact) = (parcel.process, parcel.bytes, !parcel.filled);
        courier.submit(Job { way, process, tag, parts: None, bytes, most, exact, landing, target });
    }

    /// Makes a half of a sum that the wire adds: adds this member's blocks, or takes its results. It gives no bytes of filled rows.
    ///
    /// # Safety
    /// As of [`Medium::exchange`].
    pub(super) unsafe fn add_or_take<'a>(
        &self,
        sum: &WireSum,
        half: Half,
        slot: &ExchangeSlot<M>,
        peer: impl Fn(usize) -> PeerBuffers<'a, M::Memory>,
    ) -> Option<u64>
    where
        M::Memory: 'a,
    {
        let staging = slot.staging.as_ref().and_then(M::host)?;
        // SAFETY: by the caller's contract; of the staging memory each member has its blocks until the sum begins.
        unsafe {
            match half {
                Half::Pull => sum.add(|place| on_host::<M>(peer(place)), staging),
                Half::Gather => sum.take(staging, on_host::<M>(peer(self.place))),
            }
        }
        None
    }

    /// Begins the sum of all processes, once all members of this one have added theirs.
    pub(super) fn begin_sum(&self, courier: &Courier, sum: &WireSum, begun: Begun) {
        let Some(staging) = self.group.slot(begun.number).staging.as_ref().and_then(M::host) else { return };
        let (way, process, parts) = (Way::Sum, sum.other, sum.parts.clone());
        let tag = *sum.group.get().expect("groups have numbers before the first step");
        let (landing, target) = (self.group.clone() as Arc<dyn Landing>, begun.target(Phase::Reduced));
        let (bytes, most) = (staging.place(0, sum.bytes), sum.bytes);
        courier.submit(Job { way, process, tag, parts, bytes, most, exact: true, landing, target });
    }

    /// True if this member may pull an exchange: if there are far members, only after all that it has begun before.
    pub(super) fn may_pull(&self, number: u64) -> bool {
        self.group.far.is_none() || self.pulls.load(Ordering::Relaxed) == number
    }

    /// Notes that this member has pulled an exchange, and sent what others take of it.
    pub(super) fn has_pulled(&self) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
    }
}
