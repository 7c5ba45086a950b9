//! Errors of a stack's predictions on measured runs, and the intervals that follow for other requests.

use crate::chance::Percentiles;
use crate::quantities::Interval;
use crate::regime::{Regime, Regimes};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::array;

/// Errors of predictions on the runs that a stack was fitted to, and what these runs were. `calibrate` writes both.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Residual {
    /// Errors in step time.
    pub time: Errors,
    /// Errors in memory of a device.
    pub memory: Errors,
    /// Properties of the runs.
    pub measured: Vec<Measured>,
}

/// Properties of measured runs of the same kinds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Kinds in the order of [`Job::KINDS`].
    pub kinds: [String; Job::KINDS.len()],
    /// Sizes of each run, in the order of [`Job::SIZES`]; equal ones once.
    pub sizes: Vec<[f64; Job::SIZES.len()]>,
}

/// Errors of one figure: natural logarithms of measured over predicted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Errors {
    /// Number of runs.
    pub runs: u32,
    /// Number of publishers of the runs; 0 if these are the user's own.
    pub sources: u32,
    /// 10 % quantile over the runs.
    pub low: f64,
    /// Median over the runs; without one, predictions count as right in the middle.
    pub middle: f64,
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
    /// Kind of the job over all stacks.
    pub regime: Regime,
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
    /// Half of the interval that another source adds to runs of one source. Publishers differ in versions of the software, in clocks of the
    /// devices and in what they count as a step.
    source: f64,
}

/// How far a request lies from the runs.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// Doublings outside the ranges of the runs.
    outside: f64,
    /// Doublings from the nearest run, 1 at most: 0 if the request was measured itself.
    nearest: f64,
}

/// Width a doubling or more from all runs, within their ranges, over that on the runs themselves.
const UNSEEN: f64 = 1.1;

/// Number of runs that ends without any count as: the fewest that have two ends.
const ENDS: u32 = 2;

/// Prior of step time.
const TIME: Prior = Prior { ends: Interval { low: -0.15, high: 0.25 }, runs: 0.5, step: 0.02, source: 0.09 };

/// Prior of memory, which follows from shapes: sources do not differ.
const MEMORY: Prior = Prior { ends: Interval { low: -0.15, high: 0.15 }, runs: 2.0, step: 0.01, source: 0.0 };

/// Doublings that a kind without runs counts as.
const KIND: f64 = 4.0;

impl Residual {
    /// Errors of which only the ends are known, as older files state them.
    fn of_ends(Interval { low, high }: Interval) -> Residual {
        Residual { time: Errors { runs: ENDS, low, high, ..Errors::default() }, ..Residual::default() }
    }

    /// 10 % and 90 % quantile of the logarithm of measured over predicted step time, for a request. What was not measured itself has the
    /// factors of its regime.
    pub fn time_interval(&self, job: &Job) -> Interval {
        let Interval { low, high } = self.own_time_interval(job);
        let nearest = self.nearest(job);
        let factors = Regimes::own().factors(job.regime).map(|factor| 1.0 + (factor - 1.0) * nearest);
        Interval { low: low * factors.low, high: high * factors.high }
    }

    /// The interval of a request by the errors of the stack alone, without the factors of its regime.
    pub fn own_time_interval(&self, job: &Job) -> Interval {
        self.time.interval(TIME, Distance { outside: self.distance(job), nearest: self.nearest(job) })
    }

    /// Distribution of the logarithm of measured over predicted memory of a device. A search for configurations does not know all sizes,
    /// and counts each as unmeasured.
    pub fn memory_errors(&self, job: &Job) -> Percentiles {
        self.memory.percentiles(MEMORY, self.distance(job))
    }

    /// Limit on the predicted memory of a device, for requests of these kinds.
    pub fn memory_budget(&self, kinds: &[String; Job::KINDS.len()], chance: f64) -> MemoryBudget {
        let ranges = array::from_fn(|size| self.range(size));
        MemoryBudget { errors: self.memory, ranges, kinds: self.new_kinds(kinds), chance }
    }

    /// Doublings by which a request lies outside the ranges of the runs, summed over the sizes; kinds without runs count too.
    pub fn distance(&self, job: &Job) -> f64 {
        let sizes: f64 = job.sizes.iter().enumerate().map(|(at, size)| outside(self.range(at), *size)).sum();
        sizes + self.new_kinds(&job.kinds)
    }

    /// Least and greatest value of one of [`Job::SIZES`] among the runs.
    fn range(&self, size: usize) -> Option<Interval> {
        let values = self.measured.iter().flat_map(|group| &group.sizes).map(|sizes| sizes[size]);
        Some(Interval { low: values.clone().reduce(f64::min)?, high: values.reduce(f64::max)? })
    }

