//! Data movement of a rank by NCCL, and waiting and failing of its thread.
//!
//! All that an exchange does is given to the stream of its group at once, between an event of the thread's stream that it waits for and one
//! that the thread's stream waits for in turn. So the host does not wait for peers, and an exchange is complete for it from its start on. Before
//! an exchange of filled rows alone the host waits for their numbers.

use super::super::device::Device;
use super::super::error::{Error, must};
use super::super::medium::{DeviceMemory, at};
use super::super::memory::{Arena, Pinned};
use super::super::staging::Staging;
use super::super::stream::Stream;
use super::exchange::Buffers;
use super::joint::{Endpoint, Joint, Key};
use super::queue::Queue;
use super::rows;
use comm::{
    DeviceRecording, EngineCall, EngineExchange, Exchange, Half, Medium, Message, Parking, PeerBuffers, RankFailure,
    Request, RowMoves, RowsExchange, ThreadRole, Transport, WaitReason,
};
use device::backend::{Mark, Span};
use ir::types::DType;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Endpoint of one thread of a rank.
pub struct NcclTransport {
    joint: Arc<Joint>,
    arena: Arc<Arena>,
    medium: DeviceMemory,
    /// Buffers for numbers of rows, once rows move.
    staging: RefCell<Option<Staging>>,
    /// The most operations of a group or channel that are begun before the first is waited for.
    in_flight: Arc<AtomicUsize>,
    groups: BTreeMap<Key, Arc<GroupEnd>>,
    channels: BTreeMap<(Key, u32), Arc<ChannelEnd>>,
}

/// A rank's membership in a group.
pub struct GroupEnd {
    ranks: Vec<usize>,
    place: usize,
    number: u32,
    /// None for a group of one.
    endpoint: Option<Arc<Endpoint>>,
    /// The stream of the thread that begins exchanges.
    own: Arc<Stream>,
    queue: Arc<Queue>,
    /// By slot of the queue, memory for tables of rows.
    tables: Mutex<BTreeMap<usize, Option<Pinned>>>,
}

/// A rank's end of a message channel. Channels with one direction between two ranks share a line, since both begin its messages in one
/// order.
pub struct ChannelEnd {
    endpoint: Arc<Endpoint>,
    sends: bool,
    peer: usize,
    tag: u32,
    queue: Arc<Queue>,
}

impl NcclTransport {
    /// The endpoint of the main thread of a joint's rank, which has this memory.
    pub fn new(joint: &Arc<Joint>, arena: &Arc<Arena>, medium: DeviceMemory) -> NcclTransport {
        NcclTransport {
            joint: joint.clone(),
            arena: arena.clone(),
            medium,
            staging: RefCell::default(),
            in_flight: Arc::default(),
            groups: BTreeMap::new(),
            channels: BTreeMap::new(),
        }
    }

    fn events(&self) -> (&Arc<Device>, usize) {
        (self.joint.device(), self.in_flight.load(Ordering::Relaxed))
    }

    fn channel(&mut self, [from, to]: [usize; 2], tag: u32) -> Result<Arc<ChannelEnd>, String> {
        let key = Key::line(from, to);
        if let Some(known) = self.channels.get(&(key.clone(), tag)) {
            return Ok(known.clone());
        }
        let endpoint = self.joint.endpoint(key.clone()).map_err(|why| why.to_string())?;
        let queue = endpoint.queue(self.medium.stream_of(ThreadRole::Main), self.joint.recordings());
        let sends = from == self.joint.rank();
        let peer = if sends { to } else { from };
        let end = Arc::new(ChannelEnd { endpoint, sends, peer, tag, queue });
        self.channels.insert((key, tag), end.clone());
        Ok(end)
    }

