//! Predicted chances of memory against the shares of runs.

use super::score::Scored;

/// Number of ranges of chances.
const RANGES: usize = 5;

/// Measurements in a range of predicted chances.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChanceRange {
    /// Lower end of the range.
    pub from: f64,
    /// Upper end of the range.
    pub to: f64,
    /// Number of runs whose measured memory is within the range.
    pub runs: usize,
    /// Share of the runs whose measured memory is below the quantile of `to`.
    pub below: f64,
}

/// Ranges of equal width, and the runs in each by the predicted chance of less memory than was measured. Runs that are reported apart are
/// left out.
pub fn memory_chances(scored: &[Scored<'_>]) -> Vec<ChanceRange> {
    let rows = scored.iter().filter(|row| !row.run.apart);
    let chances: Vec<f64> = rows.filter_map(Scored::memory_chance).collect();
    let below = |end: f64| chances.iter().filter(|chance| **chance < end).count();
    let range = |number: usize| {
        let [from, to] = [number, number + 1].map(|edge| edge as f64 / RANGES as f64);
        let until = if number + 1 == RANGES { chances.len() } else { below(to) };
        ChanceRange { from, to, runs: until - below(from), below: until as f64 / chances.len().max(1) as f64 }
    };
    (0..RANGES).map(range).collect()
}
