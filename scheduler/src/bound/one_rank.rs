//! Minimum time of one machine for jobs with heads and tails.

use std::collections::BinaryHeap;

/// A job of one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Earliest start, in seconds.
    pub(super) head: f64,
    /// Processing time on the machine, in seconds.
    pub(super) seconds: f64,
    /// Seconds that must follow the end of the job, on any machine.
    pub(super) tail: f64,
}

/// Returns the least possible maximum of `end + tail` over all jobs if jobs may be interrupted. The machine always runs the
/// released job with the longest tail (Jackson's preemptive schedule; Carlier, *The one-machine sequencing problem*, European
/// Journal of Operational Research 11, 1982).
pub(super) fn least_end(mut jobs: Vec<Job>) -> f64 {
    jobs.sort_by(|a, b| a.head.total_cmp(&b.head));
    let mut coming = jobs.into_iter().peekable();
    let mut open: BinaryHeap<(Key, Key)> = BinaryHeap::new(); // tail, seconds left
    let (mut now, mut worst) = (0.0_f64, 0.0_f64);
    loop {
        if open.is_empty() {
            let Some(next) = coming.peek() else { return worst };
            now = now.max(next.head);
        }
        while let Some(job) = coming.next_if(|job| job.head <= now) {
            open.push((Key::of(job.tail), Key::of(job.seconds)));
        }
        let Some((tail, left)) = open.pop() else { continue };
        let room = coming.peek().map_or(f64::INFINITY, |next| next.head - now);
        if left.value() <= room {
            now += left.value();
            worst = worst.max(now + tail.value());
        } else {
            now += room;
            open.push((tail, Key::of(left.value() - room)));
        }
    }
}

/// A nonnegative number by its bits, whose order is the order of the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

impl Key {
    fn of(number: f64) -> Key {
        Key(number.max(0.0).to_bits())
    }

    fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}
