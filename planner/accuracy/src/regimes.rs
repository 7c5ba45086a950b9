//! Factors on the intervals of regimes: how much farther runs lie from predictions than those of dense models do.
//!
//! A run's score is its error over the half of its interval on that side, where the interval has the errors of the stack's runs of other
//! models. A regime's own factor is the 10 % or 90 % quantile of its scores over that of all runs of dense models. A publisher's runs weigh
//! as much as any other's. Few publishers move a factor little from that of more general jobs, which is the least that it can be. Latent
//! layers are beside experts in most models, and have no less than their factors.

use super::residual::residual_of;
use super::score::Scored;
use super::summary::{Weighted, in_stacks};
use compiler::error::Error;
use cost::{Interval, LayerKind, Regime, RegimeFactors, Regimes, Residual};
use std::collections::{BTreeMap, BTreeSet};

/// First line of the file of factors.
const STATED: &str = "# Factors on intervals of step time, over the runs of docs/accuracy.md; `BLESS=1 cargo test --test planning accuracy` writes them.";

/// Publishers as which the factors of more general jobs count: as many as publish runs of a kind. Scores are of stacks that were fitted to
/// the runs, and say less of a regime than runs that were left out of a fit.
const GENERAL: f64 = 6.0;

/// Least number of runs of a regime.
const LEAST: usize = 10;

/// A run of a regime.
struct Row<'a> {
    source: &'a str,
    /// Negative if it was faster than predicted.
    score: f64,
    regime: Regime,
}

/// Factors on the intervals of all regimes that enough runs are of, more general ones first.
pub fn regimes(scored: &[Scored<'_>]) -> Regimes {
    let rows = scores(scored);
    let dense = rows.iter().filter(|row| row.regime.layers == LayerKind::Dense);
    let mut found = Found { regimes: Regimes::default(), reference: Quantiles::of(&dense.collect::<Vec<_>>()) };
    let layers = [LayerKind::Dense, LayerKind::Experts, LayerKind::Latent];
    for kind in layers {
        let general = if kind == LayerKind::Latent { LayerKind::Experts } else { LayerKind::Dense };
        found.add(RegimeFactors::new(kind, None), Regime { layers: general, narrow: false }, &rows);
    }
    for (kind, narrow) in layers.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        found.add(RegimeFactors::new(kind, Some(narrow)), Regime { layers: kind, narrow }, &rows);
    }
    found.regimes
}

/// Quantiles of scores, of the runs that were faster than predicted and of those that were slower.
struct Quantiles {
    sources: usize,
    low: f64,
    high: f64,
}

impl Quantiles {
    fn of(rows: &[&Row<'_>]) -> Quantiles {
        let mut sources: BTreeMap<&str, f64> = BTreeMap::new();
        rows.iter().for_each(|row| *sources.entry(row.source).or_default() += 1.0);
        let weighted = Weighted::of(rows.iter().map(|row| (row.score, 1.0 / sources[row.source])));
        Quantiles { sources: sources.len(), low: -weighted.quantile(0.1), high: weighted.quantile(0.9) }
    }

    /// The factor of these publishers' jobs: their own one beside that of more general jobs.
    fn factor(&self, own: f64, general: f64) -> f64 {
        let (publishers, own) = (self.sources as f64, own.max(f64::MIN_POSITIVE).ln());
        let shrunk = ((publishers * own + GENERAL * general.ln()) / (publishers + GENERAL)).exp();
        (shrunk.max(general) * 100.0).round() / 100.0
    }
}

/// Factors found so far.
struct Found {
    regimes: Regimes,
    /// Quantiles of dense models.
    reference: Quantiles,
}

impl Found {
    /// Adds the factors of some jobs beside those of a more general regime, if there are enough runs.
    fn add(&mut self, jobs: RegimeFactors, general: Regime, rows: &[Row<'_>]) {
        let own: Vec<&Row<'_>> = rows.iter().filter(|row| jobs.holds(row.regime)).collect();
        if own.len() < LEAST {
            return;
        }
        let (general, quantiles) = (self.regimes.factors(general), Quantiles::of(&own));
        self.regimes.regime.push(RegimeFactors {
            runs: own.len() as u32,
            sources: quantiles.sources as u32,
            low: quantiles.factor(quantiles.low / self.reference.low, general.low),
            high: quantiles.factor(quantiles.high / self.reference.high, general.high),
            ..jobs
        });
    }
}

/// Text of the file of factors.
///
/// # Errors
/// The factors cannot be written, which is an internal error.
pub fn regimes_stated(regimes: &Regimes) -> Result<String, Error> {
    let text = toml::to_string(regimes).map_err(|why| Error::fault("regimes", why))?;
    Ok(format!("{STATED}\n{text}"))
}

/// Scores of all runs that are not reported apart.
fn scores<'a>(scored: &'a [Scored<'_>]) -> Vec<Row<'a>> {
    let mut rows = Vec::with_capacity(scored.len());
    for (_, own) in in_stacks(scored) {
        let models: BTreeSet<&str> = own.iter().map(|row| row.run.model.as_str()).collect();
        for model in models {
            let (test, rest): (Vec<&Scored<'_>>, Vec<&Scored<'_>>) = own.iter().partition(|row| row.run.model == model);
            let errors = residual_of(&rest);
            rows.extend(test.into_iter().filter_map(|row| of_row(row, &errors)));
        }
    }
    rows
}

fn of_row<'a>(row: &'a Scored<'_>, errors: &Residual) -> Option<Row<'a>> {
    let job = &row.prediction.as_ref().ok()?.job;
    let Interval { low, high } = errors.own_time_interval(job);
    let error = -row.ratio()?.ln();
    Some(Row { source: &row.run.source, score: error / if error < 0.0 { -low } else { high }, regime: job.regime })
}
