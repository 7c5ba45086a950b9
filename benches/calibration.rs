//! How near `estimate` comes on the machine that it runs on: measures the machine, then trains examples under 30 configurations of
//! 8 virtual devices and compares the median step of each with the prediction.
//!
//! `cargo bench --bench calibration` prints the table of docs/benchmarks.md; `-- FILE.toml` takes a cluster that is measured
//! already, and `-- --precision=bf16` trains in another precision.
//!
//! Measured times are those of the machine at the full speed that it had while it was measured.

mod speed;

use meshwright::calibrate::cluster;
use meshwright::compiler::parallel;
use meshwright::compiler::text_files::write_text;
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use meshwright::runtime::measure::measure;
use meshwright::train::{TrainRequest, free_memory, train};
use speed::{StepTime, Steps, best_rate, cores, median};
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
const STEPS: u64 = 24;
const WARMUP: usize = 3;

fn main() {
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let precision = std::env::args().find_map(|arg| arg.strip_prefix("--precision=").map(str::to_string));
    let precision = precision.unwrap_or_else(|| "f32".into());
    let before = best_rate();
    let path = given.map_or_else(calibrated, PathBuf::from);
    let full = before.max(best_rate());
    let estimator = Estimator::new();
    let cores = cores() as f64;
    println!(
        "| model | configuration | speed | predicted | measured | predicted / measured | processor | predicted / processor |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut errors = [Vec::new(), Vec::new()];
    for (model, text) in LAYOUTS {
        let steps = measured(model, text, &precision);
        let each = |of: fn(&StepTime) -> f64| steps.iter().map(|step| of(step) * step.rate / full).collect::<Vec<_>>();
        let (speed, step) = (median(each(|_| 1.0)), median(each(|step| step.step_s)));
        // The system counts in ticks, and a step has few of them: their mean counts.
        let busy = each(|step| step.processor_s).iter().sum::<f64>() / steps.len() as f64 / cores;
        let seconds = predicted(&estimator, &path, (model, text), &precision).predicted.step_time_s;
        let ms = |seconds: f64| format!("{:.0} ms", 1e3 * seconds);
        println!(
            "| {model} | `{text}` | {speed:.2} | {} | {} | {:.2} | {} | {:.2} |",
            ms(seconds),
            ms(step),
            seconds / step,
            ms(busy),
            seconds / busy
        );
        errors[0].push((seconds / step - 1.0).abs());
        errors[1].push((seconds / busy - 1.0).abs());
    }
    let [step, processor] = errors.map(|errors| 100.0 * median(errors));
    println!("\nMedian error {step:.1} % of steps, {processor:.1} % of the processor's seconds over its cores.");
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

fn predicted(estimator: &Estimator, cluster: &Path, (model, text): (&str, &str), precision: &str) -> EstimateReport {
    let defaults = TrainRequest::default();
    let request = EstimateRequest {
        model: model.into(),
        cluster: cluster.to_string_lossy().into_owned(),
        stack: "meshwright-threads".into(),
        seq: defaults.seq,
        global_batch: defaults.global_batch,
        precision: precision.into(),
        parallel: text.into(),
        ..EstimateRequest::default()
    };
    estimator.estimate(&request).unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// The steps of a run, but those that warm up.
fn measured(model: &str, text: &str, precision: &str) -> Vec<StepTime> {
    assert_eq!(parallel::parse(text).map(|parallel| parallel.devices()), Ok(8), "{text}");
    let request = TrainRequest {
        model: model.into(),
        parallel: text.into(),
        precision: precision.into(),
        data: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        valid_fraction: 0.002,
        steps: STEPS,
        eval_every: 0,
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("calibration"),
        ..TrainRequest::default()
    };
    let mut steps = Steps::default();
    train(&request, &mut steps).unwrap_or_else(|why| panic!("{text}: {why}"));
    steps.taken.split_off(WARMUP)
}
