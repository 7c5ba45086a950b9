//! Ranks as threads, with the fewest possible copies. In a collective each rank publishes its buffers, and
//! each rank reads from its peers' memories directly into its own results. No exchange completes before all ranks have read.
//! A message is copied once, from memory to memory.
//!
//! Threads meet on the host. Where memories are those of a device, to have read is to have given the device the work that reads: a
//! thread waits until its peers have given theirs, and events order the rest.
//!
//! Peers may be threads of other processes. What a rank reads of them has come into a staging memory before it reads (`Crossing`), by
//! the courier of its process. So a rank's work is the same wherever its peers are, and so is the order of every sum.

use super::channel::{Channel, ChannelEnd, ChannelKey, FarEnd};
use super::courier::{Courier, FIRST_LANE, Limits};
use super::crossing::{Crossing, FarTensors, FittedExchange, Lane, Members};
use super::execute::HostMemory;
use super::group::{Begun, BufferTable, Capacity, ExchangeSlot, Group, GroupMember, Phase};
use super::medium::{Buffer, Buffers, Half, Medium, PeerBuffers};
use super::parking_lot::{ParkingLot, locked};
use super::sums::Sums;
use super::wire::{Process, Wire, World};
use super::{Exchange, Message, Parking, RankFailure, Request, ThreadRole, Transport, WaitReason};
use device::backend::Span;
use ir::types::DType;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Key of a group: its ranks, and the role of the threads that start its exchanges.
type GroupKey = (Vec<usize>, ThreadRole);

/// Name of a lane or channel between two processes, by which both number them alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum WayKey {
    Lane(Vec<usize>, ThreadRole, Lane),
    Channel(ChannelKey),
}

/// The lanes and channels between two processes, and how each is given its number.
type Ways = BTreeMap<WayKey, Box<dyn Fn(u32)>>;

/// Shared communication state of the ranks of a process.
pub struct Fabric<M: Medium = HostMemory> {
    /// The process of each rank of the run, and the place of those of this process among them.
    homes: Vec<usize>,
    places: Vec<Option<usize>>,
    /// True if each rank has an async worker on a thread of its own.
    async_threads: bool,
    parking_lot: Arc<ParkingLot>,
    /// The way to other processes, if there are any.
    courier: Option<Arc<Courier>>,
    /// True if the wire adds the sums of several processes.
    wire_adds: AtomicBool,
    memories: Box<[OnceLock<Arc<M::Memory>>]>,
    groups: Mutex<BTreeMap<GroupKey, Arc<Group<M>>>>,
    channels: Mutex<BTreeMap<ChannelKey, Arc<Channel<M>>>>,
    /// The most requests of a group or channel that a rank begins before it waits for the first, and tensors in an exchange.
    in_flight: AtomicUsize,
    tensors: AtomicUsize,
}

/// Endpoint of one thread of a rank.
pub struct ThreadCommunicator<M: Medium = HostMemory> {
    rank: usize,
    role: ThreadRole,
    fabric: Arc<Fabric<M>>,
    medium: M,
    members: BTreeMap<GroupKey, Arc<GroupMember<M>>>,
    channels: BTreeMap<ChannelKey, Arc<ChannelEnd<M>>>,
}

impl<M: Medium> Fabric<M> {
    /// A fabric of `ranks` ranks, all of this process.
    pub fn new(ranks: usize, async_threads: bool) -> Arc<Fabric<M>> {
        let process = Process { host: String::new(), ranks: (0..ranks).collect() };
        Fabric::of(World { me: 0, processes: vec![process] }, async_threads)
    }

    /// A fabric of the ranks of this process, to be joined with those of others.
    pub fn of(world: World, async_threads: bool) -> Arc<Fabric<M>> {
        let homes = world.homes();
        let places = (0..homes.len()).map(|rank| world.ranks().iter().position(|own| *own == rank)).collect();
        let parking_lot = Arc::new(ParkingLot::new(world.ranks().to_vec(), async_threads));
        let memories = homes.iter().map(|_| OnceLock::new()).collect();
        let courier = (world.processes.len() > 1).then(|| Courier::new(world, parking_lot.clone()));
        Arc::new(Fabric {
            homes,
            places,
            async_threads,
            parking_lot,
            courier,
            wire_adds: AtomicBool::new(false),
            memories,
            groups: Mutex::default(),
            channels: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            tensors: AtomicUsize::new(0),
        })
    }

