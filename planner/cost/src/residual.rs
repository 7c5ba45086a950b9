//! Errors of a stack's predictions on measured runs, and the intervals that follow for other requests.

use crate::quantities::Interval;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Errors of predictions on the runs that a stack was fitted to, and the ranges of these runs. `calibrate` writes both.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Residual {
    /// Errors in step time.
    pub time: Errors,
    /// Errors in memory of a device.
    pub memory: Errors,
    /// Values of each of [`Job::KINDS`] among the runs.
    pub kinds: BTreeMap<String, Vec<String>>,
    /// Least and greatest value of each of [`Job::SIZES`] among the runs.
    pub sizes: BTreeMap<String, Interval>,
}

/// Errors of one figure: natural logarithms of measured over predicted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Errors {
    /// Number of runs.
    pub runs: u32,
    /// Number of sources of the runs.
    pub sources: u32,
    /// 10 % quantile over the runs.
    pub low: f64,
    /// 90 % quantile over the runs.
    pub high: f64,
}

/// Properties of a request that errors depend on.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Kinds in the order of [`Job::KINDS`].
    pub kinds: [String; Job::KINDS.len()],
    /// Sizes in the order of [`Job::SIZES`].
    pub sizes: [f64; Job::SIZES.len()],
}

impl Job {
    /// Names of the kinds: the device, the precision recipe, and `dense` or `experts`.
    pub const KINDS: [&str; 3] = ["device", "precision", "layers"];

    /// Names of the sizes: parameters of the model, devices, tokens of a sequence, sequences of a micro-batch, and degrees.
    pub const SIZES: [&str; 8] = ["parameters", "devices", "sequence", "micro_batch", "tp", "pp", "cp", "ep"];
}

/// Errors where nothing was measured, and what distance adds. Found by leaving out sources and models of all stacks
/// (docs/accuracy.md, Runs left out of the fit).
#[derive(Clone, Copy, Debug)]
struct Prior {
    /// 10 % and 90 % quantile without runs.
    ends: Interval,
    /// Number of runs that the prior counts as.
    runs: f64,
    /// Half of the interval that a doubling outside the range of the runs adds.
    step: f64,
}

/// Width on unseen sources and models within the ranges of the runs, over that on the runs themselves.
const UNSEEN: f64 = 1.1;

/// Number of runs that ends without any count as: the fewest that have two ends.
const ENDS: u32 = 2;

/// Prior of step time.
const TIME: Prior = Prior { ends: Interval { low: -0.15, high: 0.25 }, runs: 2.0, step: 0.05 };

/// Prior of memory.
const MEMORY: Prior = Prior { ends: Interval { low: -0.15, high: 0.15 }, runs: 2.0, step: 0.01 };

/// Doublings that a kind without runs counts as.
const KIND: f64 = 4.0;

impl Residual {
    /// Errors of which only the ends are known, as older files state them.
    fn of_ends(Interval { low, high }: Interval) -> Residual {
        Residual { time: Errors { runs: ENDS, sources: 1, low, high }, ..Residual::default() }
    }

    /// 10 % and 90 % quantile of the logarithm of measured over predicted step time, for a request.
    pub fn time_interval(&self, job: &Job) -> Interval {
        self.interval(self.time, TIME, job)
    }

    /// Interval of the memory of a device, found alike.
    pub fn memory_interval(&self, job: &Job) -> Interval {
        self.interval(self.memory, MEMORY, job)
    }

    /// Limit on the predicted memory of a device, for requests of these kinds.
    pub fn memory_budget(&self, kinds: &[String; Job::KINDS.len()], chance: f64) -> MemoryBudget {
        let ranges = Job::SIZES.map(|name| self.sizes.get(name).copied());
        MemoryBudget { errors: self.memory, ranges, kinds: self.new_kinds(kinds), chance }
    }

    fn interval(&self, errors: Errors, prior: Prior, job: &Job) -> Interval {
        errors.interval(prior, self.distance(job))
    }

    /// Doublings by which a request lies outside the ranges of the runs, summed over the sizes; kinds without runs count too.
    pub fn distance(&self, job: &Job) -> f64 {
        let ranges = Job::SIZES.iter().map(|name| self.sizes.get(*name).copied());
        let sizes: f64 = ranges.zip(&job.sizes).map(|(range, size)| outside(range, *size)).sum();
        sizes + self.new_kinds(&job.kinds)
    }

    /// Doublings that the kinds without runs count as.
    fn new_kinds(&self, kinds: &[String; Job::KINDS.len()]) -> f64 {
        let is_new = |(name, kind): (&&str, &String)| self.kinds.get(*name).is_some_and(|known| !known.contains(kind));
        KIND * Job::KINDS.iter().zip(kinds).filter(|pair| is_new(*pair)).count() as f64
    }
}

/// Doublings by which a size lies outside the range of the runs.
fn outside(range: Option<Interval>, size: f64) -> f64 {
    range.map_or(0.0, |Interval { low, high }| (low / size).max(size / high).max(1.0).log2())
}

impl Errors {
    /// 10 % and 90 % quantile of the logarithm of measured over predicted, this many doublings outside the ranges of the runs.
    fn interval(self, prior: Prior, distance: f64) -> Interval {
        let runs = f64::from(self.runs);
        let far = if self.runs > 0 { prior.step * distance } else { 0.0 };
        // Squares add up, as those of independent errors.
        let half = |own: f64, prior_end: f64| {
            let near = (runs * (UNSEEN * own).powi(2) + prior.runs * prior_end * prior_end) / (runs + prior.runs);
            (near + far * far).sqrt()
        };
        let (low, high) = (self.low.min(0.0), self.high.max(0.0));
        Interval { low: -half(low, prior.ends.low), high: half(high, prior.ends.high) }
    }
}

