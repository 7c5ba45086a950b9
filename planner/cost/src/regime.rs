//! Regimes: kinds of jobs whose times are predicted less well than others, and by how much their intervals are wider.
//!
//! The intervals of a stack follow from the errors on its own runs ([`Residual`](crate::Residual)), most of which are of dense models in 16
//! bits. Factors of regimes are found over the runs of all stacks, each run with the errors of other models alone.

use crate::quantities::Interval;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Layers that a model's time is mostly spent in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// Every token goes through the same matrices.
    #[default]
    Dense,
    /// Tokens choose experts.
    Experts,
    /// Keys and values are read from latent vectors (DeepSeek-AI 2024), beside experts or not.
    Latent,
}

/// Kind of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Regime {
    /// Layers of the model.
    pub layers: LayerKind,
    /// True if products have operands below 16 bits.
    pub narrow: bool,
}

/// Jobs of some regimes, and the factors on their intervals.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegimeFactors {
    /// Layers of the models.
    pub layers: LayerKind,
    /// True if products have operands below 16 bits; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow: Option<bool>,
    /// Number of runs.
    pub runs: u32,
    /// Number of publishers of the runs.
    pub sources: u32,
    /// Factor on the part of the interval in which jobs are faster than predicted.
    pub low: f64,
    /// Factor on the part in which they are slower.
    pub high: f64,
}

/// The file of factors.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regimes {
    /// Factors of jobs, those of more general jobs first.
    pub regime: Vec<RegimeFactors>,
}

static REGIMES: LazyLock<Regimes> =
    LazyLock::new(|| toml::from_str(include_str!("regimes.toml")).expect("regimes.toml is read by a test"));

impl RegimeFactors {
    /// Jobs without runs, whose factors are 1.
    pub fn new(layers: LayerKind, narrow: Option<bool>) -> RegimeFactors {
        RegimeFactors { layers, narrow, runs: 0, sources: 0, low: 1.0, high: 1.0 }
    }

    /// Returns whether a job is one of these.
    pub fn holds(&self, regime: Regime) -> bool {
        self.layers == regime.layers && self.narrow.is_none_or(|narrow| narrow == regime.narrow)
    }
}

impl Regimes {
    /// The factors of the project's own file.
    pub fn own() -> &'static Regimes {
        &REGIMES
    }

    /// Factors on the two parts of an interval: those of the most special jobs that a regime is one of, 1 without any.
    pub fn factors(&self, regime: Regime) -> Interval {
        let found = self.regime.iter().rev().find(|factors| factors.holds(regime));
        found.map_or(Interval { low: 1.0, high: 1.0 }, |&RegimeFactors { low, high, .. }| Interval { low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_special_factors_count() {
        let factors = |narrow, low| RegimeFactors { low, high: low, ..RegimeFactors::new(LayerKind::Experts, narrow) };
        let regimes = Regimes { regime: vec![factors(None, 2.0), factors(Some(true), 3.0)] };
        let low = |layers, narrow| regimes.factors(Regime { layers, narrow }).low;
        assert_eq!([LayerKind::Dense, LayerKind::Experts].map(|layers| low(layers, false)), [1.0, 2.0]);
        assert_eq!([LayerKind::Latent, LayerKind::Experts].map(|layers| low(layers, true)), [1.0, 3.0]);
        assert_eq!(Regimes::default().factors(Regime::default()), Interval { low: 1.0, high: 1.0 });
    }

    #[test]
    fn the_own_file_is_read() {
        let regimes = Regimes::own();
        assert!(regimes.regime.iter().all(|factors| factors.low > 0.0 && factors.high > 0.0), "{regimes:?}");
    }
}
