//! Share of a training loop that checkpoints take which are written while steps run: the same run with and without them, in turns.
//!
//! `cargo bench --bench saves` prints a table of docs/benchmarks.md.

use meshwright::train::{Progress, RunHeader, TrainRequest, train};
use runtime::metrics::{EvalRecord, StepRecord};
use std::path::Path;
use std::time::Instant;

/// Configurations with the number of steps between two saves.
const CASES: [(&str, u64); 2] = [("dp=1", 20), ("dp=2", 20)];

/// Steps of a run, and how often each has its turn.
const STEPS: u64 = 41;
const TURNS: usize = 5;

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
        "| tiny-llama | saves every | a step without | a step with | ratio, median of {TURNS} | all |\n|---|---|---|---|---|---|"
    );
    // `-- WORD` takes the configurations that have it.
    let word = std::env::args().nth(1).filter(|arg| !arg.starts_with("--")).unwrap_or_default();
    for (parallel, every) in CASES.into_iter().filter(|(parallel, _)| parallel.contains(&word)) {
        let turns: Vec<[f64; 2]> = (0..TURNS).map(|turn| both(parallel, every, turn)).collect();
        let mut ratios: Vec<f64> = turns.iter().map(|[without, with]| with / without).collect();
        ratios.sort_by(f64::total_cmp);
        let mean = |of: usize| 1e3 * turns.iter().map(|turn| turn[of]).sum::<f64>() / TURNS as f64;
        let all: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        let (without, with, median) = (mean(0), mean(1), ratios[TURNS / 2]);
        println!(
            "| `{parallel}` | {every} steps | {without:.1} ms | {with:.1} ms | {median:.3} | {} |",
            all.join(", ")
        );
    }
}

/// The seconds of a step without and with checkpoints, each first in every other turn.
fn both(parallel: &str, every: u64, turn: usize) -> [f64; 2] {
    eprintln!("turn {}/{TURNS}  {parallel}", turn + 1);
    let mut seconds = [0.0; 2];
    for which in [turn % 2, 1 - turn % 2] {
        seconds[which] = seconds_of_a_step(parallel, [0, every][which]);
    }
    seconds
}

/// The mean seconds of the steps behind the first.
fn seconds_of_a_step(parallel: &str, save_every: u64) -> f64 {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("saves");
    let _ = std::fs::remove_dir_all(&out);
    let request = TrainRequest {
        parallel: parallel.into(),
        data: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        steps: STEPS,
        eval_every: 0,
        final_eval_batches: 1,
        save_every,
        out: out.clone(),
        ..TrainRequest::default()
    };
    let mut ends = Ends::default();
    train(&request, &mut ends).unwrap_or_else(|why| panic!("{parallel}: {why}"));
    let _ = std::fs::remove_dir_all(&out);
    (ends.0[ends.0.len() - 1] - ends.0[0]).as_secs_f64() / (STEPS - 1) as f64
}
