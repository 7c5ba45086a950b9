//! Quality of choosing by prediction: the configurations of one job, ranked by predicted and by measured speed.

use super::fit::FAR;
use super::score::Scored;
use super::summary::quantile;
use estimator::HEADROOM;
use std::collections::BTreeMap;

/// Ranking quality over the configurations of one job.
#[derive(Clone, PartialEq, Debug)]
pub struct RankSet {
    /// Name of the job.
    pub name: String,
    /// How many.
    pub configs: usize,
    /// Share of the best throughput that is lost with the best of the three that are predicted fastest.
    pub regret: f64,
    /// Share of the best throughput that is lost with the one predicted fastest of those that keep the headroom of `plan`.
    pub single: f64,
    /// Share of the best throughput that is lost by the recipe: least tp x pp, then least pp, then the largest
    /// micro-batch.
    pub recipe: f64,
    /// Spearman's rank correlation of predicted and measured step time.
    pub spearman: f64,
    /// Spearman's correlation of an ideal predictor. It predicts every run exactly, except runs whose measurement
    /// deviates from the prediction by more than a factor of e^0.35 = 1.42.
    pub reach: f64,
    /// The configuration that is farthest from its place.
    pub farthest: Misplaced,
}

/// A configuration and its places among those of its job, the fastest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misplaced {
    /// The configuration.
    pub parallel: String,
    /// By what was measured, from 1.
    pub measured: usize,
    /// Place by predicted step time, from 1.
    pub predicted: usize,
}

/// Groups runs into jobs with at least three configurations. Runs of one job agree in source, model, devices, batch,
/// sequence length and precision.
pub fn rank_sets(scored: &[Scored<'_>]) -> Vec<RankSet> {
    let mut jobs: BTreeMap<String, Vec<&Scored<'_>>> = BTreeMap::new();
    for row in scored.iter().filter(|row| row.ratio().is_some() && !row.run.apart) {
        let request = &row.run.request;
        let job = format!(
            "{}: {}, {} devices, {} x {} tokens, {}",
            row.run.source,
            row.run.model,
            request.gpus.unwrap_or(1),
            request.global_batch,
            request.seq,
            request.precision
        );
        jobs.entry(job).or_default().push(row);
    }
    jobs.into_iter().filter_map(|(name, rows)| rank_set(name, &rows)).collect()
}

fn rank_set(name: String, rows: &[&Scored<'_>]) -> Option<RankSet> {
    let mut configs: Vec<&str> = rows.iter().map(|row| row.run.request.parallel.as_str()).collect();
    configs.sort_unstable();
    configs.dedup();
    if configs.len() < 3 {
        return None;
    }
    let measured: Vec<f64> = rows.iter().map(|row| row.run.step_time_s).collect();
    let predicted: Vec<f64> = rows.iter().map(|row| row.run.step_time_s * row.ratio().unwrap_or(1.0)).collect();
    let best = measured.iter().copied().fold(f64::INFINITY, f64::min);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| predicted[*a].total_cmp(&predicted[*b]));
    let chosen = order.iter().take(3).map(|row| measured[*row]).fold(f64::INFINITY, f64::min);
    let keeps = |row: &usize| rows[*row].prediction.as_ref().is_ok_and(|it| it.chance_to_fit >= 1.0 - HEADROOM / 100.0);
    let single = order.iter().copied().find(keeps).unwrap_or(order[0]);
    let is_far = |row: usize| (predicted[row] / measured[row]).ln().abs() > FAR;
    let known: Vec<f64> = (0..rows.len()).map(|row| if is_far(row) { predicted[row] } else { measured[row] }).collect();
    let (by_measure, by_model) = (ranks(&measured), ranks(&predicted));
    let off = |row: &usize| (by_measure[*row] - by_model[*row]).abs();
    let farthest = (0..rows.len()).max_by(|a, b| off(a).total_cmp(&off(b)))?;
    let place = |ranks: &[f64]| ranks[farthest] as usize + 1;
    let plain = (0..rows.len()).min_by_key(|row| by_recipe(&rows[*row].run.request.parallel))?;
    Some(RankSet {
        name,
        configs: configs.len(),
        regret: 1.0 - best / chosen,
        single: 1.0 - best / measured[single],
        recipe: 1.0 - best / measured[plain],
        spearman: correlation(&by_model, &by_measure),
        reach: correlation(&ranks(&known), &by_measure),
        farthest: Misplaced {
            parallel: rows[farthest].run.request.parallel.clone(),
            measured: place(&by_measure),
            predicted: place(&by_model),
        },
    })
}

/// Sort key of the recipe; the least wins.
fn by_recipe(parallel: &str) -> (u64, u64, std::cmp::Reverse<u64>) {
    let degree = |key: &str| {
        let value = parallel.split(',').find_map(|item| item.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(1)
    };
    (degree("tp") * degree("pp"), degree("pp"), std::cmp::Reverse(degree("mbs")))
}

/// Returns the rank of each value; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let place = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    values.iter().map(place).collect()
}

/// Pearson's correlation, or 0 if one of the two does not vary.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product =
        |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 { x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum() };
    let scale = (product(a, mean_a, a, mean_a) * product(b, mean_b, b, mean_b)).sqrt();
    if scale > 0.0 { product(a, mean_a, b, mean_b) / scale } else { 0.0 }
}

/// Means over jobs. Where a single configuration is run, one run that others contradict counts whole: its share is the median.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RankTotal {
    /// Mean share of throughput lost by choosing with predictions.
    pub regret: f64,
    /// Median share of throughput lost with a single configuration.
    pub single: f64,
    /// Mean share of throughput lost by choosing with the recipe.
    pub recipe: f64,
    /// Mean of Spearman's correlation.
    pub spearman: f64,
    /// Mean of Spearman's correlation of an ideal predictor.
    pub reach: f64,
}

/// Returns the means over jobs, or zeros if there are none.
pub fn total(sets: &[RankSet]) -> RankTotal {
    let mean = |of: fn(&RankSet) -> f64| sets.iter().map(of).sum::<f64>() / sets.len().max(1) as f64;
    let singles: Vec<f64> = sets.iter().map(|set| set.single).collect();
    RankTotal {
        regret: mean(|set| set.regret),
        single: quantile(&singles, 0.5),
        recipe: mean(|set| set.recipe),
        spearman: mean(|set| set.spearman),
        reach: mean(|set| set.reach),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_equals_are_shared() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
        let up = [1.0, 2.0, 3.0];
        assert!((correlation(&up, &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&up, &[1.0, 1.0, 1.0]), 0.0);
    }

    #[test]
    fn the_recipe_takes_little_parallelism_and_large_micro_batches() {
        assert!(by_recipe("mbs=1,tp=2") < by_recipe("mbs=4,pp=2"));
        assert!(by_recipe("mbs=4,tp=2,zero=1") < by_recipe("mbs=1,tp=2"));
    }
}
