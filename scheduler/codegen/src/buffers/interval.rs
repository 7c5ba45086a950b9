//! Packing of intervals: each needs bytes for some time, at one offset. Finding the smallest extent is NP-hard (dynamic
//! storage allocation, Garey and Johnson 1979, SR2). First fit over a few orders is within some percent of it.

use ir::arena::ALIGNMENT;

/// So many bytes from one time up to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub(super) size: u64,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Interval {
    fn meets(&self, other: &Interval) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// The next multiple of the alignment.
pub(super) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

/// The extent, and an offset per interval: the best of several orders.
pub(super) fn pack(intervals: &[Interval]) -> (u64, Vec<u64>) {
    let bound = most_at_once(intervals);
    let mut best: Option<(u64, Vec<u64>)> = None;
    let orders: [fn(&Interval) -> u64; 4] = [
        |it| it.size,
        |it| it.size.saturating_mul((it.to - it.from) as u64),
        |it| (it.to - it.from) as u64,
        |it| u64::MAX - it.from as u64,
    ];
    for order in orders {
        let mut sequence: Vec<usize> = (0..intervals.len()).collect();
        sequence.sort_by_key(|&index| std::cmp::Reverse(order(&intervals[index])));
        let packed = first_fit(intervals, &sequence);
        if best.as_ref().is_none_or(|(extent, _)| packed.0 < *extent) {
            best = Some(packed);
        }
        if best.as_ref().is_some_and(|(extent, _)| *extent == bound) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// No packing can be smaller.
pub(super) fn most_at_once(intervals: &[Interval]) -> u64 {
    let begins = intervals.iter().map(|it| it.from);
    let bytes =
        begins.map(|time| intervals.iter().filter(|it| it.from <= time && time < it.to).map(|it| it.size).sum());
    bytes.max().unwrap_or(0)
}

/// Places each in turn at the lowest offset without overlap.
fn first_fit(intervals: &[Interval], sequence: &[usize]) -> (u64, Vec<u64>) {
    let mut offsets = vec![0; intervals.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut extent = 0;
    for &index in sequence {
        let own = &intervals[index];
        let mut offset = 0;
        for &other in placed.iter().filter(|&&other| intervals[other].meets(own)) {
            if offset + own.size <= offsets[other] {
                break;
            }
            offset = offset.max(offsets[other] + intervals[other].size);
        }
        offsets[index] = offset;
        extent = extent.max(offset + own.size);
        let place = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(place, index);
    }
    (extent, offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(size: u64, from: usize, to: usize) -> Interval {
        Interval { size, from, to }
    }

    #[test]
    fn what_is_never_there_at_once_shares_bytes() {
        let intervals = [interval(64, 0, 2), interval(128, 1, 3), interval(64, 2, 4), interval(192, 4, 5)];
        let (extent, offsets) = pack(&intervals);
        assert_eq!((extent, most_at_once(&intervals)), (192, 192));
        for (a, one) in intervals.iter().enumerate() {
            for (b, other) in intervals.iter().enumerate().filter(|(b, other)| *b != a && one.meets(other)) {
                assert!(offsets[a] + one.size <= offsets[b] || offsets[b] + other.size <= offsets[a], "{a} on {b}");
            }
        }
    }

    #[test]
    fn the_best_of_the_orders_is_taken() {
        // By start the big one comes last and finds a gap that is too small.
        let intervals = [interval(64, 0, 2), interval(64, 0, 5), interval(64, 1, 3), interval(192, 3, 5)];
        assert_eq!(pack(&intervals).0, most_at_once(&intervals));
    }
}
