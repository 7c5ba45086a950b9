//! Communicators: data movement between ranks.
//!
//! The data movement is computed at load time, as a pure function of types and coordinates ([`Exchange`]). A communicator
//! executes it between spans of the ranks' arenas. [`threads`] connects ranks that are threads of one process and copies no
//! element twice.

mod carry;
mod exchange;
mod group;
mod line;
mod region;
#[cfg(test)]
mod tests;
pub mod threads;
mod watch;

pub use exchange::{Exchange, Move, TensorPlan};
pub use region::{Piece, Region, assemble, cut, local_len, pieces};

use crate::backend::Span;
use std::sync::Arc;

/// A rank failed, and all others stop with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rank {rank} failed: {why}")]
pub struct Stopped {
    /// The first rank that failed.
    pub rank: usize,
    /// What happened to it.
    pub why: String,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// The others of a group.
    Peers {
        /// Which.
        group: u32,
    },
    /// That a tensor has gone to a rank.
    Receiver {
        /// Which.
        rank: usize,
        /// The message's tag.
        tag: u32,
    },
    /// A tensor from a rank.
    Sender {
        /// Which.
        rank: usize,
        /// The message's tag.
        tag: u32,
    },
    /// What goes on beside the row of the same rank.
    Lane,
}

/// The two threads of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hand {
    /// Runs the row.
    Row,
    /// Carries out what goes on beside it.
    Lane,
}

/// An exchange that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flight {
    number: u64,
    /// The stage whose end is awaited; none when it is over.
    stage: Option<group::Stage>,
}

impl Flight {
    /// Whether it is over: the results are there, and nobody reads the sources any more.
    pub fn is_over(self) -> bool {
        self.stage.is_none()
    }
}

/// One rank's way to the others, for one of its threads. Nothing but [`wait`](Communicator::wait) and
/// [`rest`](Communicator::rest) ever blocks, and both end with an error once any rank has failed or when all wait.
pub trait Communicator: Sized + Send + 'static {
    /// The rank's place in a group.
    type Group: Send + Sync;
    /// The rank's end of a line of messages.
    type Line: Send + Sync;

    /// Another end of the same rank, for one of its hands.
    fn hand(&self, hand: Hand) -> Self;

    /// The rank's place in a group of ranks, before the first step. Members name it by equal lists. What the two hands
    /// start is counted apart, so that each may begin exchanges in its own order, the same on all members.
    fn join(&mut self, ranks: &[usize], by: Hand) -> Arc<Self::Group>;

    /// The end of a line to a peer that the rank sends by.
    fn line_to(&mut self, peer: usize, tag: u32) -> Arc<Self::Line>;

    /// The end of a line from a peer that the rank receives by.
    fn line_from(&mut self, peer: usize, tag: u32) -> Arc<Self::Line>;

    /// Says, before the first step, how many exchanges or messages the rank has under way at most, and of how many tensors.
    fn expect(&mut self, in_flight: usize, tensors: usize);

    /// Begins an exchange within a group; all members begin theirs in the same order. `results` will be written whole.
    fn start(&self, group: &Self::Group, plan: &Exchange, sources: &[Span], results: &[Span]) -> Flight;

    /// Does of an exchange what can be done now.
    fn advance(&self, group: &Self::Group, plan: &Exchange, flight: &mut Flight);

    /// What an exchange waits for.
    fn awaited(&self, group: &Self::Group) -> Awaited;

    /// Begins to send or to receive the next message of a line; its number.
    fn post(&self, line: &Self::Line, span: Span) -> u64;

    /// What a message still waits for; nothing when it is over.
    fn unmet(&self, line: &Self::Line, number: u64) -> Option<Awaited>;

    /// Sleeps until `unmet` names nothing more that is waited for. It is asked again whenever something has happened, and
    /// names something only when it has done all that it can: what it leaves undone will wake nobody.
    ///
    /// # Errors
    /// A rank failed, or all wait for each other.
    fn wait(&self, unmet: &mut dyn FnMut() -> Option<Awaited>) -> Result<(), Stopped>;

    /// Sleeps, having nothing to do, until `called`, which is asked again after each [`call`](Communicator::call).
    ///
    /// # Errors
    /// A rank failed.
    fn rest(&self, called: &mut dyn FnMut() -> bool) -> Result<(), Stopped>;

    /// Wakes a hand of the rank.
    fn call(&self, hand: Hand);

    /// This thread will not be heard of until the next step.
    fn leave(&self);

    /// Says that this rank failed, and wakes all that wait. Only the first report counts.
    fn fail(&self, why: String);

    /// The first failure, if there was one.
    fn failure(&self) -> Option<Stopped>;
}
