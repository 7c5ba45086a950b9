//! The clocks of processes. Each has an offset to that of the first one, which nobody knows. That one thing happened before another, by the
//! clocks of two processes, bounds the difference of their offsets. Rounds in which all wait for all give such bounds before and after a
//! step, and so do its messages and sums. The offsets that are taken satisfy all of them: no receive ends before its send began.

use super::merge::{RankTimeline, Timeline};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// The number of rounds before a step, and of those after it.
pub(super) const ROUNDS: usize = 8;

/// Seconds by which bounds may contradict each other, since numbers are rounded.
const ROUNDING: f64 = 1e-9;

/// The timeline of a process and its rounds: when it entered each, and when all had entered it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct ClockedTimeline {
    pub(super) rounds: Vec<[f64; 2]>,
    pub(super) timeline: Timeline,
}

/// The timelines of processes by the clock of the first one.
pub(super) fn align(mut all: Vec<ClockedTimeline>) -> Vec<Timeline> {
    let mut clocks = Clocks::of_rounds(&all, 0..2 * ROUNDS);
    clocks.add_events(&all);
    let offsets = match clocks.offsets() {
        Some(offsets) => offsets.into_iter().map(|offset| [offset; 2]).collect(),
        // Over a long step clocks drift apart: their offsets change evenly from its beginning to its end.
        None => {
            let [first, last] = [0..ROUNDS, ROUNDS..2 * ROUNDS].map(|rounds| Clocks::of_rounds(&all, rounds).offsets());
            let [first, last] = [first, last].map(|offsets| offsets.unwrap_or_else(|| vec![0.0; all.len()]));
            first.into_iter().zip(last).map(<[f64; 2]>::from).collect::<Vec<_>>()
        }
    };
    for (process, [first, last]) in all.iter_mut().zip(offsets) {
        let seconds = process.rounds.last().map_or(1.0, |[_, end]| end.max(1e-9));
        process.timeline.shift(|at| at + first + (last - first) * (at / seconds).clamp(0.0, 1.0));
    }
    all.into_iter().map(|process| process.timeline).collect()
}

/// Bounds of the differences of offsets: the most by which the offset of `q` exceeds that of `p`, in row `p`.
struct Clocks(Vec<Vec<f64>>);

impl Clocks {
    fn new(processes: usize) -> Clocks {
        let mut bounds = vec![vec![f64::INFINITY; processes]; processes];
        bounds.iter_mut().enumerate().for_each(|(own, row)| row[own] = 0.0);
        Clocks(bounds)
    }

    /// The bounds of some rounds alone.
    fn of_rounds(all: &[ClockedTimeline], rounds: Range<usize>) -> Clocks {
        let mut clocks = Clocks::new(all.len());
        clocks.add_rounds(all, rounds);
        clocks
    }

    /// Notes that something happened in one process before something in another, each by its own clock.
    fn before(&mut self, early: Moment, late: Moment) {
        let bound = &mut self.0[late.process][early.process];
        *bound = bound.min(late.seconds - early.seconds);
    }

    /// Nobody leaves a round before all have entered it.
    fn add_rounds(&mut self, all: &[ClockedTimeline], range: Range<usize>) {
        for round in range {
            let processes = all.iter().enumerate();
            let met: Vec<_> = processes.filter_map(|(process, one)| Some((process, *one.rounds.get(round)?))).collect();
            for &(p, [entered, _]) in &met {
                for &(q, [_, left]) in &met {
                    self.before(Moment { process: p, seconds: entered }, Moment { process: q, seconds: left });
                }
            }
        }
    }