    /// Begins to hear other processes, as soon as they have met.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(&self, wire: Box<dyn Wire>, limits: Limits) -> Result<(), String> {
        self.courier.as_ref().map_or(Ok(()), |courier| courier.start(wire, limits))
    }

    /// Joins the ranks of this process with those of others, once all have joined their groups and channels.
    ///
    /// # Errors
    /// There is no memory for what comes from other processes, or a rank failed.
    pub fn join(&self, medium: &M) -> Result<(), String> {
        let Some(courier) = &self.courier else { return Ok(()) };
        for group in locked(&self.groups).values().filter(|group| group.far.is_some()) {
            group.make_slots(medium, self.capacity())?;
        }
        self.number_ways();
        match self.number_sums() {
            none if none.is_empty() => Ok(()),
            groups => courier.join_sums(groups).map_err(|failure| failure.to_string()),
        }
    }

    /// Ends the connection with other processes, which all have done all that they have to do.
    pub fn end(&self) {
        self.courier.iter().for_each(|courier| {
            courier.finish();
            courier.close();
        });
    }

    /// Chooses who adds the sums of ranks in several processes, before any rank joins a group.
    pub fn add_by(&self, sums: Sums) {
        self.wire_adds.store(sums == Sums::Engine, Ordering::Relaxed);
    }

    /// Numbers the groups for which the wire adds, and gives the processes of each: by their order, which is the same in all processes.
    fn number_sums(&self) -> Vec<Vec<usize>> {
        let groups = locked(&self.groups);
        let far = groups.values().filter_map(|group| group.far.as_ref());
        let added = far.filter_map(|far| Some((far, far.sums.get()?)));
        let mut numbered = Vec::new();
        for (number, (far, own)) in (0..).zip(added) {
            own.get_or_init(|| number);
            numbered.push(far.processes());
        }
        numbered
    }

    /// Numbers all lanes and channels with each other process: by their order, which is the same in both.
    fn number_ways(&self) {
        let mut ways: BTreeMap<usize, Ways> = BTreeMap::new();
        for ((ranks, role), group) in locked(&self.groups).iter() {
            let lanes = group.far.iter().flat_map(|far| locked(&far.lanes).clone());
            for (lane, (process, tag)) in lanes {
                let key = WayKey::Lane(ranks.clone(), *role, lane);
                ways.entry(process).or_default().insert(key, Box::new(move |number| _ = tag.get_or_init(|| number)));
            }
        }
        for (key, channel) in locked(&self.channels).iter() {
            let Some(far) = &channel.far else { continue };
            let channel = channel.clone();
            ways.entry(far.process).or_default().insert(
                WayKey::Channel(*key),
                Box::new(move |number| channel.far.iter().for_each(|far| _ = far.tag.get_or_init(|| number))),
            );
        }
        for ways in ways.into_values() {
            ways.into_values().zip(FIRST_LANE..).for_each(|(set, number)| set(number));
        }
    }

    /// The courier, if there are other processes.
    pub fn courier(&self) -> Option<&Arc<Courier>> {
        self.courier.as_ref()
    }

    /// The endpoint of a rank's main thread, which works on this memory.
    pub fn endpoint(self: &Arc<Fabric<M>>, rank: usize, memory: Arc<M::Memory>, medium: M) -> ThreadCommunicator<M> {
        self.memories[rank].get_or_init(|| memory);
        ThreadCommunicator::new(self, rank, ThreadRole::Main, medium)
    }

    /// Counts threads as awake: before each step all main threads, and at load all async workers.
    pub fn enter(&self, threads: usize) {
        self.parking_lot.enter(threads);
    }

    /// Notes the step that begins, for the message of a failure.
    pub fn note_step(&self, step: u64) {
        self.parking_lot.note_step(step);
    }

    /// Reports that a rank of this process is stuck. Returns the first failure.
    pub fn give_up(&self, rank: usize, why: &str) -> RankFailure {
        self.parking_lot.give_up(rank, why)
    }

    /// A new group of ranks.
    fn group(&self, ranks: &[usize]) -> Group<M> {
        let local = ranks.iter().enumerate().filter(|(_, rank)| self.places[**rank].is_some());
        let local = local.map(|(place, &rank)| (place, self.parker(rank, ThreadRole::Async))).collect();
        let homes = ranks.iter().map(|&rank| self.homes[rank]).collect();
        Group::new(self.parking_lot.number(ranks), ranks, local, homes)
    }

    fn memory(&self, rank: usize) -> &M::Memory {
        self.memories[rank].get().expect("all ranks have joined before the first step")
    }

    /// The parker of a thread. The async worker, if it has a thread, also completes the exchanges of the main thread.
    fn parker(&self, rank: usize, role: ThreadRole) -> usize {
        let place = self.places[rank].unwrap_or(0);
        if self.async_threads && role == ThreadRole::Async { self.parking_lot.ranks().len() + place } else { place }
    }

    /// The capacity of the slots of each group.
    fn capacity(&self) -> Capacity {
        let [slots, tensors] = [&self.in_flight, &self.tensors].map(|most| most.load(Ordering::Relaxed));
        Capacity { slots, tensors }
    }

    /// Counts a rank as arrived at the end of a phase. The last arrival unparks the others. Returns how many are missing.
    fn arrive(&self, rank: usize, group: &Group<M>, begun: Begun, phase: Phase) -> u64 {
        let missing = group.arrive(begun, phase);
        if missing == 0 {
            let others = group.local.iter().map(|&place| group.ranks[place]).filter(|&other| other != rank);
            others.for_each(|other| self.parking_lot.unpark(self.parker(other, ThreadRole::Async)));
        }
        missing
    }
}

