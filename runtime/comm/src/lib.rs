//! Communicators: data movement between ranks.
//!
//! The data movement is computed at load time, as a pure function of types and coordinates ([`Exchange`]). A communicator
//! executes it between spans of the ranks' memories, and a [`Medium`] moves the data. [`threads`] connects ranks that are threads of
//! one process and copies no element twice.

mod channel;
mod codes;
mod control;
mod courier;
mod crossing;
mod driver;
mod engine;
mod engine_rows;
#[cfg(test)]
mod engine_tests;
mod exchange;
mod execute;
#[cfg(test)]
mod far_tests;
mod flight_record;
mod group;
#[cfg(test)]
mod late_tests;
pub mod looped;
mod medium;
mod parking_lot;
#[cfg(test)]
mod ragged_tests;
#[cfg(test)]
mod rank_tests;
mod stalls;
mod sums;
#[cfg(test)]
mod tests;
pub mod threads;
pub mod wire;

pub use control::Control;
pub use courier::{Courier, Limits};
pub use crossing::FittedExchange;
pub use device::region::{Region, RegionPiece, assemble, extract, local_len, pieces};
pub use engine::EngineExchange;
pub use engine::{CallPlace, EngineCall, StagedBlock};
pub use engine_rows::{RowCopy, RowMoves, RowsExchange};
pub use exchange::{Exchange, FilledRows, Move, TensorPlan};
pub use execute::HostMemory;
pub use flight_record::{WireEvent, WireMessage, WireRecord};
pub use medium::{Buffer, Half, Medium, PeerBuffers};
pub use sums::Sums;

use device::backend::{Mark, Span};
use ir::types::DType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The first failure of a rank. All other ranks abort with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rank {rank} failed: {why}")]
pub struct RankFailure {
    /// The rank that failed first.
    pub rank: usize,
    /// The cause.
    pub why: String,
    /// True if the rank stays at one instruction. Its thread may be there still.
    pub is_stuck: bool,
}

impl RankFailure {
    /// A failure of a rank that is not stuck.
    pub fn new(rank: usize, why: impl Into<String>) -> RankFailure {
        RankFailure { rank, why: why.into(), is_stuck: false }
    }
}

/// The reason why a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitReason {
    /// The other members of a group.
    Peers {
        /// Which.
        group: u32,
        /// The exchange among those of the group.
        number: u64,
        /// The number of its name.
        op: u32,
    },
    /// A rank has yet to receive a message.
    Receiver {
        /// Which.
        rank: usize,
        /// The message's tag.
        tag: u32,
    },
    /// A rank has yet to send a message.
    Sender {
        /// Which.
        rank: usize,
        /// The message's tag.
        tag: u32,
    },
    /// The async worker of the same rank.
    AsyncWorker,
}

/// Use that a rank's device makes of a recorded step, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceRecording {
    /// It records what the threads of the rank begin.
    Made(usize),
    /// It repeats what it has recorded, if there is such a recording.
    Repeated(usize),
    /// It does neither.
    None,
}

/// Role of a thread of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ThreadRole {
    /// The main thread executes the instruction stream.
    Main,
    /// The async worker executes started bodies and completes exchanges.
    Async,
}

/// Handle of an exchange that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    number: u64,
    /// The phase that must complete next; none if the exchange is complete.
    phase: Option<group::Phase>,
    /// The counts that end its phases.
    targets: [u64; 3],
    /// The beginning and the end of the work of a device that is timed.
    times: [Option<Mark>; 2],
    /// Bytes of filled rows that have come.
    filled: Option<u64>,
}

impl Request {
    /// One that is complete for the host from its start on: the work is given to a device.
    pub fn given(number: u64, times: [Option<Mark>; 2]) -> Request {
        Request { number, phase: None, targets: [0; 3], times, filled: None }
    }

    /// The same, with the bytes of filled rows that come.
    pub fn with_filled(self, filled: Option<u64>) -> Request {
        Request { filled, ..self }
    }

    /// True if the exchange is complete: the results are written, and no rank reads the sources any more. On a device the work that
    /// does so has been given to it, and [`Transport::receive`] orders what follows.
    pub fn is_complete(self) -> bool {
        self.phase.is_none()
    }

    /// Its number among the exchanges of the group.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Bytes of the rows that have come, if only filled ones move and the host knows how many, once it is complete.
    pub fn filled_bytes(self) -> Option<u64> {
        self.filled
    }

    /// The beginning and the end of its work on a device that is timed, once it is complete.
    pub fn times(self) -> Option<[Mark; 2]> {
        let [start, end] = self.times;
        Some([start?, end?])
    }
}

/// A message that one of its ends has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its number among the messages of the channel.
    pub number: u64,
    /// The beginning and the end of its copy, if this end came second and a device that is timed copies.
    pub times: Option<[Mark; 2]>,
}

/// An exchange, as one rank makes it.
pub trait ExchangePlan: Send + Sync {
    /// The members, in the order in which they are combined.
    fn ranks(&self) -> &[usize];
}

