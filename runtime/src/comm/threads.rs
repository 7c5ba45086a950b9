//! Ranks as threads of one process, with the fewest possible copies. In a collective each rank publishes its buffers, and
//! each rank reads from its peers' arenas directly into its own results. No exchange completes before all ranks have read.
//! A message is copied once, from arena to arena.

use super::channel::{Channel, ChannelEnd};
use super::execute::{PeerBuffers, Scratch};
use super::group::{Group, GroupMember, Phase};
use super::parking_lot::{ParkingLot, locked};
use super::{Exchange, Parking, RankFailure, Request, ThreadRole, Transport, WaitReason};
use crate::arena::Arena;
use crate::backend::Span;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Key of a group: its ranks, and the role of the threads that start its exchanges.
type GroupKey = (Vec<usize>, ThreadRole);

/// Shared communication state of the ranks of a process.
pub struct Fabric {
    ranks: usize,
    /// True if each rank has an async worker on a thread of its own.
    async_threads: bool,
    parking_lot: ParkingLot,
    arenas: Box<[OnceLock<Arc<Arena>>]>,
    groups: Mutex<BTreeMap<GroupKey, Arc<Group>>>,
    channels: Mutex<BTreeMap<(usize, usize, u32), Arc<Channel>>>,
    /// The largest number of requests that a rank has in flight, and of tensors in an exchange.
    in_flight: AtomicUsize,
    tensors: AtomicUsize,
}

/// Endpoint of one thread of a rank.
pub struct ThreadCommunicator {
    rank: usize,
    role: ThreadRole,
    fabric: Arc<Fabric>,
    members: BTreeMap<GroupKey, Arc<GroupMember>>,
    channels: BTreeMap<(usize, usize, u32), Arc<ChannelEnd>>,
    scratch: RefCell<Scratch>,
}

impl Fabric {
    /// A fabric of `ranks` ranks.
    pub fn new(ranks: usize, async_threads: bool) -> Arc<Fabric> {
        Arc::new(Fabric {
            ranks,
            async_threads,
            parking_lot: ParkingLot::new(if async_threads { 2 * ranks } else { ranks }),
            arenas: (0..ranks).map(|_| OnceLock::new()).collect(),
            groups: Mutex::default(),
            channels: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            tensors: AtomicUsize::new(0),
        })
    }

    /// The endpoint of a rank's main thread, which works on this arena.
    pub fn endpoint(self: &Arc<Fabric>, rank: usize, arena: Arc<Arena>) -> ThreadCommunicator {
        self.arenas[rank].get_or_init(|| arena);
        ThreadCommunicator::new(self, rank, ThreadRole::Main)
    }

    /// Counts threads as awake: before each step all main threads, and at load all async workers.
    pub fn enter(&self, threads: usize) {
        self.parking_lot.enter(threads);
    }

    fn arena(&self, rank: usize) -> &Arena {
        self.arenas[rank].get().expect("all ranks have joined before the first step")
    }

    /// The parker of a thread. The async worker, if it has a thread, also completes the exchanges of the main thread.
    fn parker(&self, rank: usize, role: ThreadRole) -> usize {
        if self.async_threads && role == ThreadRole::Async { self.ranks + rank } else { rank }
    }