impl<M: Medium> ThreadCommunicator<M> {
    fn new(fabric: &Arc<Fabric<M>>, rank: usize, role: ThreadRole, medium: M) -> ThreadCommunicator<M> {
        let (members, channels) = (BTreeMap::new(), BTreeMap::new());
        ThreadCommunicator { rank, role, fabric: fabric.clone(), medium, members, channels }
    }

    /// Its rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    fn me(&self) -> usize {
        self.fabric.parker(self.rank, self.role)
    }

    fn channel(&mut self, key: ChannelKey) -> Result<Arc<ChannelEnd<M>>, String> {
        let sends = key.from == self.rank;
        if let Some(known) = self.channels.get(&key) {
            return Ok(known.clone());
        }
        let mut channels = locked(&self.fabric.channels);
        let peer = self.fabric.homes[if sends { key.to } else { key.from }];
        let far = (peer != self.fabric.homes[self.rank])
            .then(|| FarEnd::new(peer, self.fabric.parker(self.rank, ThreadRole::Main)));
        let channel = match channels.get(&key) {
            Some(known) => known.clone(),
            None => Arc::new(Channel::new(key, self.medium.stream()?, far)),
        };
        channels.insert(key, channel.clone());
        let end = Arc::new(ChannelEnd::new(channel, sends, self.medium.stream_of(ThreadRole::Main)));
        self.channels.insert(key, end.clone());
        Ok(end)
    }
}

impl<M: Medium> ThreadCommunicator<M> {
    /// The buffers of a member of a group in the exchange that uses a slot: those of a far one are in the staging memory.
    ///
    /// # Safety
    /// All have published, and this member has not counted itself as having read.
    unsafe fn peer<'a>(
        &'a self,
        group: &Group<M>,
        plan: &'a FittedExchange,
        slot: &'a ExchangeSlot<M>,
        place: usize,
    ) -> PeerBuffers<'a, M::Memory> {
        let (fabric, rank) = (&*self.fabric, group.ranks[place]);
        if let (Some(crossing), Some(memory)) = (&plan.crossing, &slot.staging)
            && fabric.places[rank].is_none()
        {
            let FarTensors { sources, results } = &crossing.far[place];
            return PeerBuffers { memory, sources, results };
        }
        // SAFETY: by the caller's contract.
        let BufferTable { sources, results } = unsafe { slot.buffer_table(place) };
        PeerBuffers { memory: fabric.memory(rank), sources, results }
    }

    /// Records the end of a member's work of a phase, and counts it as arrived there. Returns how many are missing.
    fn end_phase(&self, member: &GroupMember<M>, begun: Begun, phase: Phase) -> u64 {
        self.medium.record(&member.transfers, member.group.slot(begun.number).event(member.place, phase));
        self.fabric.arrive(self.rank, &member.group, begun, phase)
    }
}

impl<M: Medium> Transport for ThreadCommunicator<M> {
    type Group = GroupMember<M>;
    type Plan = FittedExchange;
    type Channel = ChannelEnd<M>;

    fn with_role(&self, role: ThreadRole) -> ThreadCommunicator<M> {
        ThreadCommunicator::new(&self.fabric, self.rank, role, self.medium.fork())
    }