/// Largest predicted memory of a device with which a configuration keeps a chance to fit. It depends on a configuration only
/// through the sizes of [`Job::SIZES`].
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryBudget {
    /// Errors in memory.
    errors: Errors,
    /// Ranges of the runs, in the order of [`Job::SIZES`].
    ranges: [Option<Interval>; Job::SIZES.len()],
    /// Doublings that the kinds without runs count as.
    kinds: f64,
    /// Chance to fit.
    chance: f64,
}

impl MemoryBudget {
    /// Least chance to fit. From the upper end of the interval on, a budget shrinks with every doubling of a size outside the
    /// ranges of the runs, so that an open size can count as inside.
    pub const LEAST_CHANCE: f64 = 0.9;

    /// The budget as a share of a device's memory. A size that is `None` is open: the share is the largest of all its values.
    pub fn share(&self, sizes: [Option<f64>; Job::SIZES.len()]) -> f64 {
        let known = self.ranges.iter().zip(sizes).filter_map(|(range, size)| Some((*range, size?)));
        let distance = self.kinds + known.map(|(range, size)| outside(range, size)).sum::<f64>();
        (-self.errors.interval(MEMORY, distance).quantile(self.chance)).exp()
    }
}

/// Reads a residual: a table, or the ends alone, `[low, high]`.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Residual, D::Error> {
    let value = toml::Value::deserialize(from)?;
    let residual = match value {
        toml::Value::Array(_) => value.try_into().map(Residual::of_ends),
        _ => value.try_into(),
    };
    residual.map_err(|why| D::Error::custom(why.to_string().trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Stack;

    fn job(parameters: f64, device: &str) -> Job {
        Job {
            kinds: [device, "bf16", "dense"].map(String::from),
            sizes: [parameters, 64.0, 4096.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        }
    }

    /// Errors of this many runs, from 1 to 8 billion parameters on one device.
    fn fitted(runs: u32) -> Residual {
        Residual {
            time: Errors { runs, sources: 1, low: -0.05, high: 0.05 },
            memory: Errors::default(),
            kinds: BTreeMap::from([("device".to_string(), vec!["A".to_string()])]),
            sizes: BTreeMap::from([("parameters".to_string(), Interval { low: 1e9, high: 8e9 })]),
        }
    }

    #[test]
    fn an_interval_widens_with_few_runs_to_that_of_none() {
        let width = |runs: u32| fitted(runs).time_interval(&job(2e9, "A")).width();
        assert!((width(100_000) - 0.1 * UNSEEN).abs() < 1e-4);
        assert!(width(2) > 1.4 * width(100));
        assert_eq!(Residual::default().time_interval(&job(2e9, "A")), TIME.ends);
        assert_eq!(fitted(9).memory_interval(&job(2e9, "A")), MEMORY.ends);
    }

    #[test]
    fn an_interval_widens_with_the_distance_from_the_runs() {
        let residual = fitted(100);
        let distance = |parameters: f64, device: &str| residual.distance(&job(parameters, device));
        assert_eq!([1e9, 8e9, 16e9, 0.25e9].map(|size| distance(size, "A")), [0.0, 0.0, 1.0, 2.0]);
        assert_eq!(distance(8e9, "B"), KIND);
        let width = |parameters: f64| residual.time_interval(&job(parameters, "A")).width();
        assert!(width(8e9) < width(16e9) && width(16e9) < width(512e9));
    }

    /// At the budget the chance to fit is the asked one, and less is known of larger requests.
    #[test]
    fn a_budget_keeps_its_chance() {
        let memory = Errors { runs: 9, sources: 1, low: -0.02, high: 0.05 };
        let residual = Residual { memory, ..fitted(9) };
        for chance in [MemoryBudget::LEAST_CHANCE, 0.95, 0.999] {
            let budget = residual.memory_budget(&job(1.0, "B").kinds, chance);
            let mut last = budget.share([None; 8]);
            for parameters in [4e9, 64e9, 1e12] {
                let job = job(parameters, "B");
                let share = budget.share(job.sizes.map(Some));
                let found = residual.memory_interval(&job).chance_below(-share.ln());
                assert!((found - chance).abs() < 1e-9, "{chance} {found}");
                assert!(share <= last && share < 1.0, "{chance} {parameters}: {share} {last}");
                last = share;
            }
        }
    }

    #[test]
    fn a_file_may_state_the_ends_alone() {
        let text = "name = \"mine\"\nabout = \"ours\"\nfrom = \"nemo\"\nresidual = ";
        let stack = Stack::parse(&format!("{text}[-0.3, 0.4]\n")).unwrap();
        let Interval { low, high } = stack.residual.time_interval(&job(2e9, "A"));
        // Between those of the file and those of no runs.
        assert!(-0.3 < low && low < TIME.ends.low && TIME.ends.high < high && high < 0.4, "{low} {high}");
        let wrong = Stack::parse(&format!("{text}[0.4, -0.3]\n")).unwrap_err().to_string();
        assert!(wrong.contains("`residual.time` is from 0.4 to -0.3"), "{wrong}");
        let unknown = Stack::parse(&format!("{text}{{ tiem = {{ runs = 3 }} }}\n")).unwrap_err().to_string();
        assert!(unknown.contains("tiem"), "{unknown}");
    }
}
