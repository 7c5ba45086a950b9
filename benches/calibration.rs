//! How near `estimate` comes on the machine that it runs on: measures the machine, then trains examples under 30 configurations of
//! 8 virtual devices and compares the median step of each with the prediction.
//!
//! `cargo bench --bench calibration` prints the table of docs/benchmarks.md; `-- FILE.toml` takes a cluster that is measured
//! already.
//!
//! Other guests of a host take part of its cores, now more and now less. The rate of large products before and after a run,
//! relative to that when the machine was measured, is the machine's speed then. Predictions are divided by it.

use meshwright::calibrate::cluster;
use meshwright::compiler::parallel;
use meshwright::compiler::text_files::write_text;
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use meshwright::train::{Progress, RunHeader, TrainRequest, free_memory, train};
use runtime::backends::cpu::peak;
use runtime::measure::measure;
use runtime::metrics::{EvalRecord, StepRecord};
use std::path::{Path, PathBuf};

/// Models of the README, and configurations of eight devices.
const LAYOUTS: [(&str, &str); 30] = [
    ("tiny-llama", "dp=8,mbs=2"),
    ("tiny-llama", "dp=8,mbs=1"),
    ("tiny-llama", "dp=8,mbs=2,zero=1"),
    ("tiny-llama", "dp=4,tp=2,mbs=4"),
    ("tiny-llama", "dp=4,tp=2,sp=true,mbs=4"),
    ("tiny-llama", "dp=4,tp=2,sp=true,mbs=2,zero=1"),
    ("tiny-llama", "dp=2,tp=4,mbs=8"),
    ("tiny-llama", "dp=2,tp=4,sp=true,mbs=4"),
    ("tiny-llama", "dp=4,pp=2,mbs=1"),
    ("tiny-llama", "dp=4,pp=2,mbs=2,schedule=gpipe"),
    ("tiny-llama", "dp=4,pp=2,mbs=1,zero=1"),
    ("tiny-llama", "dp=2,pp=4,mbs=1"),
    ("tiny-llama", "dp=2,pp=4,mbs=2,schedule=gpipe"),
    ("tiny-llama", "dp=2,pp=4,mbs=1,schedule=zb-h1"),
    ("tiny-llama", "dp=2,tp=2,pp=2,mbs=2"),
    ("tiny-llama", "dp=2,tp=2,pp=2,mbs=4,sp=true"),
    ("tiny-llama", "dp=2,tp=2,pp=2,mbs=2,zero=1,schedule=zb-h1"),
    ("tiny-llama", "tp=4,pp=2,mbs=4"),
    ("tiny-llama", "tp=4,pp=2,mbs=2,sp=true"),
    ("tiny-llama", "tp=2,pp=4,mbs=2"),
    ("tiny-llama", "dp=8,mbs=2,zero=3"),
    ("tiny-llama", "dp=8,mbs=1,zero=3,shard=4"),
    ("tiny-llama", "dp=2,cp=4,cp_kind=ring,mbs=2,zero=1"),
    ("tiny-llama", "dp=2,cp=2,tp=2,cp_kind=ring,mbs=4"),
    ("tiny-llama", "dp=4,cp=2,cp_kind=ulysses,mbs=2"),
    ("tiny-llama", "dp=4,pp=2,mbs=1,schedule=1f1b,recompute=full,offload=all"),
    ("tiny-moe", "dp=8,ep=8,mbs=2"),
    ("tiny-moe", "dp=4,ep=4,pp=2,mbs=1,zero=1"),
    ("tiny-moe", "dp=2,tp=4,ep=4,etp=2,sp=true,mbs=4"),
    ("tiny-moe", "dp=2,cp=2,pp=2,ep=4,cp_kind=ring,mbs=2"),
];

/// Steps of a run; the first few warm up.
const STEPS: u64 = 14;
const WARMUP: usize = 3;

/// Clock ticks of a second in `/proc` (`man 5 proc_pid_stat`).
const TICKS: f64 = 100.0;

/// Steps of a run.
#[derive(Default)]
struct Steps(Vec<StepTime>);

struct StepTime {
    /// Seconds of the step.
    step_s: f64,
    /// Processor seconds of the run up to the end of the step.
    processor_s: f64,
}

impl Progress for Steps {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, step: &StepRecord) {
        self.0.push(StepTime { step_s: step.step_time_s, processor_s: processor_seconds().unwrap_or(f64::NAN) });
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

fn main() {
    let given = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let (path, rate_then) = during(|| given.map_or_else(calibrated, PathBuf::from));
    let estimator = Estimator::new();
    let cores = cores() as f64;
    println!(
        "| model | configuration | speed | predicted | measured | predicted / measured | processor | predicted / processor |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut errors = [Vec::new(), Vec::new()];
    for (model, text) in LAYOUTS {
        let (StepTime { step_s: step, processor_s: processor }, rate) = during(|| measured(model, text));
        let speed = rate / rate_then;
        let predicted = predicted(&estimator, &path, model, text).predicted;
        let (seconds, busy) = (predicted.step_time_s / speed, processor / cores);
        let ms = |seconds: f64| format!("{:.0} ms", 1e3 * seconds);
        let [predicted, measured, taken] = [seconds, step, busy].map(ms);
        println!(
            "| {model} | `{text}` | {speed:.2} | {predicted} | {measured} | {:.2} | {taken} | {:.2} |",
            seconds / step,
            seconds / busy
        );
        errors[0].push((seconds / step - 1.0).abs());
        errors[1].push((seconds / busy - 1.0).abs());
    }
    let [step, processor] = errors.map(|errors| 100.0 * median(errors));
    println!("\nMedian error {step:.1} % of steps, {processor:.1} % of the processor's seconds over its cores.");
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// The result of a measurement, and the mean rate of large products before and after it, in FLOP/s.
fn during<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let rate = || peak(cores()).expect("products have a rate").flops;
    let before = rate();
    let result = work();
    (result, (before + rate()) / 2.0)
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

fn predicted(estimator: &Estimator, cluster: &Path, model: &str, text: &str) -> EstimateReport {
    let defaults = TrainRequest::default();
    let request = EstimateRequest {
        model: model.into(),
        cluster: cluster.to_string_lossy().into_owned(),
        stack: "meshwright-threads".into(),
        seq: defaults.seq,
        global_batch: defaults.global_batch,
        precision: "f32".into(),
        parallel: text.into(),
        ..EstimateRequest::default()
    };
    estimator.estimate(&request).unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Median seconds of a step, and average processor seconds of one, which count on a machine that has other work too.
fn measured(model: &str, text: &str) -> StepTime {
    assert_eq!(parallel::parse(text).map(|parallel| parallel.devices()), Ok(8), "{text}");
    let request = TrainRequest {
        model: model.into(),
        parallel: text.into(),
        data: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        valid_fraction: 0.002,
        steps: STEPS,
        eval_every: 0,
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("calibration"),
        ..TrainRequest::default()
    };
    let mut steps = Steps::default();
    train(&request, &mut steps).unwrap_or_else(|why| panic!("{text}: {why}"));
    let rest = steps.0.split_off(WARMUP);
    let taken = rest[rest.len() - 1].processor_s - rest[0].processor_s;
    let step_s = median(rest.iter().map(|step| step.step_s).collect());
    StepTime { step_s, processor_s: taken / (rest.len() - 1) as f64 }
}

/// Processor seconds of all threads of this process, if the system reports them.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    // User and system, the 14th and 15th; the name is the second.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / TICKS)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
