//! Cost of checkpoints that are written while steps run: the time of the steps from each save on, beyond that of the steps next to
//! them. Steps of one run are compared, since a machine changes its speed between runs by more than a save takes.
//!
//! `cargo bench --bench saves` prints a table of docs/benchmarks.md.

use meshwright::runtime::metrics::{EvalRecord, StepRecord};
use meshwright::train::{Progress, RunHeader, TrainRequest, train};
use std::path::Path;
use std::time::Instant;

/// Configurations with the number of steps between two saves.
const CASES: [(&str, u64); 2] = [("dp=1", 20), ("dp=2", 20)];

/// Saves of a run.
const SAVES: u64 = 15;
/// Steps that copying and writing may slow down, that of the save among them: a save takes less than two.
const SLOWED: usize = 5;

/// When the steps of a run have ended.
#[derive(Default)]
struct Ends(Vec<Instant>);

impl Progress for Ends {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, _: &StepRecord) {
        self.0.push(Instant::now());
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

fn main() {
    println!(
        "| tiny-llama | saves every | a step | more for a save, median of {SAVES} | quartiles | share of the loop |"
    );
    println!("|---|---|---|---|---|---|");
    // `-- WORD` takes the configurations that have it.
    let word = std::env::args().nth(1).filter(|arg| !arg.starts_with("--")).unwrap_or_default();
    for (parallel, every) in CASES.into_iter().filter(|(parallel, _)| parallel.contains(&word)) {
        let ends = ends_of_steps(parallel, every);
        let steps: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mut more: Vec<f64> =
            (1..=SAVES as usize).map(|save| more_for_a_save(&steps, save * every as usize)).collect();
        more.sort_by(f64::total_cmp);
        let (step, at) = (median(&steps), |quarter: usize| more[quarter * (more.len() - 1) / 4]);
        let [low, middle, high] = [1, 2, 3].map(|quarter| 1e3 * at(quarter));
        let share = 100.0 * at(2) / (every as f64 * step);
        println!(
            "| `{parallel}` | {every} steps | {:.1} ms | {middle:.1} ms | {low:.1} to {high:.1} ms | {share:.2} % |",
            1e3 * step
        );
    }
}

/// The seconds of the steps from that of a save on, beyond those of the same number of ordinary ones: the median of those next to
/// them. The first of `steps` is the second of the run.
fn more_for_a_save(steps: &[f64], save: usize) -> f64 {
    let slowed = save - 2..save - 2 + SLOWED;
    let next = [&steps[slowed.start - SLOWED..slowed.start], &steps[slowed.end..slowed.end + SLOWED]].concat();
    steps[slowed].iter().sum::<f64>() - SLOWED as f64 * median(&next)
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// When each step of a run ends that saves every `save_every` steps.
fn ends_of_steps(parallel: &str, save_every: u64) -> Vec<Instant> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("saves");
    let _ = std::fs::remove_dir_all(&out);
    let request = TrainRequest {
        parallel: parallel.into(),
        data: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        steps: SAVES * save_every + save_every,
        eval_every: 0,
        final_eval_batches: Some(1),
        save_every,
        out: out.clone(),
        ..TrainRequest::default()
    };
    let mut ends = Ends::default();
    train(&request, &mut ends).unwrap_or_else(|why| panic!("{parallel}: {why}"));
    let _ = std::fs::remove_dir_all(&out);
    ends.0
}
