//! Minimum time of one machine for jobs with heads and tails.

use std::collections::BinaryHeap;

/// Something that one machine has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// It starts no earlier.
    pub(super) head: f64,
    /// What it takes of the machine.
    pub(super) seconds: f64,
    /// What must follow its end, on whatever machine.
    pub(super) tail: f64,
}

/// The least `end + tail` of the worst job if jobs may be interrupted: of those whose head is over, the machine always
/// does one of the longest tail (Jackson's preemptive schedule; Carlier, *The one-machine sequencing problem*, European
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

/// A number of 0 or more, by its bits: they are in the order of the numbers.
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
