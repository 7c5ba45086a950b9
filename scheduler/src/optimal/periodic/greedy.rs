//! Patterns by modulo scheduling: one stream after another, each class at the earliest position that leaves space for the
//! others (Rau 1994, "Iterative modulo scheduling", without the iterations). In a chain with one micro-batch per period
//! every lag is then minimal for that period, since a rank's lag depends only on those below it.

use super::pattern::{Pattern, ROUNDING};
use super::shape::Shape;

/// Number of bisection steps over periods.
const HALVINGS: usize = 24;

/// Returns the pattern of the shortest period found that fits the memory limits.
pub(super) fn shortest(shape: &Shape) -> Option<Pattern> {
    let least = shape.load();
    if let Some(pattern) = fitting(shape, least) {
        return Some(pattern);
    }
    let mut short = least;
    let mut longer = (1..=2 * shape.streams()).map(|times| least + shape.round_trip() * times as f64);
    let mut best = longer.find_map(|period| fitting(shape, period))?;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(short, best.period);
        match fitting(shape, middle) {
            Some(pattern) => best = pattern,
            None => short = middle,
        }
    }
    Some(best)
}

/// Builds a pattern with the given period. Returns `None` if it exceeds a memory limit.
fn fitting(shape: &Shape, period: f64) -> Option<Pattern> {
    place(shape, period).filter(|pattern| pattern.fits(shape))
}

/// Builds a pattern with the given period, without regard to memory.
fn place(shape: &Shape, period: f64) -> Option<Pattern> {
    let mut ranks: Vec<Taken> = (0..shape.ranks).map(|rank| Taken::new(shape, rank, period)).collect();
    let mut start = vec![0.0; shape.classes.len()];
    for stream in 0..shape.streams() {
        let first = stream * shape.per_stream;
        let mut ready = 0.0;
        for (class, of) in shape.classes.iter().enumerate().skip(first).take(shape.path) {
            start[class] = ranks[of.rank].earliest(ready + of.hop, of.seconds)?;
            ready = start[class] + of.seconds;
        }
    }
    for stream in 0..shape.streams() {
        let first = stream * shape.per_stream;
        for class in first + shape.path..first + shape.per_stream {
            let (of, backward) = (&shape.classes[class], class - shape.stages);
            let ready = start[backward] + shape.classes[backward].seconds;
            start[class] = ranks[of.rank].earliest(ready, of.seconds)?;
        }
    }
    Some(Pattern { period, start })
}

/// Use of a rank's period by the classes placed so far.
struct Taken {
    period: f64,
    /// Free intervals of the period as start and length, once a class is placed. Starts are not reduced modulo the period.
    gaps: Option<Vec<(f64, f64)>>,
    /// Seconds of the classes that are not placed yet, longest first.
    left: Vec<f64>,
}

impl Taken {
    fn new(shape: &Shape, rank: usize, period: f64) -> Taken {
        let mut left: Vec<f64> = shape.of_rank[rank].iter().map(|&class| shape.classes[class].seconds).collect();
        left.sort_by(|a, b| b.total_cmp(a));
        Taken { period, gaps: None, left }
    }

    /// Places a class at its earliest start from `ready` on that leaves space for all classes not placed yet.
    fn earliest(&mut self, ready: f64, seconds: f64) -> Option<f64> {
        let at = self.left.iter().position(|&other| other == seconds)?;
        self.left.remove(at);
        let Some(gaps) = &self.gaps else {
            self.gaps = Some(vec![(ready + seconds, self.period - seconds)]);
            return Some(ready);
        };
        let (start, gaps) = self.starts(gaps, ready, seconds).into_iter().find_map(|(start, gap, place)| {
            let cut = self.cut(gaps, gap, place, seconds);
            let mut lengths: Vec<f64> = cut.iter().map(|gap| gap.1).collect();
            packs(&self.left, &mut lengths, ROUNDING * self.period).then_some((start, cut))
        })?;
        self.gaps = Some(gaps);
        Some(start)
    }

    /// Returns the candidate starts of a class, earliest first: at `ready`, or at a distance from either end of a gap that some
    /// remaining classes fill exactly. Each start comes with its gap and the seconds of the gap before it.
    fn starts(&self, gaps: &[(f64, f64)], ready: f64, seconds: f64) -> Vec<(f64, usize, f64)> {
        let rounding = ROUNDING * self.period;
        let sums = sums(&self.left);
        let mut starts = Vec::new();
        for (gap, &(from, length)) in gaps.iter().enumerate() {
            let room = length - seconds;
            let beside = sums.iter().flat_map(|&sum| [sum, room - sum]);
            for place in beside.chain([(ready - from).rem_euclid(self.period)]) {
                if (-rounding..=room + rounding).contains(&place) {
                    let wait = (from + place - ready + rounding).rem_euclid(self.period) - rounding;
                    starts.push((ready + wait.max(0.0), gap, place.clamp(0.0, room.max(0.0))));
                }
            }
        }
        starts.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        starts
    }

    /// Returns the gaps after a class takes part of one of them.
    fn cut(&self, gaps: &[(f64, f64)], gap: usize, place: f64, seconds: f64) -> Vec<(f64, f64)> {
        let (from, length) = gaps[gap];
        let mut gaps = gaps.to_vec();
        gaps[gap].1 = place;
        gaps.push((from + place + seconds, length - place - seconds));
        gaps.retain(|&(_, length)| length > ROUNDING * self.period);
        gaps
    }
}

/// Returns the distinct sums of all subsets of the first eight lengths, the longest.
fn sums(seconds: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for &more in seconds.iter().take(8) {
        let longer: Vec<f64> = sums.iter().map(|sum| sum + more).collect();
        sums.extend(longer);
        sums.sort_by(f64::total_cmp);
        sums.dedup_by(|a, b| (*a - *b).abs() <= ROUNDING * a.abs());
    }
    sums
}

/// Returns whether all pieces, longest first, fit into the gaps. Gaps of equal length are tried once.
fn packs(pieces: &[f64], gaps: &mut Vec<f64>, rounding: f64) -> bool {
    let Some((&piece, rest)) = pieces.split_first() else { return true };
    if pieces.iter().sum::<f64>() > gaps.iter().sum::<f64>() + rounding {
        return false;
    }
    for gap in 0..gaps.len() {
        let tried = gaps[..gap].iter().any(|other| (other - gaps[gap]).abs() <= rounding);
        if tried || gaps[gap] < piece - rounding {
            continue;
        }
        gaps[gap] -= piece;
        if packs(rest, gaps, rounding) {
            return true;
        }
        gaps[gap] += piece;
    }
    false
}