    /// Gives a group's stream an exchange.
    fn give(
        &self,
        group: &GroupEnd,
        endpoint: &Endpoint,
        plan: &EngineExchange,
        [sources, results]: [&[Span]; 2],
    ) -> Result<Request, Error> {
        let (stream, mut times) = (&endpoint.stream, [None; 2]);
        let reason = |number| self.wait_reason(group, plan, number);
        let rows = plan.rows.as_ref().map(|rows| Ok((rows, self.rows(group, rows, sources)?))).transpose()?;
        let number = group.queue.operate(self.events(), stream, reason, |slot| {
            times[0] = self.medium.mark(stream);
            let buffers = Buffers { arena: &self.arena, staging: endpoint.staging()?, sources, results };
            let communicator = endpoint.communicator()?;
            // SAFETY: the program changes sources and uses results only after the wait. The stream alone uses the staging memory. Of the
            // operation that had the slot before, the thread's stream is done when it has read the numbers of rows.
            unsafe {
                match &rows {
                    Some((rows, moves)) => {
                        let mut tables = group.tables.lock().unwrap_or_else(PoisonError::into_inner);
                        let pinned = rows::pinned(self.joint.device(), rows, tables.entry(slot).or_default())?;
                        self.medium.give_rows(stream, communicator, buffers, (rows, moves), pinned)?;
                    }
                    None => self.medium.give(stream, (plan, communicator), buffers)?,
                }
            }
            times[1] = self.medium.mark(stream);
            Ok(())
        })?;
        Ok(Request::given(number, times).with_filled(rows.map(|(_, moves)| moves.bytes)))
    }

    /// The rows that move in an exchange, as many as the step fills.
    fn rows(&self, group: &GroupEnd, rows: &RowsExchange, sources: &[Span]) -> Result<RowMoves, Error> {
        let mut staging = self.staging.borrow_mut();
        let known = staging.take().map_or_else(|| Staging::new(self.joint.device()), Ok)?;
        // SAFETY: the counts are in the arena, and were made by what the thread's stream was given before.
        unsafe { rows::moves(staging.insert(known), &group.own, (&self.arena, sources), rows) }
    }
}

impl Transport for NcclTransport {
    type Group = GroupEnd;
    type Plan = EngineExchange;
    type Channel = ChannelEnd;

    fn with_role(&self, _role: ThreadRole) -> NcclTransport {
        let (groups, channels) = (BTreeMap::new(), BTreeMap::new());
        let (joint, arena, in_flight) = (self.joint.clone(), self.arena.clone(), self.in_flight.clone());
        NcclTransport {
            joint,
            arena,
            medium: self.medium.fork(),
            staging: RefCell::default(),
            in_flight,
            groups,
            channels,
        }
    }

    fn join(&mut self, ranks: &[usize], role: ThreadRole) -> Result<Arc<GroupEnd>, String> {
        let key = Key::group(ranks, role);
        if let Some(known) = self.groups.get(&key) {
            return Ok(known.clone());
        }
        let place = ranks.iter().position(|&rank| rank == self.joint.rank()).unwrap_or(0);
        let endpoint = (ranks.len() > 1).then(|| self.joint.endpoint(key.clone())).transpose();
        let endpoint = endpoint.map_err(|why| why.to_string())?;
        let own = self.medium.stream_of(role);
        let recordings = self.joint.recordings();
        let queue = match &endpoint {
            Some(endpoint) => endpoint.queue(own.clone(), recordings),
            None => Queue::new(own.clone(), recordings),
        };
        let group = Arc::new(GroupEnd {
            ranks: ranks.to_vec(),
            place,
            number: self.joint.control().number(ranks),
            endpoint,
            own,
            queue,
            tables: Mutex::default(),
        });
        self.groups.insert(key, group.clone());
        Ok(group)
    }

    fn fit(
        &self,
        group: &GroupEnd,
        op: &str,
        dtypes: &[DType],
        of: &mut dyn FnMut(usize) -> Result<Exchange, String>,
    ) -> Result<EngineExchange, String> {
        let plan = EngineExchange::of(group.place, &group.ranks, dtypes, &mut |place| of(group.ranks[place]))?;
        let plan = EngineExchange { op: self.joint.control().number_op(op), ..plan };
        if plan.rows.is_some() {
            self.joint.keep_eager("the host waits for the numbers of experts' rows before they move");
        }
        let bytes = plan.rows.as_ref().map_or(plan.bytes, rows::staging_bytes);
        group.endpoint.iter().for_each(|endpoint| _ = endpoint.bytes.fetch_max(bytes, Ordering::Relaxed));
        Ok(plan)
    }

