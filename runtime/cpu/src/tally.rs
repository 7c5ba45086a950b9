//! Counts of the experts' routing choices, updated while a program runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Choices of experts, and those of them whose expert was full: such a choice is dropped.
#[derive(Default, Debug)]
pub(super) struct Tally {
    chosen: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    /// Notes how many chose each expert of each group, the dropped ones too, where each takes at most `capacity`.
    pub(super) fn note(&self, counts: &[i32], capacity: usize) {
        let [mut chosen, mut dropped] = [0, 0];
        for count in counts.iter().map(|&count| count as u64) {
            chosen += count;
            dropped += count.saturating_sub(capacity as u64);
        }
        self.chosen.fetch_add(chosen, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// The numbers of chosen and dropped tokens since the last call.
    pub(super) fn take(&self) -> [u64; 2] {
        [&self.chosen, &self.dropped].map(|count| count.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_expert_does_not_take_is_dropped() {
        let tally = Tally::default();
        tally.note(&[3, 0, 5, 2], 2);
        tally.note(&[1, 4], 3);
        assert_eq!(tally.take(), [15, 5]);
        assert_eq!(tally.take(), [0, 0]);
    }
}
