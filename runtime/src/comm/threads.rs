//! Ranks as threads of one process, with the fewest possible copies. In a collective each rank publishes its buffers, and
//! each rank reads from its peers' memories directly into its own results. No exchange completes before all ranks have read.
//! A message is copied once, from memory to memory.
//!
//! Threads meet on the host. Where memories are those of a device, to have read is to have given the device the work that reads: a
//! thread waits until its peers have given theirs, and events order the rest.

use super::channel::{Channel, ChannelEnd};
use super::execute::HostMemory;
use super::group::{Group, GroupMember, Phase};
use super::medium::{Half, Medium, PeerBuffers};
use super::parking_lot::{ParkingLot, locked};
use super::{Exchange, Message, Parking, RankFailure, Request, ThreadRole, Transport, WaitReason};
use crate::backend::Span;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Key of a group: its ranks, and the role of the threads that start its exchanges.
type GroupKey = (Vec<usize>, ThreadRole);

/// Key of a channel: the ranks that send and receive, and the tag.
type ChannelKey = (usize, usize, u32);

/// Shared communication state of the ranks of a process.
pub struct Fabric<M: Medium = HostMemory> {
    ranks: usize,
    /// True if each rank has an async worker on a thread of its own.
    async_threads: bool,
    parking_lot: ParkingLot,
    memories: Box<[OnceLock<Arc<M::Memory>>]>,
    groups: Mutex<BTreeMap<GroupKey, Arc<Group<M::Event>>>>,
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
    /// A fabric of `ranks` ranks.
    pub fn new(ranks: usize, async_threads: bool) -> Arc<Fabric<M>> {
        Arc::new(Fabric {
            ranks,
            async_threads,
            parking_lot: ParkingLot::new(if async_threads { 2 * ranks } else { ranks }),
            memories: (0..ranks).map(|_| OnceLock::new()).collect(),
            groups: Mutex::default(),
            channels: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            tensors: AtomicUsize::new(0),
        })
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

    fn memory(&self, rank: usize) -> &M::Memory {
        self.memories[rank].get().expect("all ranks have joined before the first step")
    }

    /// The parker of a thread. The async worker, if it has a thread, also completes the exchanges of the main thread.
    fn parker(&self, rank: usize, role: ThreadRole) -> usize {
        if self.async_threads && role == ThreadRole::Async { self.ranks + rank } else { rank }
    }

    /// Counts a rank as arrived at the end of a phase. The last rank unparks the others.
    fn arrive(&self, rank: usize, group: &Group<M::Event>, number: u64, phase: Phase) {
        if group.arrive(number, phase) {
            let others = group.ranks.iter().filter(|&&other| other != rank);
            others.for_each(|&other| self.parking_lot.unpark(self.parker(other, ThreadRole::Async)));
        }
    }

    fn describe(&self, parker: usize, wait_reason: WaitReason) -> String {
        let (rank, whose) = (parker % self.ranks, if parker < self.ranks { "" } else { "the async worker of " });
        let what = match wait_reason {
            WaitReason::Peers { group } => {
                let groups = locked(&self.groups);
                let peers = groups.values().find(|known| known.id == group).map_or(&[][..], |group| &group.ranks);
                let peers = peers.iter().filter(|&&peer| peer != rank).map(ToString::to_string);
                format!("ranks {} in a collective", peers.collect::<Vec<_>>().join(", "))
            }
            WaitReason::Receiver { rank, tag } => format!("rank {rank} to receive tag {tag}"),
            WaitReason::Sender { rank, tag } => format!("rank {rank} to send tag {tag}"),
            WaitReason::AsyncWorker => "its async worker".to_string(),
        };
        format!("{whose}rank {rank} waits for {what}")
    }
}

impl<M: Medium> ThreadCommunicator<M> {
    fn new(fabric: &Arc<Fabric<M>>, rank: usize, role: ThreadRole, medium: M) -> ThreadCommunicator<M> {
        let (members, channels) = (BTreeMap::new(), BTreeMap::new());
        ThreadCommunicator { rank, role, fabric: fabric.clone(), medium, members, channels }
    }

    fn me(&self) -> usize {
        self.fabric.parker(self.rank, self.role)
    }

    fn channel(&mut self, from: usize, to: usize, tag: u32) -> Result<Arc<ChannelEnd<M>>, String> {
        let (key, sends) = ((from, to, tag), from == self.rank);
        if let Some(known) = self.channels.get(&key) {
            return Ok(known.clone());
        }
        let mut channels = locked(&self.fabric.channels);
        let channel = match channels.get(&key) {
            Some(known) => known.clone(),
            None => Arc::new(Channel::new([from, to], tag, self.medium.stream()?)),
        };
        channels.insert(key, channel.clone());
        let end = Arc::new(ChannelEnd::new(channel, sends, self.medium.stream_of(ThreadRole::Main)));
        self.channels.insert(key, end.clone());
        Ok(end)
    }
}

impl<M: Medium> Transport for ThreadCommunicator<M> {
    type Group = GroupMember<M>;
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
        let mut groups = locked(&self.fabric.groups);
        let id = groups.len() as u32;
        let group = groups.entry(key.clone()).or_insert_with(|| Arc::new(Group::new(id, ranks))).clone();
        let own = || self.medium.stream_of(role);
        let transfers = if ranks.len() == 1 { own() } else { self.medium.stream()? };
        let member = Arc::new(GroupMember::new(group, place, [own(), transfers]));
        self.members.insert(key, member.clone());
        Ok(member)
    }

