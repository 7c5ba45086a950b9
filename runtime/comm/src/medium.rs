//! Movement of data between the memories of ranks, on the host or on a device.

use super::ThreadRole;
use super::exchange::Exchange;
use device::arena::Arena;
use device::backend::{Mark, Span};

/// Locations of the tensors of one peer.
pub struct PeerBuffers<'a, M> {
    /// The peer's memory.
    pub memory: &'a M,
    /// The tensors that it gives.
    pub sources: &'a [Span],
    /// The tensors that it makes.
    pub results: &'a [Span],
}

impl<M> Clone for PeerBuffers<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for PeerBuffers<'_, M> {}

impl<'a, M> PeerBuffers<'a, M> {
    /// A tensor that the peer gives.
    pub fn source(&self, index: usize) -> Buffer<'a, M> {
        Buffer { memory: self.memory, span: self.sources[index] }
    }

    /// A tensor that it makes.
    pub fn result(&self, index: usize) -> Buffer<'a, M> {
        Buffer { memory: self.memory, span: self.results[index] }
    }
}

/// A tensor in the memory of a rank.
pub struct Buffer<'a, M> {
    /// The memory.
    pub memory: &'a M,
    /// The place of the tensor.
    pub span: Span,
}

impl<M> Clone for Buffer<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Buffer<'_, M> {}

/// Tensors in the memory of a rank.
pub(super) struct Buffers<'a, M> {
    pub(super) memory: &'a M,
    pub(super) spans: &'a [Span],
}

impl<M> Clone for Buffers<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Buffers<'_, M> {}

impl<'a, M> Buffers<'a, M> {
    pub(super) fn tensor(&self, index: usize) -> Buffer<'a, M> {
        Buffer { memory: self.memory, span: self.spans[index] }
    }
}

/// A half of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Results from the sources of all.
    Pull,
    /// Pieces of sums that the peers have made.
    Gather,
}

/// Mover of data between the memories of ranks, for one thread of a rank.
///
/// A device runs late: threads give work to its streams and go on, and events order the work of one stream after that of another. The
/// host moves data at once; its streams and events are nothing. A communicator waits for an event only once it knows that the event
/// has been recorded, so that no stream waits for work that nobody has given.
pub trait Medium: Sized + Send + 'static {
    /// The memory of a rank, as its peers reach it.
    type Memory: Send + Sync;
    /// A point in the work of a stream. It can be recorded again.
    type Event: Send + Sync;
    /// A queue of work.
    type Stream: Send + Sync;

    /// A medium for the other thread of the rank.
    fn fork(&self) -> Self;

    /// An event that is not recorded.
    ///
    /// # Errors
    /// The device has no more.
    fn event(&self) -> Result<Self::Event, String>;

    /// A stream for transfers.
    ///
    /// # Errors
    /// The device has no more.
    fn stream(&self) -> Result<Self::Stream, String>;

    /// The stream to which a thread of the rank gives all that it launches.
    fn stream_of(&self, role: ThreadRole) -> Self::Stream;

    /// Records an event behind all that a stream has been given.
    fn record(&self, stream: &Self::Stream, event: &Self::Event);

    /// Holds what a stream is given from here on until the work before the event is done.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event);

    /// The point behind all that a stream has been given; none unless a device is timed ([`Backend::set_timing`]).
    ///
    /// [`Backend::set_timing`]: device::backend::Backend::set_timing
    fn mark(&self, _stream: &Self::Stream) -> Option<Mark> {
        None
    }

    /// The memory of the host that a memory is; none of a device.
    fn host(_memory: &Self::Memory) -> Option<&Arena> {
        None
    }

    /// Memory for tensors that come from other processes.
    ///
    /// # Errors
    /// There is not so much, or other processes do not reach memories of this kind.
    fn staging(&self, _bytes: usize) -> Result<Self::Memory, String> {
        Err("the memories of a device are joined with those of no other process".to_string())
    }

    /// Makes a half of an exchange for the member `me`, in the order of the group. Returns the bytes of rows that came, if only filled rows
    /// move and the host knows how many.
    ///
    /// # Safety
    /// While the stream works on it, nobody writes what it reads or touches one's own results, except, where the plan is for that, the
    /// peers their own pieces in place. Before the stream gathers, the peers have made their pieces.
    unsafe fn exchange<'a>(
        &self,
        stream: &Self::Stream,
        plan: &Exchange,
        half: Half,
        me: usize,
        peer: impl Fn(usize) -> PeerBuffers<'a, Self::Memory>,
    ) -> Option<u64>
    where
        Self::Memory: 'a;

    /// Copies a tensor from the memory of one rank into that of another.
    ///
    /// # Safety
    /// While the stream works on it, nobody writes the source or touches the target.
    unsafe fn copy(&self, stream: &Self::Stream, to: Buffer<'_, Self::Memory>, from: Buffer<'_, Self::Memory>);
}
