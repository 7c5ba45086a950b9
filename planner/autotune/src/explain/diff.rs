//! Comparison of two predictions: `meshwright.diff/1`.

use super::brief::{brief, values};
use super::compare::{ALIKE, Change, memory, pace, parts, seconds, signed};
use super::difference::tie;
use estimator::{EstimateReport, Predicted, part_name};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use support::table::table;
use support::units::{count, gib, percent, share, time};

/// Version of the schema of a comparison.
const SCHEMA: &str = "meshwright.diff/1";

/// Comparison of two predictions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diff {
    /// `meshwright.diff/1`.
    pub schema: &'static str,
    /// Properties of the job that differ: model, cluster, batch, formats.
    pub job: Vec<Differing>,
    /// Options of the configuration that differ.
    pub parallel: Vec<Differing>,
    /// Time of a token on a device in the second, over that in the first, minus 1.
    pub slower: f64,
    /// `true` if predictions do not tell which is faster.
    pub tie: bool,
    /// The difference in words.
    pub message: String,
    /// Differences of the parts of a step in seconds, largest first. Steps of different batches are not comparable.
    pub seconds: Vec<Compared>,
    /// Differences of the parts of the worst rank's memory in GiB, largest first.
    pub gib: Vec<Compared>,
    /// The first.
    pub a: Side,
    /// The second.
    pub b: Side,
}

/// A property with two values.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Differing {
    /// Its name.
    pub name: String,
    /// The first value.
    pub a: String,
    /// The second value.
    pub b: String,
}

/// A part of a step or of a device's memory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: &'static str,
    /// Its first value.
    pub a: f64,
    /// Its second value.
    pub b: f64,
}

/// A configuration and its prediction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// The configuration without options that have their defaults.
    pub parallel: String,
    /// Number of devices.
    pub devices: u64,
    /// Items that the stack or the devices do not support, and notes on the request.
    pub warnings: Vec<String>,
    /// Batch of a step, in words.
    pub batch: String,
    /// Time and memory.
    pub predicted: Predicted,
}

/// Compares two predictions.
pub fn diff(a: &EstimateReport, b: &EstimateReport) -> Diff {
    let job = jobs(a, b);
    let [one, two] = [&a.predicted, &b.predicted];
    let slower = one.tokens_per_s_per_gpu / two.tokens_per_s_per_gpu - 1.0;
    let is_tie = (1.0 + slower).ln().abs() < tie(one);
    let message = match (is_step(a, b), slower) {
        (true, _) => format!("B is {}", pace(one, two)),
        (false, slower) if slower.abs() < ALIKE => "a token takes as long on a device of B".to_string(),
        (false, slower) => {
            let word = if slower > 0.0 { "longer" } else { "less long" };
            format!("a token takes {} {word} on a device of B", share(slower.abs()))
        }
    };
    let value = |list: &[(&'static str, f64)], name: &str| {
        list.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, value)| *value)
    };
    let listed = |changes: Vec<Change>, of: &dyn Fn(&Predicted) -> Vec<(&'static str, f64)>| {
        let [x, y] = [of(one), of(two)];
        let part =
            |change: Change| Compared { name: change.what, a: value(&x, change.what), b: value(&y, change.what) };
        changes.into_iter().map(part).filter(|part| part.a != 0.0 || part.b != 0.0).collect()
    };
    let times = |predicted: &Predicted| predicted.time_s.by_name().map(|(name, s)| (part_name(name), s)).to_vec();
    let side = |report: &EstimateReport| Side {
        parallel: brief(&report.parallel),
        devices: report.mesh.devices,
        warnings: report.warnings(),
        batch: report.inputs.batch(),
        predicted: report.predicted.clone(),
    };
    Diff {
        schema: SCHEMA,
        job,
        parallel: differing(values(&a.parallel), values(&b.parallel)),
        slower,
        tie: is_tie,
        message,
        seconds: listed(seconds(one, two), &times),
        gib: listed(memory(one, two), &|predicted| parts(predicted.fullest()).to_vec()),
        a: side(a),
        b: side(b),
    }
}

/// True if a step of both is the same work on as many devices.
fn is_step(a: &EstimateReport, b: &EstimateReport) -> bool {
    let work = |report: &EstimateReport| {
        let inputs = &report.inputs;
        (inputs.model.clone(), inputs.seq, inputs.global_batch, report.mesh.devices)
    };
    work(a) == work(b)
}