    /// Counts a rank as arrived at the end of a phase. The last rank unparks the others.
    fn arrive(&self, rank: usize, group: &Group, number: u64, phase: Phase) {
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

impl ThreadCommunicator {
    fn new(fabric: &Arc<Fabric>, rank: usize, role: ThreadRole) -> ThreadCommunicator {
        let (members, channels, scratch) = (BTreeMap::new(), BTreeMap::new(), RefCell::default());
        ThreadCommunicator { rank, role, fabric: fabric.clone(), members, channels, scratch }
    }

    fn me(&self) -> usize {
        self.fabric.parker(self.rank, self.role)
    }

    fn channel(&mut self, from: usize, to: usize, tag: u32) -> Arc<ChannelEnd> {
        let (key, sends) = ((from, to, tag), from == self.rank);
        let shared = || {
            let mut channels = locked(&self.fabric.channels);
            channels.entry(key).or_insert_with(|| Arc::new(Channel::new(from, to, tag))).clone()
        };
        self.channels.entry(key).or_insert_with(|| Arc::new(ChannelEnd::new(shared(), sends))).clone()
    }
}

impl Transport for ThreadCommunicator {
    type Group = GroupMember;
    type Channel = ChannelEnd;

    fn with_role(&self, role: ThreadRole) -> ThreadCommunicator {
        ThreadCommunicator::new(&self.fabric, self.rank, role)
    }

    fn join(&mut self, ranks: &[usize], role: ThreadRole) -> Arc<GroupMember> {
        let key = (ranks.to_vec(), role);
        let fabric = &self.fabric;
        let place = ranks.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        let member = || {
            let mut groups = locked(&fabric.groups);
            let id = groups.len() as u32;
            let group = groups.entry((ranks.to_vec(), role)).or_insert_with(|| Arc::new(Group::new(id, ranks)));
            Arc::new(GroupMember::new(group.clone(), place))
        };
        self.members.entry(key).or_insert_with(member).clone()
    }

    fn channel_to(&mut self, peer: usize, tag: u32) -> Arc<ChannelEnd> {
        self.channel(self.rank, peer, tag)
    }

    fn channel_from(&mut self, peer: usize, tag: u32) -> Arc<ChannelEnd> {
        self.channel(peer, self.rank, tag)
    }

    fn expect(&mut self, in_flight: usize, tensors: usize) {
        self.fabric.in_flight.fetch_max(in_flight, Ordering::Relaxed);
        self.fabric.tensors.fetch_max(tensors, Ordering::Relaxed);
    }

    fn start(&self, member: &GroupMember, plan: &Exchange, sources: &[Span], results: &[Span]) -> Request {
        if plan.ranks.len() == 1 {
            let own = PeerBuffers { arena: self.fabric.arena(self.rank), sources, results };
            // SAFETY: the program gives the results places of their own.
            unsafe { plan.pull(0, |_| own, &mut self.scratch.borrow_mut()) };
            return Request { number: 0, phase: None };
        }
        let [slots, tensors] = [&self.fabric.in_flight, &self.fabric.tensors].map(|most| most.load(Ordering::Relaxed));
        let number = member.publish(sources, results, slots, tensors);
        self.fabric.arrive(self.rank, &member.group, number, Phase::Published);
        Request { number, phase: Some(Phase::Published) }
    }

    fn advance(&self, member: &GroupMember, plan: &Exchange, request: &mut Request) {
        let ThreadCommunicator { rank, fabric, scratch, .. } = self;
        let (group, number) = (&*member.group, request.number);
        while let Some(phase) = request.phase.filter(|&phase| group.have_all(number, phase)) {
            let peer = |place: usize| {
                // SAFETY: all have published, and this member has not counted itself as having read.
                let buffer_table = unsafe { group.slot(number).buffer_table(place) };
                PeerBuffers {
                    arena: fabric.arena(group.ranks[place]),
                    sources: &buffer_table.sources,
                    results: &buffer_table.results,
                }
            };
            let next = match phase {
                Phase::Published => {
                    // SAFETY: sources change only when all have read, and results are this rank's own until all have reduced.
                    unsafe { plan.pull(member.place, peer, &mut scratch.borrow_mut()) };
                    // Without a gather no member waits for this phase, but the counters stay in step.
                    fabric.arrive(*rank, group, number, Phase::Reduced);
                    if !plan.gathers() {
                        fabric.arrive(*rank, group, number, Phase::Read);
                    }
                    Some(if plan.gathers() { Phase::Reduced } else { Phase::Read })
                }
                Phase::Reduced => {
                    // SAFETY: all have reduced their pieces, and the pieces of others in the own results are read by nobody.
                    unsafe { plan.gather(member.place, peer) };
                    fabric.arrive(*rank, group, number, Phase::Read);
                    Some(Phase::Read)
                }
                Phase::Read => None,
            };
            request.phase = next;
        }
    }

    fn wait_reason(&self, member: &GroupMember) -> WaitReason {
        WaitReason::Peers { group: member.group.id }
    }

    fn start_message(&self, end: &ChannelEnd, span: Span) -> u64 {
        let arenas = [end.channel.from, end.channel.to].map(|rank| self.fabric.arena(rank));
        let (number, complete) = end.start_message(span, arenas, &self.fabric.in_flight);
        if complete {
            self.fabric.parking_lot.unpark(self.fabric.parker(end.peer(), ThreadRole::Main));
        }
        number
    }

    fn pending(&self, end: &ChannelEnd, number: u64) -> Option<WaitReason> {
        let (rank, tag) = (end.peer(), end.channel.tag);
        let wait_reason = if end.sends { WaitReason::Receiver { rank, tag } } else { WaitReason::Sender { rank, tag } };
        (!end.is_complete(number)).then_some(wait_reason)
    }
}

impl Parking for ThreadCommunicator {
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
