//! How near `estimate` comes on the machine that it runs on: measures the machine, then trains the example under 20 layouts
//! of 8 virtual devices and compares the median step of each with the prediction.
//!
//! `cargo bench --bench calibration` prints the table of docs/benchmarks.md; `-- FILE.toml` takes a cluster that is measured
//! already.

use meshwright::calibrate::cluster;
use meshwright::estimate::{EstimateReport, EstimateRequest, Estimator};
use meshwright::files::write_text;
use meshwright::layout;
use meshwright::train::{Progress, RunHeader, TrainRequest, free_memory, train};
use runtime::measure::measure;
use runtime::metrics::{EvalRecord, StepRecord};
use std::path::{Path, PathBuf};

/// All of eight devices.
const LAYOUTS: [&str; 20] = [
    "dp=8,mbs=2",
    "dp=8,mbs=1",
    "dp=8,mbs=2,zero=1",
    "dp=4,tp=2,mbs=4",
    "dp=4,tp=2,sp=true,mbs=4",
    "dp=4,tp=2,sp=true,mbs=2,zero=1",
    "dp=2,tp=4,mbs=8",
    "dp=2,tp=4,sp=true,mbs=4",
    "dp=4,pp=2,mbs=1",
    "dp=4,pp=2,mbs=2,schedule=gpipe",
    "dp=4,pp=2,mbs=1,zero=1",
    "dp=2,pp=4,mbs=1",
    "dp=2,pp=4,mbs=2,schedule=gpipe",
    "dp=2,pp=4,mbs=1,schedule=zb-h1",
    "dp=2,tp=2,pp=2,mbs=2",
    "dp=2,tp=2,pp=2,mbs=4,sp=true",
    "dp=2,tp=2,pp=2,mbs=2,zero=1,schedule=zb-h1",
    "tp=4,pp=2,mbs=4",
    "tp=4,pp=2,mbs=2,sp=true",
    "tp=2,pp=4,mbs=2",
];

/// Steps of a run; the first few warm up.
const STEPS: u64 = 14;
const WARMUP: usize = 3;

/// Seconds of steps.
#[derive(Default)]
struct Steps(Vec<f64>);

impl Progress for Steps {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, step: &StepRecord) {
        self.0.push(step.step_time_s);
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

fn main() {
    let given = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let path = given.map_or_else(calibrated, PathBuf::from);
    let estimator = Estimator::new();
    println!("| layout | predicted | measured | predicted / measured |");
    println!("|---|---|---|---|");
    let mut errors = Vec::new();
    for text in LAYOUTS {
        let measured = measured(text);
        let report = predicted(&estimator, &path, text);
        let seconds = report.predicted.step_time_s;
        println!("| `{text}` | {:.0} ms | {:.0} ms | {:.2} |", 1e3 * seconds, 1e3 * measured, seconds / measured);
        if std::env::var_os("PARTS").is_some() {
            eprintln!("{:?}", report.predicted.time_s);
        }
        errors.push((seconds / measured - 1.0).abs());
    }
    println!("\nMedian error {:.1} %.", 100.0 * median(errors));
}

/// The file of this machine.
fn calibrated() -> PathBuf {
    let measured = measure(&mut |what| eprintln!("measuring {what}")).expect("this machine can be measured");
    let memory = free_memory().map_or(4 << 30, |bytes| bytes / measured.cores);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("this-machine.toml");
    let text = toml::to_string(&cluster(&measured, memory)).expect("a cluster is TOML");
    write_text(&path, &text).expect("the build's folder can be written");
    path
}

fn predicted(estimator: &Estimator, cluster: &Path, text: &str) -> EstimateReport {
    let defaults = TrainRequest::default();
    let request = EstimateRequest {
        model: defaults.model,
        cluster: cluster.to_string_lossy().into_owned(),
        stack: "meshwright-threads".into(),
        seq: defaults.seq,
        global_batch: defaults.global_batch,
        precision: "f32".into(),
        layout: text.into(),
        ..EstimateRequest::default()
    };
    estimator.estimate(&request).unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Median seconds of a step.
fn measured(text: &str) -> f64 {
    assert_eq!(layout::parse(text).map(|layout| layout.devices()), Ok(8), "{text}");
    let request = TrainRequest {
        mesh: text.into(),
        data: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        valid_fraction: 0.002,
        steps: STEPS,
        eval_every: 0,
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("calibration"),
        ..TrainRequest::default()
    };
    let mut steps = Steps::default();
    train(&request, &mut steps).unwrap_or_else(|why| panic!("{text}: {why}"));
    median(steps.0.split_off(WARMUP))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
