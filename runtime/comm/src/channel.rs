//! Messages from one rank to another: both ends register their buffer, and the second to arrive copies. If the ends are in different
//! processes, the courier sends from the one buffer and receives into the other.

use super::Message;
use super::courier::{Courier, Job, Landing, Target, Way};
use super::medium::{Buffer, Medium};
use super::parking_lot::{ParkingLot, locked};
use device::backend::{Mark, Span};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Key of a channel: the ranks that send and receive, and the tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelKey {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
}

/// Messages with one tag from one rank to another.
pub(super) struct Channel<M: Medium> {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
    /// The stream of the copies.
    copies: M::Stream,
    /// The other end, if it is in another process.
    pub(super) far: Option<FarEnd>,
    /// Message `n` uses slot `n` modulo the number of slots.
    slots: OnceLock<Box<[MessageSlot<M::Event>]>>,
}

/// The end of a channel in another process.
pub(super) struct FarEnd {
    pub(super) process: usize,
    /// The number of the channel between the two processes, once all are known.
    pub(super) tag: OnceLock<u32>,
    /// The parker of the thread of this end.
    parker: usize,
}

struct MessageSlot<E> {
    /// Buffer of the end that arrived first.
    first: Mutex<Option<Span>>,
    /// Messages of this slot that are complete.
    completed: AtomicU64,
    /// The events of the arrivals, of the sender and of the receiver.
    arrivals: [E; 2],
    /// The event of the copy.
    copied: E,
}

/// One rank's end of a [`Channel`].
pub struct ChannelEnd<M: Medium> {
    pub(super) channel: Arc<Channel<M>>,
    /// True if the rank sends.
    pub(super) sends: bool,
    /// The stream of the thread that sends or receives.
    own: M::Stream,
    next: AtomicU64,
}

impl<M: Medium> Channel<M> {
    pub(super) fn new(key: ChannelKey, copies: M::Stream, far: Option<FarEnd>) -> Channel<M> {
        let ChannelKey { from, to, tag } = key;
        Channel { from, to, tag, copies, far, slots: OnceLock::new() }
    }

    fn make_slots(&self, medium: &M, in_flight: &AtomicUsize) -> &[MessageSlot<M::Event>] {
        self.slots.get_or_init(|| {
            let slots = (0..in_flight.load(Ordering::Relaxed).max(1)).map(|_| MessageSlot::new(medium));
            slots.collect::<Result<_, _>>().unwrap_or_else(|why| panic!("{why}"))
        })
    }

    /// The slot of a message, if one has begun.
    fn slot(&self, number: u64) -> Option<&MessageSlot<M::Event>> {
        let slots = self.slots.get()?;
        slots.get((number % slots.len() as u64) as usize)
    }
}

impl FarEnd {
    /// The end in another process of a channel whose end here has a parker.
    pub(super) fn new(process: usize, parker: usize) -> FarEnd {
        FarEnd { process, tag: OnceLock::new(), parker }
    }
}

impl<E> MessageSlot<E> {
    fn new<M: Medium<Event = E>>(medium: &M) -> Result<MessageSlot<E>, String> {
        let (arrivals, copied) = ([medium.event()?, medium.event()?], medium.event()?);
        Ok(MessageSlot { first: Mutex::default(), completed: AtomicU64::new(0), arrivals, copied })
    }
}

impl<M: Medium> Landing for Channel<M> {
    fn name(&self) -> String {
        format!("the channel from rank {} to {} with tag {}", self.from, self.to, self.tag)
    }

    fn land(&self, target: Target, lot: &ParkingLot) {
        if let Some(slot) = self.slot(target.number) {
            slot.completed.fetch_add(1, Ordering::Release);
        }
        self.far.iter().for_each(|far| lot.unpark(far.parker));
    }
}

impl<M: Medium> ChannelEnd<M> {
    pub(super) fn new(channel: Arc<Channel<M>>, sends: bool, own: M::Stream) -> ChannelEnd<M> {
        ChannelEnd { channel, sends, own, next: AtomicU64::new(0) }
    }

    /// The rank at the other end.
    pub(super) fn peer(&self) -> usize {
        if self.sends { self.channel.to } else { self.channel.from }
    }

    /// Registers the buffer of the next message; each end begins at most `in_flight` messages before it waits for the first. Returns
    /// the message and whether it is complete.
    ///
    /// # Panics
    /// If the ends do not agree on size and type.
    pub(super) fn start_message(
        &self,
        medium: &M,
        span: Span,
        memories: [&M::Memory; 2],
        in_flight: &AtomicUsize,
    ) -> (Message, bool) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let channel = &*self.channel;
        let slots = channel.make_slots(medium, in_flight);
        let slot = &slots[(number % slots.len() as u64) as usize];
        let mut first = locked(&slot.first);
        medium.record(&self.own, &slot.arrivals[usize::from(!self.sends)]);
        let Some(other) = first.take() else {
            *first = Some(span);
            return (Message { number, times: None }, false);
        };
        drop(first);
        let (source, target) = if self.sends { (span, other) } else { (other, span) };
        let Channel { from, to, tag, .. } = channel;
        assert_eq!(
            (source.len, source.dtype),
            (target.len, target.dtype),
            "rank {from} sends the elements with tag {tag} that rank {to} awaits"
        );
        slot.arrivals.iter().for_each(|arrival| medium.wait(&channel.copies, arrival));
        let start = medium.mark(&channel.copies);
        // SAFETY: the program changes neither until both waits are over.
        unsafe {
            let (to, from) =
                (Buffer { memory: memories[1], span: target }, Buffer { memory: memories[0], span: source });
            medium.copy(&channel.copies, to, from);
        }
        let end = medium.mark(&channel.copies);
        medium.record(&channel.copies, &slot.copied);
        slot.completed.fetch_add(1, Ordering::Release);
        (Message { number, times: start.zip(end).map(<[Mark; 2]>::from) }, true)
    }

    /// Begins to send or to receive the next message, whose other end is in another process. The memory is the rank's own. It completes
    /// when the courier has sent or received all of it.
    pub(super) fn start_far(
        &self,
        medium: &M,
        courier: &Courier,
        own: Buffer<'_, M::Memory>,
        in_flight: &AtomicUsize,
    ) -> Message {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.channel.make_slots(medium, in_flight);
        let span = own.span;
        if let (Some(far), Some(memory)) = (&self.channel.far, M::host(own.memory)) {
            let way = if self.sends { Way::Send } else { Way::Receive };
            let tag = *far.tag.get().expect("channels have numbers before the first step");
            let (bytes, most) = (memory.place(span.offset, span.bytes()), span.bytes());
            let (landing, target) = (self.channel.clone() as Arc<dyn Landing>, Target { number, phase: 0, count: 0 });
            courier.submit(Job {
                way,
                process: far.process,
                tag,
                parts: None,
                bytes,
                most,
                exact: true,
                landing,
                target,
            });
        }
        Message { number, times: None }
    }

    /// True if a message is complete, or on a device given to it.
    pub(super) fn is_complete(&self, number: u64) -> bool {
        let count = self.channel.slots.get().map_or(1, |slots| slots.len()) as u64;
        let slot = self.channel.slot(number);
        slot.is_some_and(|slot| slot.completed.load(Ordering::Acquire) > number / count)
    }

    /// Orders what this end's thread launches after a message that is complete.
    pub(super) fn receive(&self, medium: &M, number: u64) {
        self.channel.slot(number).into_iter().for_each(|slot| medium.wait(&self.own, &slot.copied));
    }
}