    fn join(&mut self, ranks: &[usize], role: ThreadRole) -> Result<Arc<GroupMember<M>>, String> {
        let key = (ranks.to_vec(), role);
        if let Some(known) = self.members.get(&key) {
            return Ok(known.clone());
        }
        let place = ranks.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        let fabric = &self.fabric;
        let group = locked(&fabric.groups).entry(key.clone()).or_insert_with(|| Arc::new(fabric.group(ranks))).clone();
        let transfers = if ranks.len() == 1 { self.medium.stream_of(role) } else { self.medium.stream()? };
        let member = Arc::new(GroupMember::new(group, place, self.medium.stream_of(role), transfers));
        self.members.insert(key, member.clone());
        Ok(member)
    }

    fn fit(
        &self,
        member: &GroupMember<M>,
        op: &str,
        dtypes: &[DType],
        of: &mut dyn FnMut(usize) -> Result<Exchange, String>,
    ) -> Result<FittedExchange, String> {
        let (group, place, op) = (&member.group, member.place, self.fabric.parking_lot.number_op(op));
        let Some(far) = &group.far else {
            return of(self.rank).map(|exchange| FittedExchange { op, ..FittedExchange::from(exchange) });
        };
        let exchanges = group.ranks.iter().map(|&rank| of(rank)).collect::<Result<Vec<Exchange>, String>>()?;
        let members = Members { exchanges: &exchanges, homes: &far.homes, dtypes };
        let wire_adds = self.fabric.wire_adds.load(Ordering::Relaxed);
        let sum = if wire_adds { members.sum(place).map(Crossing::from) } else { None };
        let mut fitted = match sum {
            Some(sum) => FittedExchange { exchange: exchanges[place].clone(), op, crossing: Some(sum) },
            None => FittedExchange { op, ..members.fit(place) },
        };
        let among = group.local.iter().position(|local| *local == place).unwrap_or(0);
        fitted.crossing.iter_mut().for_each(|crossing| far.reserve(among, crossing));
        Ok(fitted)
    }

    fn channel_to(&mut self, peer: usize, tag: u32) -> Result<Arc<ChannelEnd<M>>, String> {
        self.channel(ChannelKey { from: self.rank, to: peer, tag })
    }

    fn channel_from(&mut self, peer: usize, tag: u32) -> Result<Arc<ChannelEnd<M>>, String> {
        self.channel(ChannelKey { from: peer, to: self.rank, tag })
    }

    fn expect(&mut self, in_flight: usize, tensors: usize) {
        self.fabric.in_flight.fetch_max(in_flight, Ordering::Relaxed);
        self.fabric.tensors.fetch_max(tensors, Ordering::Relaxed);
    }

    fn start(&self, member: &GroupMember<M>, plan: &FittedExchange, sources: &[Span], results: &[Span]) -> Request {
        let (fabric, exchange) = (&*self.fabric, &plan.exchange);
        let complete = Request { number: 0, phase: None, targets: [0; 3], times: [None; 2], filled: None };
        if exchange.ranks.len() == 1 {
            let own = PeerBuffers { memory: fabric.memory(self.rank), sources, results };
            // SAFETY: the program gives the results places of their own.
            let filled = unsafe { self.medium.exchange(&member.transfers, exchange, Half::Pull, 0, |_| own) };
            return Request { filled, ..complete };
        }
        let mut begun = member.publish(&self.medium, sources, results, fabric.capacity());
        if let (Some(courier), Some(crossing)) = (&fabric.courier, &plan.crossing) {
            begun.targets = member.post(courier, crossing, begun.number);
            let tensors = Buffers { memory: fabric.memory(self.rank), spans: sources };
            // SAFETY: sources change only when all have read, which this member has yet to do.
            unsafe { member.send(courier, plan, Half::Pull, begun, tensors) };
        }
        fabric.arrive(self.rank, &member.group, begun, Phase::Published);
        Request { number: begun.number, phase: Some(Phase::Published), targets: begun.targets, ..complete }
    }