    /// A receive ends after its send began, and a sum of all members after all have begun.
    fn add_events(&mut self, all: &[ClockedTimeline]) {
        let (mut messages, mut sums) = (HashMap::new(), HashMap::new());
        for (process, one) in all.iter().enumerate() {
            for RankTimeline { messages: ends, exchanges, .. } in &one.timeline.ranks {
                ends.iter().for_each(|(key, side)| messages.entry(key).or_insert_with(Vec::new).push((process, side)));
                for (key, side) in exchanges {
                    if one.timeline.sites[side.site as usize].op == "all_reduce" {
                        sums.entry(key).or_insert_with(Vec::new).push((process, side));
                    }
                }
            }
        }
        for sides in sums.values() {
            for (p, early) in sides {
                for (q, late) in sides {
                    let late = Moment { process: *q, seconds: late.times.1 };
                    self.before(Moment { process: *p, seconds: early.times.0 }, late);
                }
            }
        }
        for sides in messages.values() {
            let ends = sides
                .iter()
                .find_map(|&(q, side)| Some((q, side.known?)))
                .zip(sides.iter().find(|(_, side)| side.stream == trace::Stream::Sends));
            if let Some(((q, known), &(p, send))) = ends.filter(|((q, _), (p, _))| q != p) {
                let sent = Moment { process: p, seconds: send.times.0 };
                self.before(sent, Moment { process: q, seconds: known });
            }
        }
    }

    /// Offsets in the middle of the bounds; none if these contradict each other.
    fn offsets(mut self) -> Option<Vec<f64>> {
        let count = self.0.len();
        for via in 0..count {
            for p in 0..count {
                for q in 0..count {
                    self.0[p][q] = self.0[p][q].min(self.0[p][via] + self.0[via][q]);
                }
            }
        }
        let bounds = &self.0;
        // Both the largest and the smallest offsets satisfy all bounds, so their means do.
        let is_sound =
            (0..count).all(|p| bounds[p][p] > -ROUNDING && bounds[0][p].is_finite() && bounds[p][0].is_finite());
        is_sound.then(|| (0..count).map(|p| (bounds[0][p] - bounds[p][0]) / 2.0).collect())
    }
}

/// A time in a process by its clock.
#[derive(Clone, Copy)]
struct Moment {
    process: usize,
    seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pseudo-random number below 1 (Knuth's MMIX generator).
    fn next(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn offsets_are_found_within_the_time_of_a_round_and_no_bound_is_broken() {
        for seed in 0..50 {
            let mut random = seed;
            let count = 2 + (seed % 4) as usize;
            let offsets: Vec<f64> =
                (0..count).map(|p| if p == 0 { 0.0 } else { 100.0 * next(&mut random) - 50.0 }).collect();
            let mut clocks = Clocks::new(count);
            let mut pairs = Vec::new();
            for round in 0..2 * ROUNDS {
                let enter: Vec<f64> = (0..count).map(|_| round as f64 + 1e-4 * next(&mut random)).collect();
                let last = enter.iter().copied().fold(0.0, f64::max);
                let leave: Vec<f64> = (0..count).map(|_| last + 1e-4 * next(&mut random)).collect();
                for p in 0..count {
                    for q in 0..count {
                        let early = Moment { process: p, seconds: enter[p] - offsets[p] };
                        let late = Moment { process: q, seconds: leave[q] - offsets[q] };
                        clocks.before(early, late);
                        pairs.push((early, late));
                    }
                }
            }
            let found = clocks.offsets().unwrap();
            assert!(
                found.iter().zip(&offsets).all(|(found, offset)| (found - offset).abs() < 2e-4),
                "{found:?} {offsets:?}"
            );
            for (early, late) in pairs {
                assert!(early.seconds + found[early.process] <= late.seconds + found[late.process] + ROUNDING);
            }
        }
    }

    #[test]
    fn bounds_that_contradict_each_other_give_no_offsets() {
        let mut clocks = Clocks::new(2);
        clocks.before(Moment { process: 0, seconds: 1.0 }, Moment { process: 1, seconds: 2.0 });
        clocks.before(Moment { process: 1, seconds: 4.0 }, Moment { process: 0, seconds: 2.0 });
        assert_eq!(clocks.offsets(), None);
        assert_eq!(Clocks::new(2).offsets(), None, "nothing is known");
    }
}
