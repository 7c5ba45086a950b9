//! Messages from one rank to another: both ends register their buffer, and the second to arrive copies.

use super::watch::locked;
use crate::arena::Arena;
use crate::backend::Span;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Messages with one tag from one rank to another.
pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
    /// Message `n` goes by place `n` modulo their number.
    places: OnceLock<Box<[Place]>>,
}

#[derive(Default)]
struct Place {
    /// Where the tensor of who came first lies.
    first: Mutex<Option<Span>>,
    /// Messages that went by here.
    gone: AtomicU64,
}

/// One rank's end of a [`Line`].
pub struct LineEnd {
    pub(super) line: Arc<Line>,
    /// Whether the rank sends.
    pub(super) sends: bool,
    next: AtomicU64,
}

impl Line {
    pub(super) fn new(from: usize, to: usize, tag: u32) -> Line {
        Line { from, to, tag, places: OnceLock::new() }
    }
}

impl LineEnd {
    pub(super) fn new(line: Arc<Line>, sends: bool) -> LineEnd {
        LineEnd { line, sends, next: AtomicU64::new(0) }
    }

    /// The rank at the other end.
    pub(super) fn peer(&self) -> usize {
        if self.sends { self.line.to } else { self.line.from }
    }

    /// Says where the next message lies or shall lie; of each end at most `in_flight` are under way. The number of the
    /// message, and whether it is over.
    ///
    /// # Panics
    /// If the ends do not agree on the size.
    pub(super) fn post(&self, span: Span, arenas: [&Arena; 2], in_flight: &AtomicUsize) -> (u64, bool) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let room = || (0..in_flight.load(Ordering::Relaxed).max(1)).map(|_| Place::default()).collect();
        let places = self.line.places.get_or_init(room);
        let place = &places[(number % places.len() as u64) as usize];
        let mut first = locked(&place.first);
        let Some(other) = first.take() else {
            *first = Some(span);
            return (number, false);
        };
        drop(first);
        let (source, target) = if self.sends { (span, other) } else { (other, span) };
        let Line { from, to, tag, .. } = *self.line;
        assert_eq!(source.len, target.len, "rank {from} sends as many elements with tag {tag} as rank {to} awaits");
        // SAFETY: the program changes neither until both waits are over.
        unsafe { arenas[1].floats_mut(target).copy_from_slice(arenas[0].floats(source)) };
        place.gone.fetch_add(1, Ordering::Release);
        (number, true)
    }

    /// Whether a message is over.
    pub(super) fn is_over(&self, number: u64) -> bool {
        let places = self.line.places.get().map_or(&[][..], |places| places);
        let round = places.len().max(1) as u64;
        places.get((number % round) as usize).is_some_and(|place| place.gone.load(Ordering::Acquire) > number / round)
    }
}