/// Properties of a request that describe no job: the configuration has a list of its own.
const NO_JOB: [&str; 2] = ["parallel", "gpus"];

/// Properties of the jobs that differ, the number of devices among them.
fn jobs(a: &EstimateReport, b: &EstimateReport) -> Vec<Differing> {
    let fields = |report: &EstimateReport| {
        let mut fields = vec![("devices".to_string(), report.mesh.devices.to_string())];
        if let Ok(Value::Object(inputs)) = serde_json::to_value(&report.inputs) {
            let kept = inputs.into_iter().filter(|(name, _)| !NO_JOB.contains(&name.as_str()));
            fields.extend(kept.map(|(name, value)| match value {
                Value::String(text) => (name, text),
                Value::Null => (name, "default".to_string()),
                value => (name, value.to_string()),
            }));
        }
        fields
    };
    differing(fields(a), fields(b))
}

/// Values of the same names that differ.
fn differing<N: Into<String> + PartialEq>(a: Vec<(N, String)>, b: Vec<(N, String)>) -> Vec<Differing> {
    let pairs = a.into_iter().zip(b).filter(|(a, b)| a.1 != b.1);
    pairs.map(|((name, a), (_, b))| Differing { name: name.into(), a, b }).collect()
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            writeln!(f, "{name}         {}, {} devices", side.parallel, side.devices)?;
        }
        if self.a.batch == self.b.batch {
            writeln!(f, "batch     {}", self.a.batch)?;
        }
        writeln!(f, "verdict   {}", self.message)?;
        if self.tie {
            writeln!(f, "          within the error of predictions: measure both")?;
        }
        let warned = [("A", &self.a), ("B", &self.b)]
            .into_iter()
            .flat_map(|(name, side)| side.warnings.iter().map(move |warning| format!("warning   {name}: {warning}")));
        for line in warned {
            writeln!(f, "{line}")?;
        }
        let options = self.job.iter().chain(&self.parallel);
        let rows: Vec<_> = options.map(|it| [it.name.clone(), it.a.clone(), it.b.clone()]).collect();
        if !rows.is_empty() {
            write!(f, "\n{}", table(["OPTION", "A", "B"], &rows))?;
        }
        write!(f, "\n{}", table(["STEP", "A", "B", "CHANGE"], &self.steps()))?;
        let parts = |parts: &[Compared], unit: fn(f64) -> String, whole: f64| {
            // Parts below a thousandth of the whole are left out.
            let large = parts.iter().filter(|part| part.a.max(part.b) > 1e-3 * whole);
            large
                .map(|part| [part.name.to_string(), unit(part.a), unit(part.b), signed(part.b - part.a, unit)])
                .collect::<Vec<_>>()
        };
        let seconds = parts(&self.seconds, time, self.a.predicted.step_time_s);
        write!(f, "\n{}", table(["PART OF THE STEP", "A", "B", "CHANGE"], &seconds))?;
        let held = parts(&self.gib, gib, self.a.predicted.fullest().device);
        write!(f, "\n{}", table(["MEMORY OF THE WORST RANK", "A", "B", "CHANGE"], &held))
    }
}

impl Diff {
    /// Rows of whole figures: time, rates, memory.
    fn steps(&self) -> Vec<[String; 4]> {
        let [a, b] = [&self.a.predicted, &self.b.predicted];
        let plain = |name: &str, of: &dyn Fn(&Predicted) -> String| [name.to_string(), of(a), of(b), String::new()];
        let grown = |name: &str, of: &dyn Fn(&Predicted) -> f64, unit: fn(f64) -> String| {
            [name.to_string(), unit(of(a)), unit(of(b)), signed(of(b) - of(a), unit)]
        };
        let interval = |it: &Predicted| format!("{} to {}", time(it.interval_s.low), time(it.interval_s.high));
        let percent = |x: f64| percent(x).trim().to_string();
        vec![
            grown("time", &|it| it.step_time_s, time),
            plain("80 % interval", &interval),
            grown("tokens/s/device", &|it| it.tokens_per_s_per_gpu, count),
            plain("MFU", &|it| percent(it.mfu)),
            plain("bubble, average of ranks", &|it| percent(it.bubble)),
            grown("memory", &|it| it.fullest().device, gib),
            plain("fits", &|it| if it.fits { "yes" } else { "no" }.to_string()),
        ]
    }
}