    fn channel_to(&mut self, peer: usize, tag: u32) -> Result<Arc<ChannelEnd>, String> {
        self.channel([self.joint.rank(), peer], tag)
    }

    fn channel_from(&mut self, peer: usize, tag: u32) -> Result<Arc<ChannelEnd>, String> {
        self.channel([peer, self.joint.rank()], tag)
    }

    fn expect(&mut self, in_flight: usize, _tensors: usize) {
        self.in_flight.fetch_max(in_flight, Ordering::Relaxed);
    }

    fn repeats(&self) -> bool {
        self.joint.eager().is_none()
    }

    fn note_recording(&self, what: DeviceRecording) {
        must(self.joint.recordings().note(self.joint.device(), what));
    }

    fn start(&self, group: &GroupEnd, plan: &EngineExchange, sources: &[Span], results: &[Span]) -> Request {
        match &group.endpoint {
            Some(endpoint) => must(self.give(group, endpoint, plan, [sources, results])),
            None => {
                let own = PeerBuffers { memory: &*self.arena, sources, results };
                let Some(alone) = &plan.alone else { return Request::given(0, [None; 2]) };
                // SAFETY: the program gives the results places of their own.
                unsafe { self.medium.exchange(&group.own, alone, Half::Pull, 0, |_| own) };
                Request::given(0, [None; 2])
            }
        }
    }

    fn advance(&self, _group: &GroupEnd, _plan: &EngineExchange, _request: &mut Request) {}

    fn receive(&self, group: &GroupEnd, number: u64) {
        if group.endpoint.is_some() {
            must(group.queue.receive(number));
        }
    }

    fn wait_reason(&self, group: &GroupEnd, plan: &EngineExchange, number: u64) -> WaitReason {
        WaitReason::Peers { group: group.number, number, op: plan.op }
    }

    fn start_message(&self, channel: &ChannelEnd, span: Span) -> Message {
        let (stream, mut times) = (&channel.endpoint.stream, [None::<Mark>; 2]);
        let &ChannelEnd { peer: rank, tag, sends, .. } = channel;
        let reason = |_| if sends { WaitReason::Receiver { rank, tag } } else { WaitReason::Sender { rank, tag } };
        let number = channel.queue.operate(self.events(), stream, reason, |_| {
            times[0] = self.medium.mark(stream);
            let (place, bytes) = (at(&self.arena, span), span.bytes());
            // The sender is the first member of its line.
            let call = match sends {
                true => EngineCall::Send { to: 1, from: place, bytes },
                false => EngineCall::Receive { from: 0, to: place, bytes },
            };
            if bytes > 0 {
                // SAFETY: the program changes or uses the tensor only after the wait.
                unsafe { channel.endpoint.communicator()?.give(stream, [call].into_iter())? };
            }
            times[1] = self.medium.mark(stream);
            Ok(())
        });
        let [start, end] = times;
        Message { number: must(number), times: start.zip(end).map(<[Mark; 2]>::from) }
    }

    fn pending(&self, _channel: &ChannelEnd, _number: u64) -> Option<WaitReason> {
        None
    }

    fn receive_message(&self, channel: &ChannelEnd, number: u64) {
        must(channel.queue.receive(number));
    }
}

impl Parking for NcclTransport {
    fn wait(&self, pending: &mut dyn FnMut() -> Option<WaitReason>) -> Result<(), RankFailure> {
        self.joint.control().wait(0, pending)
    }

    fn park(&self, has_work: &mut dyn FnMut() -> bool) -> Result<(), RankFailure> {
        self.joint.control().park(0, has_work)
    }

    fn waited(&self) -> Duration {
        self.joint.control().waited(0)
    }

    fn unpark(&self, _role: ThreadRole) {
        self.joint.control().unpark(0);
    }

    fn leave(&self) {
        self.joint.control().leave();
    }

    fn fail(&self, why: String) {
        self.joint.control().fail(self.joint.rank(), &why);
    }

    fn failure(&self) -> Option<RankFailure> {
        self.joint.control().failure()
    }
}