    /// Doublings from the nearest run of the same kinds, summed over the sizes, and 1 at most.
    fn nearest(&self, job: &Job) -> f64 {
        let alike = self.measured.iter().filter(|group| group.kinds == job.kinds).flat_map(|group| &group.sizes);
        let doublings =
            alike.map(|run| run.iter().zip(&job.sizes).map(|(run, size)| (size / run).log2().abs()).sum::<f64>());
        doublings.fold(1.0, f64::min)
    }

    /// Doublings that the kinds without runs count as.
    fn new_kinds(&self, kinds: &[String; Job::KINDS.len()]) -> f64 {
        if self.measured.is_empty() {
            return 0.0;
        }
        let new = (0..kinds.len()).filter(|&at| self.measured.iter().all(|group| group.kinds[at] != kinds[at]));
        KIND * new.count() as f64
    }
}

/// Doublings by which a size lies outside the range of the runs.
fn outside(range: Option<Interval>, size: f64) -> f64 {
    range.map_or(0.0, |Interval { low, high }| (low / size).max(size / high).max(1.0).log2())
}

impl Errors {
    /// Distribution of the logarithm of measured over predicted, for a request that was not measured.
    fn percentiles(self, prior: Prior, outside: f64) -> Percentiles {
        let runs = f64::from(self.runs);
        let own = Errors { low: self.low - self.middle, high: self.high - self.middle, ..self };
        let Interval { low, high } = own.interval(prior, Distance { outside, nearest: 1.0 });
        let middle = self.middle * runs / (runs + prior.runs);
        Percentiles { low: middle + low, middle, high: middle + high }
    }