    fn advance(&self, member: &GroupMember<M>, plan: &FittedExchange, request: &mut Request) {
        let ThreadCommunicator { fabric, medium, .. } = self;
        let begun = Begun { number: request.number, targets: request.targets };
        let (group, stream) = (&*member.group, &member.transfers);
        while let Some(phase) = request.phase.filter(|&phase| group.have_all(begun, phase)) {
            if phase == Phase::Published && !member.may_pull(begun.number) {
                return;
            }
            let slot = group.slot(begun.number);
            let (half, next) = match phase {
                Phase::Published => (Half::Pull, Phase::Reduced),
                Phase::Reduced => (Half::Gather, Phase::Read),
                Phase::Read => {
                    request.phase = None;
                    return;
                }
            };
            // The work of this phase begins when all have ended the one before; the own part of an earlier phase is on this stream.
            for &place in group.local.iter().filter(|place| phase == Phase::Published || **place != member.place) {
                medium.wait(stream, slot.event(place, phase));
            }
            if half == Half::Pull {
                request.times[0] = medium.mark(stream);
            }
            // SAFETY: all have published, and this member has not counted itself as having read. Sources change only when all have read.
            // Results are this rank's own until all have reduced; then the pieces of others in them are read by nobody.
            let filled = unsafe {
                match plan.sum() {
                    Some(sum) => member.add_or_take(sum, half, slot, |place| self.peer(group, plan, slot, place)),
                    None => medium.exchange(stream, &plan.exchange, half, member.place, |place| {
                        self.peer(group, plan, slot, place)
                    }),
                }
            };
            request.filled = filled.or(request.filled);
            if let (Half::Pull, Some(courier), Some(_)) = (half, &fabric.courier, &plan.crossing) {
                // SAFETY: as above. The own piece of a result changes only when this member begins another exchange with it.
                unsafe {
                    let own = self.peer(group, plan, slot, member.place);
                    let results = Buffers { memory: own.memory, spans: own.results };
                    member.send(courier, plan, Half::Gather, begun, results);
                }
                member.has_pulled();
            }
            let missing = self.end_phase(member, begun, next);
            // The sum itself is the last that is missing.
            if let (Half::Pull, 1, Some(courier), Some(sum)) = (half, missing, &fabric.courier, plan.sum()) {
                member.begin_sum(courier, sum, begun);
            }
            // Without a gather no member waits for the end of the pull, but the counters stay in step.
            let is_last = half == Half::Pull && !plan.gathers();
            if is_last {
                self.end_phase(member, begun, Phase::Read);
            }
            if is_last || half == Half::Gather {
                request.times[1] = medium.mark(stream);
            }
            request.phase = Some(if is_last { Phase::Read } else { next });
        }
    }

    fn receive(&self, member: &GroupMember<M>, number: u64) {
        if member.group.ranks.len() > 1 {
            let slot = member.group.slot(number);
            let events = member.group.local.iter().map(|&place| slot.event(place, Phase::Read));
            events.for_each(|event| self.medium.wait(&member.own, event));
        }
    }

    fn wait_reason(&self, member: &GroupMember<M>, plan: &FittedExchange, number: u64) -> WaitReason {
        WaitReason::Peers { group: member.group.id, number, op: plan.op }
    }

    fn start_message(&self, end: &ChannelEnd<M>, span: Span) -> Message {
        if let (Some(courier), Some(_)) = (&self.fabric.courier, &end.channel.far) {
            let own = Buffer { memory: self.fabric.memory(self.rank), span };
            return end.start_far(&self.medium, courier, own, &self.fabric.in_flight);
        }
        let memories = [end.channel.from, end.channel.to].map(|rank| self.fabric.memory(rank));
        let (message, complete) = end.start_message(&self.medium, span, memories, &self.fabric.in_flight);
        if complete {
            self.fabric.parking_lot.unpark(self.fabric.parker(end.peer(), ThreadRole::Main));
        }
        message
    }

    fn pending(&self, end: &ChannelEnd<M>, number: u64) -> Option<WaitReason> {
        let (rank, tag) = (end.peer(), end.channel.tag);
        let wait_reason = if end.sends { WaitReason::Receiver { rank, tag } } else { WaitReason::Sender { rank, tag } };
        (!end.is_complete(number)).then_some(wait_reason)
    }

    fn receive_message(&self, end: &ChannelEnd<M>, number: u64) {
        end.receive(&self.medium, number);
    }
}

impl<M: Medium> Parking for ThreadCommunicator<M> {
    fn wait(&self, pending: &mut dyn FnMut() -> Option<WaitReason>) -> Result<(), RankFailure> {
        self.fabric.parking_lot.wait(self.me(), pending)
    }

    fn park(&self, unparked: &mut dyn FnMut() -> bool) -> Result<(), RankFailure> {
        self.fabric.parking_lot.park(self.me(), unparked)
    }

    fn waited(&self) -> Duration {
        self.fabric.parking_lot.waited(self.me())
    }

    fn unpark(&self, role: ThreadRole) {
        self.fabric.parking_lot.unpark(self.fabric.parker(self.rank, role));
    }

    fn leave(&self) {
        self.fabric.parking_lot.leave();
    }

    fn fail(&self, why: String) {
        self.fabric.parking_lot.fail(self.rank, &why);
    }

    fn failure(&self) -> Option<RankFailure> {
        self.fabric.parking_lot.failure()
    }
}
