//! Messages from one rank to another: both ends register their buffer, and the second to arrive copies.

use super::parking_lot::locked;
use crate::arena::Arena;
use crate::backend::Span;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Messages with one tag from one rank to another.
pub(super) struct Channel {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
    /// Message `n` uses slot `n` modulo the number of slots.
    slots: OnceLock<Box<[MessageSlot]>>,
}

#[derive(Default)]
struct MessageSlot {
    /// Buffer of the end that arrived first.
    first: Mutex<Option<Span>>,
    /// Messages of this slot that are complete.
    completed: AtomicU64,
}

/// One rank's end of a [`Channel`].
pub struct ChannelEnd {
    pub(super) channel: Arc<Channel>,
    /// True if the rank sends.
    pub(super) sends: bool,
    next: AtomicU64,
}

impl Channel {
    pub(super) fn new(from: usize, to: usize, tag: u32) -> Channel {
        Channel { from, to, tag, slots: OnceLock::new() }
    }
}

impl ChannelEnd {
    pub(super) fn new(channel: Arc<Channel>, sends: bool) -> ChannelEnd {
        ChannelEnd { channel, sends, next: AtomicU64::new(0) }
    }

    /// The rank at the other end.
    pub(super) fn peer(&self) -> usize {
        if self.sends { self.channel.to } else { self.channel.from }
    }

    /// Registers the buffer of the next message; each end has at most `in_flight` messages in flight. Returns the number of
    /// the message and whether it is complete.
    ///
    /// # Panics
    /// If the ends do not agree on size and type.
    pub(super) fn start_message(&self, span: Span, arenas: [&Arena; 2], in_flight: &AtomicUsize) -> (u64, bool) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let room = || (0..in_flight.load(Ordering::Relaxed).max(1)).map(|_| MessageSlot::default()).collect();
        let slots = self.channel.slots.get_or_init(room);
        let slot = &slots[(number % slots.len() as u64) as usize];
        let mut first = locked(&slot.first);
        let Some(other) = first.take() else {
            *first = Some(span);
            return (number, false);
        };
        drop(first);
        let (source, target) = if self.sends { (span, other) } else { (other, span) };
        let Channel { from, to, tag, .. } = *self.channel;
        assert_eq!(
            (source.len, source.dtype),
            (target.len, target.dtype),
            "rank {from} sends the elements with tag {tag} that rank {to} awaits"
        );
        // SAFETY: the program changes neither until both waits are over.
        unsafe { arenas[1].bytes_mut(target).copy_from_slice(arenas[0].bytes(source)) };
        slot.completed.fetch_add(1, Ordering::Release);
        (number, true)
    }

    /// True if a message is complete.
    pub(super) fn is_complete(&self, number: u64) -> bool {
        let slots = self.channel.slots.get().map_or(&[][..], |slots| slots);
        let count = slots.len().max(1) as u64;
        let slot = slots.get((number % count) as usize);
        slot.is_some_and(|slot| slot.completed.load(Ordering::Acquire) > number / count)
    }
}