    /// 10 % and 90 % quantile of the logarithm of measured over predicted, at a distance from the runs.
    fn interval(self, prior: Prior, Distance { outside, nearest }: Distance) -> Interval {
        let runs = f64::from(self.runs);
        let far = if self.runs > 0 { prior.step * outside } else { 0.0 };
        let unseen = 1.0 + (UNSEEN - 1.0) * nearest;
        let other_source =
            if self.sources > 0 { nearest * prior.source.powi(2) / f64::from(self.sources) } else { 0.0 };
        let ends = [(self.low.min(0.0), prior.ends.low), (self.high.max(0.0), prior.ends.high)];
        let [low, high] = ends.map(|(own, prior_end)| {
            // Squares add up, as those of independent errors.
            let near = (runs * (unseen * own).powi(2) + prior.runs * prior_end * prior_end) / (runs + prior.runs);
            (near + far * far + other_source).sqrt()
        });
        Interval { low: -low, high }
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

/// Doublings by which a size lies outside the range of the runs at most: sizes are whole numbers of 64 bits.
const FARTHEST: f64 = 64.0;

impl MemoryBudget {
    /// The budget as a share of a device's memory. A size that is `None` is open: the share is the largest of all its values.
    ///
    /// With every doubling outside the ranges of the runs, quantiles go away from the median. From a chance of a half on the largest
    /// share is therefore that of a size inside, below that the one of the farthest size.
    pub fn share(&self, sizes: [Option<f64>; Job::SIZES.len()]) -> f64 {
        let open = if self.chance < 0.5 { FARTHEST } else { 0.0 };
        let doublings = self.ranges.iter().zip(sizes).map(|(range, size)| match (range, size) {
            (None, _) => 0.0,
            (range, Some(size)) => outside(*range, size),
            (_, None) => open,
        });
        let outside = self.kinds + doublings.sum::<f64>();
        (-self.errors.percentiles(MEMORY, outside).quantile(self.chance)).exp()
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
            regime: Regime::default(),
        }
    }

    /// Errors of this many runs of the user, with 1 or 8 billion parameters on one device.
    fn fitted(runs: u32) -> Residual {
        let Job { kinds, .. } = job(1.0, "A");
        let sizes = vec![job(1e9, "A").sizes, job(8e9, "A").sizes];
        Residual {
            time: Errors { runs, low: -0.05, high: 0.05, ..Errors::default() },
            memory: Errors::default(),
            measured: vec![Measured { kinds, sizes }],
        }
    }

    #[test]
    fn an_interval_widens_with_few_runs_to_that_of_none() {
        let [few, more, many] = [2, 100, 100_000].map(|runs| fitted(runs).own_time_interval(&job(2e9, "A")).width());
        assert!((many - 0.1 * UNSEEN).abs() < 1e-4);
        assert!(few > 1.4 * more);
        assert_eq!(Residual::default().own_time_interval(&job(2e9, "A")), TIME.ends);
        assert_eq!(fitted(9).memory_errors(&job(2e9, "A")).interval(), MEMORY.ends);
    }

    #[test]
    fn an_interval_widens_with_the_distance_from_the_runs() {
        let residual = fitted(100);
        let distances = [1e9, 8e9, 16e9, 0.25e9].map(|parameters| residual.distance(&job(parameters, "A")));
        assert_eq!(distances, [0.0, 0.0, 1.0, 2.0]);
        assert_eq!(residual.distance(&job(8e9, "B")), KIND);
        let widths = [8e9, 16e9, 512e9].map(|parameters| residual.own_time_interval(&job(parameters, "A")).width());
        assert!(widths[0] < widths[1] && widths[1] < widths[2], "{widths:?}");
    }

    /// Half the width of the interval of a request after many runs of some sources.
    fn half_width(sources: u32, parameters: f64) -> f64 {
        let time = Errors { sources, ..fitted(100_000).time };
        let residual = Residual { time, ..fitted(100_000) };
        residual.own_time_interval(&job(parameters, "A")).width() / 2.0
    }

    /// A request that was measured has the errors of the runs. From half a doubling away to a whole one it widens to that of another
    /// source, and less so if there are several sources already.
    #[test]
    fn an_interval_widens_between_runs_and_with_few_sources() {
        let [there, near, far] = [1e9, 1.4e9, 2e9].map(|parameters| half_width(1, parameters));
        assert!((there - 0.05).abs() < 1e-4 && there < near && near < far, "{there} {near} {far}");
        let [one, four] = [1.0f64, 4.0].map(|sources| (0.05 * UNSEEN).hypot(TIME.source / sources.sqrt()));
        for (sources, wanted) in [(1, one), (4, four), (0, 0.05 * UNSEEN)] {
            let width = half_width(sources, 2e9);
            assert!((width - wanted).abs() < 1e-4, "{sources}: {width} {wanted}");
        }
    }

    /// At the budget the chance to fit is the asked one, and no budget of known sizes is above that of open ones.
    #[test]
    fn a_budget_keeps_its_chance() {
        let memory = Errors { runs: 9, sources: 1, low: -0.02, middle: 0.01, high: 0.05 };
        let residual = Residual { memory, ..fitted(9) };
        for chance in [0.001, 0.1, 0.4, 0.5, 0.8, 0.9, 0.95, 0.999] {
            let budget = residual.memory_budget(&job(1.0, "B").kinds, chance);
            let most = budget.share([None; 8]);
            for parameters in [4e9, 64e9, 1e12] {
                let job = job(parameters, "B");
                let share = budget.share(job.sizes.map(Some));
                let found = residual.memory_errors(&job).chance_below(-share.ln());
                assert!((found - chance).abs() < 1e-9, "{chance} {found}");
                assert!(share <= most, "{chance} {parameters}: {share} {most}");
                let some: [_; 8] = array::from_fn(|at| (at % 2 == 0).then_some(job.sizes[at]));
                assert!((share..=most).contains(&budget.share(some)), "{chance} {parameters}");
            }
        }
    }

    /// Runs that need more than predicted move the chances of others by as much, if there are many.
    #[test]
    fn a_budget_follows_the_median_of_the_runs() {
        let [none, few, many] = [0, 2, 100_000].map(|runs| {
            let memory = Errors { runs, sources: 1, low: 0.05, middle: 0.1, high: 0.15 };
            let residual = Residual { memory, ..fitted(9) };
            -residual.memory_budget(&job(1.0, "A").kinds, 0.5).share([None; 8]).ln()
        });
        assert!((many - 0.1).abs() < 1e-5 && few < 0.051 && none == 0.0, "{many} {few}");
    }

    #[test]
    fn a_file_may_state_the_ends_alone() {
        let text = "name = \"mine\"\nabout = \"ours\"\nfrom = \"nemo\"\nresidual = ";
        let stack = Stack::parse(&format!("{text}[-0.3, 0.4]\n")).unwrap();
        let Interval { low, high } = stack.residual.own_time_interval(&job(2e9, "A"));
        // The ends count as those of two runs, next to the prior.
        let half =
            |own: f64, end: f64| ((2.0 * (UNSEEN * own).powi(2) + TIME.runs * end * end) / (2.0 + TIME.runs)).sqrt();
        assert!((low + half(0.3, TIME.ends.low)).abs() < 1e-9 && low < TIME.ends.low, "{low}");
        assert!((high - half(0.4, TIME.ends.high)).abs() < 1e-9 && TIME.ends.high < high, "{high}");
        let wrong = Stack::parse(&format!("{text}[0.4, -0.3]\n")).unwrap_err().to_string();
        assert!(wrong.contains("`residual.time` is from 0.4 to -0.3"), "{wrong}");
        let unknown = Stack::parse(&format!("{text}{{ tiem = {{ runs = 3 }} }}\n")).unwrap_err().to_string();
        assert!(unknown.contains("tiem"), "{unknown}");
    }
}