    fn channel_to(&mut self, peer: usize, tag: u32) -> Result<Arc<ChannelEnd<M>>, String> {
        self.channel(self.rank, peer, tag)
    }

    fn channel_from(&mut self, peer: usize, tag: u32) -> Result<Arc<ChannelEnd<M>>, String> {
        self.channel(peer, self.rank, tag)
    }

    fn expect(&mut self, in_flight: usize, tensors: usize) {
        self.fabric.in_flight.fetch_max(in_flight, Ordering::Relaxed);
        self.fabric.tensors.fetch_max(tensors, Ordering::Relaxed);
    }

    fn start(&self, member: &GroupMember<M>, plan: &Exchange, sources: &[Span], results: &[Span]) -> Request {
        if plan.ranks.len() == 1 {
            let own = PeerBuffers { memory: self.fabric.memory(self.rank), sources, results };
            // SAFETY: the program gives the results places of their own.
            let filled = unsafe { self.medium.exchange(&member.transfers, plan, Half::Pull, 0, |_| own) };
            return Request { number: 0, phase: None, times: [None; 2], filled };
        }
        let most = [&self.fabric.in_flight, &self.fabric.tensors].map(|most| most.load(Ordering::Relaxed));
        let number = member.publish(&self.medium, [sources, results], most);
        self.fabric.arrive(self.rank, &member.group, number, Phase::Published);
        Request { number, phase: Some(Phase::Published), times: [None; 2], filled: None }
    }

    fn advance(&self, member: &GroupMember<M>, plan: &Exchange, request: &mut Request) {
        let ThreadCommunicator { rank, fabric, medium, .. } = self;
        let (group, number, stream) = (&*member.group, request.number, &member.transfers);
        while let Some(phase) = request.phase.filter(|&phase| group.have_all(number, phase)) {
            let slot = group.slot(number);
            let peer = |place: usize| {
                // SAFETY: all have published, and this member has not counted itself as having read.
                let buffer_table = unsafe { slot.buffer_table(place) };
                PeerBuffers {
                    memory: fabric.memory(group.ranks[place]),
                    sources: &buffer_table.sources,
                    results: &buffer_table.results,
                }
            };
            // The work of this phase begins when all have ended the one before; the own part of an earlier phase is on this stream.
            let is_before = |place: &usize| phase == Phase::Published || *place != member.place;
            let begin = || {
                let others = (0..group.ranks.len()).filter(is_before);
                others.for_each(|place| medium.wait(stream, slot.event(place, phase)));
            };
            let end = |phase| {
                medium.record(stream, slot.event(member.place, phase));
                fabric.arrive(*rank, group, number, phase);
            };
            let (half, next) = match phase {
                Phase::Published => (Half::Pull, Phase::Reduced),
                Phase::Reduced => (Half::Gather, Phase::Read),
                Phase::Read => {
                    request.phase = None;
                    return;
                }
            };
            begin();
            if half == Half::Pull {
                request.times[0] = medium.mark(stream);
            }
            // SAFETY: sources change only when all have read. Results are this rank's own until all have reduced; then the pieces of others
            // in them are read by nobody.
            let filled = unsafe { medium.exchange(stream, plan, half, member.place, peer) };
            request.filled = filled.or(request.filled);
            end(next);
            // Without a gather no member waits for the end of the pull, but the counters stay in step.
            let is_last = half == Half::Pull && !plan.gathers();
            if is_last {
                end(Phase::Read);
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
            let events = (0..member.group.ranks.len()).map(|place| slot.event(place, Phase::Read));
            events.for_each(|event| self.medium.wait(&member.own, event));
        }
    }

    fn wait_reason(&self, member: &GroupMember<M>) -> WaitReason {
        WaitReason::Peers { group: member.group.id }
    }

    fn start_message(&self, end: &ChannelEnd<M>, span: Span) -> Message {
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
        self.fabric
            .parking_lot
            .wait(self.me(), pending, &|parker, wait_reason| self.fabric.describe(parker, wait_reason))
    }

    fn park(&self, unparked: &mut dyn FnMut() -> bool) -> Result<(), RankFailure> {
        self.fabric
            .parking_lot
            .park(self.me(), unparked, &|parker, wait_reason| self.fabric.describe(parker, wait_reason))
    }

    fn unpark(&self, role: ThreadRole) {
        self.fabric.parking_lot.unpark(self.fabric.parker(self.rank, role));
    }

    fn leave(&self) {
        self.fabric.parking_lot.leave(&|parker, wait_reason| self.fabric.describe(parker, wait_reason));
    }

    fn fail(&self, why: String) {
        self.fabric.parking_lot.abort(RankFailure { rank: self.rank, why });
    }

    fn failure(&self) -> Option<RankFailure> {
        self.fabric.parking_lot.failure()
    }
}