/// Data movement of one rank, for one of its threads. Nothing here blocks.
pub trait Transport: Sized + Send + 'static {
    /// The rank's membership in a group.
    type Group: Send + Sync;
    /// An exchange, as the rank makes it.
    type Plan: ExchangePlan;
    /// The rank's end of a message channel.
    type Channel: Send + Sync;

    /// Endpoint of the same rank for its other thread.
    fn with_role(&self, role: ThreadRole) -> Self;

    /// Joins a group of ranks, before the first step. Members name the group by equal lists. Each thread role has its own
    /// groups, so the two threads begin exchanges independently. All members begin a group's exchanges in the same order.
    ///
    /// # Errors
    /// The device has no more streams.
    fn join(&mut self, ranks: &[usize], role: ThreadRole) -> Result<Arc<Self::Group>, String>;

    /// An exchange of the group as this rank makes it, from the exchanges of its members and the elements of the tensors that move.
    /// `of` gives the exchange of a member by its rank; it is a pure function, which all members call alike. `op` names it in messages.
    ///
    /// # Errors
    /// As of `of`.
    fn fit(
        &self,
        group: &Self::Group,
        op: &str,
        dtypes: &[DType],
        of: &mut dyn FnMut(usize) -> Result<Exchange, String>,
    ) -> Result<Self::Plan, String>;

    /// The sending end of a channel to a peer.
    ///
    /// # Errors
    /// As of [`join`](Transport::join).
    fn channel_to(&mut self, peer: usize, tag: u32) -> Result<Arc<Self::Channel>, String>;

    /// The receiving end of a channel from a peer.
    ///
    /// # Errors
    /// As of [`join`](Transport::join).
    fn channel_from(&mut self, peer: usize, tag: u32) -> Result<Arc<Self::Channel>, String>;

    /// Reserves memory, before the first step, for the most requests of a group or channel that a rank begins before it waits for the
    /// first of them, and for the most tensors in a request.
    fn expect(&mut self, in_flight: usize, tensors: usize);

    /// True if the devices of all ranks may repeat steps by themselves, once all ranks are joined.
    fn repeats(&self) -> bool {
        true
    }

    /// Notes what the rank's device does with a recording from here on.
    fn note_recording(&self, _what: DeviceRecording) {}

    /// Begins an exchange within a group; all members begin theirs in the same order. `results` will be written whole.
    fn start(&self, group: &Self::Group, plan: &Self::Plan, sources: &[Span], results: &[Span]) -> Request;

    /// Progresses an exchange as far as possible without waiting. Who waits for one advances all that the rank has begun: with members in
    /// other processes they progress in order.
    fn advance(&self, group: &Self::Group, plan: &Self::Plan, request: &mut Request);

    /// Lets what the thread launches from here on come after a complete exchange, by its number.
    fn receive(&self, group: &Self::Group, number: u64);

    /// The reason why an exchange of the group waits, by its number.
    fn wait_reason(&self, group: &Self::Group, plan: &Self::Plan, number: u64) -> WaitReason;

    /// Begins to send or to receive the next message of a channel.
    fn start_message(&self, channel: &Self::Channel, span: Span) -> Message;

    /// The reason why a message is still pending; none if the message is complete.
    fn pending(&self, channel: &Self::Channel, number: u64) -> Option<WaitReason>;

    /// Lets what the main thread launches from here on come after a complete message.
    fn receive_message(&self, channel: &Self::Channel, number: u64);
}

/// Waiting and failing of the threads of all ranks. Only [`wait`](Parking::wait) and [`park`](Parking::park) block. Both return an
/// error if any rank has failed, or if all threads wait.
pub trait Parking {
    /// Waits until `pending` returns none. Every notification of this thread calls `pending` again. `pending` must make all
    /// possible progress before it returns a reason, since skipped work wakes no thread.
    ///
    /// # Errors
    /// A rank failed, or the threads are deadlocked.
    fn wait(&self, pending: &mut dyn FnMut() -> Option<WaitReason>) -> Result<(), RankFailure>;

    /// Parks an idle thread until `has_work`. Each [`unpark`](Parking::unpark) calls `has_work` again.
    ///
    /// # Errors
    /// A rank failed.
    fn park(&self, has_work: &mut dyn FnMut() -> bool) -> Result<(), RankFailure>;

    /// The time in which this thread has waited for other ranks so far.
    fn waited(&self) -> Duration;

    /// Unparks a thread of the same rank.
    fn unpark(&self, role: ThreadRole);

    /// Removes this thread from deadlock detection until the next step.
    fn leave(&self);

    /// Reports that this rank failed and unparks all threads. Only the first report counts.
    fn fail(&self, why: String);

    /// The first failure, if any.
    fn failure(&self) -> Option<RankFailure>;
}

/// One rank's endpoint, for one of its threads: it moves data, and its thread waits with those of all ranks.
pub trait Communicator: Transport + Parking {}

impl<T: Transport + Parking> Communicator for T {}
