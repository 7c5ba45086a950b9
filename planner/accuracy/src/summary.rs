//! Summary statistics of the errors of a set of runs.

use super::runs::Run;
use super::score::Scored;

/// The errors of a group of runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Name of the group.
    pub name: String,
    /// Number of predicted runs.
    pub rows: usize,
    /// Number of refused runs.
    pub refused: usize,
    /// Median of |predicted / measured - 1|.
    pub median: f64,
    /// 90th percentile of |predicted / measured - 1|.
    pub p90: f64,
    /// Median of predicted / measured.
    pub bias: f64,
    /// Share of the measurements within the predicted interval.
    pub inside: f64,
}

/// Returns the quantile of values at a share, with linear interpolation between neighbours; 0 of no values.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = share * sorted.len().saturating_sub(1) as f64;
    let (below, rest) = (place.floor(), place.fract());
    let at = |index: f64| sorted.get(index as usize).copied().unwrap_or(0.0);
    if rest == 0.0 { at(below) } else { at(below) * (1.0 - rest) + at(below + 1.0) * rest }
}

/// Values with weights.
pub(super) struct Weighted {
    /// Values, ascending, with the weights up to and with each.
    sums: Vec<(f64, f64)>,
}

impl Weighted {
    /// Values, each with its weight.
    pub(super) fn of(values: impl Iterator<Item = (f64, f64)>) -> Weighted {
        let mut sums: Vec<(f64, f64)> = values.collect();
        sums.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        for (_, weight) in &mut sums {
            sum += *weight;
            *weight = sum;
        }
        Weighted { sums }
    }

    /// The least value with at least a share of the weights up to it; 0 of no values.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let all = self.sums.last().map_or(0.0, |(_, sum)| *sum);
        // Weights of one publisher sum up to 1 but for rounding.
        let at = self.sums.partition_point(|(_, sum)| *sum < share * all * (1.0 - 1e-12));
        self.sums.get(at).map_or(0.0, |(value, _)| *value)
    }
}

/// Summarises the errors in step time of a group.
pub fn summary(name: &str, scored: &[&Scored<'_>]) -> Summary {
    let ratios: Vec<f64> = scored.iter().filter_map(|row| row.ratio()).collect();
    let inside = scored.iter().filter(|row| row.inside() == Some(true)).count();
    of_ratios(name, &ratios, scored.len() - ratios.len(), inside)
}

/// Summarises the errors in memory of the runs of a group that have a memory figure.
fn memory(name: &str, scored: &[&Scored<'_>]) -> Summary {
    let printed: Vec<_> = scored.iter().filter(|row| row.run.memory.is_some()).collect();
    let ratios: Vec<f64> = printed.iter().filter_map(|row| row.memory_ratio()).collect();
    let inside = printed.iter().filter(|row| row.memory_inside() == Some(true)).count();
    of_ratios(name, &ratios, printed.len() - ratios.len(), inside)
}

fn of_ratios(name: &str, ratios: &[f64], refused: usize, inside: usize) -> Summary {
    let errors: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
    Summary {
        name: name.into(),
        rows: ratios.len(),
        refused,
        median: quantile(&errors, 0.5),
        p90: quantile(&errors, 0.9),
        bias: quantile(ratios, 0.5),
        inside: inside as f64 / ratios.len().max(1) as f64,
    }
}

/// Returns the errors in step time by source, in alphabetical order.
pub fn by_source(scored: &[Scored<'_>]) -> Vec<Summary> {
    grouped(scored, |run| &run.source).iter().map(|(name, rows)| summary(name, rows)).collect()
}

/// Returns the errors in step time by stack, in alphabetical order. Runs that are reported apart are left out.
pub fn by_stack(scored: &[Scored<'_>]) -> Vec<Summary> {
    in_stacks(scored).iter().map(|(name, rows)| summary(name, rows)).collect()
}

/// Returns the errors in memory by source, in alphabetical order. Sources without memory figures are left out.
pub fn memory_by_source(scored: &[Scored<'_>]) -> Vec<Summary> {
    memories(&grouped(scored, |run| &run.source))
}

/// Returns the errors in memory by stack, in alphabetical order. Stacks without memory figures are left out, and runs that are
/// reported apart.
pub fn memory_by_stack(scored: &[Scored<'_>]) -> Vec<Summary> {
    memories(&in_stacks(scored))
}

/// Rows of a group, with its name.
pub(super) type RunGroup<'a, 'b> = (&'b str, Vec<&'b Scored<'a>>);

fn memories(groups: &[RunGroup<'_, '_>]) -> Vec<Summary> {
    let rows = groups.iter().map(|(name, rows)| memory(name, rows));
    rows.filter(|summary| summary.rows + summary.refused > 0).collect()
}

/// Runs by stack, in alphabetical order, without those that are reported apart.
pub(super) fn in_stacks<'a, 'b>(scored: &'b [Scored<'a>]) -> Vec<RunGroup<'a, 'b>> {
    let mut groups = grouped(scored, |run| &run.request.stack);
    groups.iter_mut().for_each(|(_, rows)| rows.retain(|row| !row.run.apart));
    groups
}

fn grouped<'a, 'b>(scored: &'b [Scored<'a>], of: fn(&Run) -> &String) -> Vec<RunGroup<'a, 'b>> {
    let mut names: Vec<&str> = scored.iter().map(|row| of(row.run).as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let with_rows = |name: &'b str| (name, scored.iter().filter(|row| of(row.run) == name).collect());
    names.into_iter().map(with_rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&values, share)), [1.0, 2.5, 4.0]);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn weights_move_quantiles() {
        let values = || [(3.0, 1.0), (1.0, 0.25), (2.0, 0.75)].into_iter();
        let of = |share| Weighted::of(values()).quantile(share);
        assert_eq!([0.1, 0.125, 0.2, 0.5, 0.6, 1.0].map(of), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(Weighted::of(std::iter::empty()).quantile(0.5), 0.0);
    }
}
