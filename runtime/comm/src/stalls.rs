//! Deadlocks between processes. Each process whose threads all wait for others reports it again and again, with the number of messages
//! that have landed there. The first process finds that all do, and that none of these numbers has changed for a time.

use super::wire::MOST_NOTICE;
use std::time::{Duration, Instant};

/// Knowledge of a process about its own stall, and in the first process about those of all.
pub(super) struct Stalls {
    me: usize,
    /// The time after which a stall of all is a deadlock. Half of it passes before a process reports.
    patience: Duration,
    /// Messages that had landed here when the stall began, and when that was.
    own: Option<(u64, Instant)>,
    looked: Instant,
    reported: Option<Instant>,
    /// The stall of each process, in the first one.
    all: Vec<Option<Stall>>,
}

/// A stall of a process, as it reports it.
struct Stall {
    landed: u64,
    waits: String,
    first: Instant,
    last: Instant,
}

impl Stalls {
    pub(super) fn new(me: usize, processes: usize, patience: Duration) -> Stalls {
        Stalls {
            me,
            patience,
            own: None,
            looked: Instant::now(),
            reported: None,
            all: (0..processes).map(|_| None).collect(),
        }
    }

    /// Notes whether this process is stalled, with the number of messages that have landed. Returns a report, if one is due.
    pub(super) fn look(
        &mut self,
        landed: Option<u64>,
        now: Instant,
        waits: impl FnOnce() -> String,
    ) -> Option<Vec<u8>> {
        // A process without a processor sees nothing land, and may not say that nothing does.
        let has_looked = now.saturating_duration_since(self.looked) < self.patience / 16;
        self.looked = now;
        let Some(landed) = landed.filter(|_| has_looked) else {
            self.own = None;
            return None;
        };
        let (before, since) = *self.own.get_or_insert((landed, now));
        if before != landed {
            self.own = Some((landed, now));
            return None;
        }
        let is_due = self.reported.is_none_or(|reported| now - reported > self.patience / 8);
        if now - since < self.patience / 2 || !is_due {
            return None;
        }
        self.reported = Some(now);
        let waits = waits();
        // A byte is the notice's own.
        let most = waits.len().min(MOST_NOTICE - 9);
        let end = (0..=most).rev().find(|&end| waits.is_char_boundary(end)).unwrap_or(0);
        Some([&landed.to_le_bytes()[..], &waits.as_bytes()[..end]].concat())
    }

    /// Notes the report of a process.
    pub(super) fn hear(&mut self, from: usize, report: &[u8], now: Instant) {
        let (Some((landed, waits)), true) = (report.split_first_chunk(), self.me == 0) else { return };
        let (landed, waits) = (u64::from_le_bytes(*landed), String::from_utf8_lossy(waits).into_owned());
        let before = self.all[from].as_ref();
        let same = before.filter(|before| before.landed == landed && now - before.last < self.patience / 2);
        let first = same.map_or(now, |before| before.first);
        self.all[from] = Some(Stall { landed, waits, first, last: now });
    }

    /// Returns who waits for whom, if all processes have been stalled for long enough.
    pub(super) fn deadlock(&self, now: Instant) -> Option<String> {
        let stalls: Vec<&Stall> = self.all.iter().map(Option::as_ref).collect::<Option<_>>()?;
        let half = self.patience / 2;
        if !stalls.iter().all(|stall| now - stall.first > half && now - stall.last < half) {
            return None;
        }
        let texts = stalls.iter().enumerate().map(|(process, stall)| format!("process {process}: {}", stall.waits));
        Some(texts.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(8);

    #[test]
    fn only_what_moves_nowhere_is_a_deadlock() {
        let began = Instant::now();
        let (mut first, mut second) = (Stalls::new(0, 2, PATIENCE), Stalls::new(1, 2, PATIENCE));
        let mut found = None;
        for tick in 0..400 {
            let now = began + Duration::from_secs_f64(f64::from(tick) / 20.0);
            let own = first.look(Some(3), now, || "rank 0 waits for rank 1".to_string());
            own.into_iter().for_each(|report| first.hear(0, &report, now));
            // The second process gets a message late, and is stalled from then on.
            let landed = if tick < 100 { 7 } else { 8 };
            let other = second.look(Some(landed), now, || "rank 1 waits for rank 0".to_string());
            other.into_iter().for_each(|report| first.hear(1, &report, now));
            if let Some(waits) = first.deadlock(now) {
                found.get_or_insert((tick, waits));
            }
        }
        let (tick, waits) = found.unwrap();
        assert!((13 * 20..14 * 20).contains(&tick), "{tick}");
        assert_eq!(waits, "process 0: rank 0 waits for rank 1; process 1: rank 1 waits for rank 0");
    }

    #[test]
    fn a_process_that_works_is_no_part_of_a_deadlock() {
        let began = Instant::now();
        let mut first = Stalls::new(0, 2, PATIENCE);
        for tick in 0..400 {
            let now = began + Duration::from_secs_f64(f64::from(tick) / 20.0);
            let own = first.look(Some(3), now, || "x".repeat(2 * MOST_NOTICE));
            own.into_iter().for_each(|report| {
                assert!(report.len() < MOST_NOTICE);
                first.hear(0, &report, now);
            });
            // The other one has reported once, and worked on.
            if tick == 0 {
                first.hear(1, &7u64.to_le_bytes(), now);
            }
            assert_eq!(first.deadlock(now), None);
        }
    }
}
