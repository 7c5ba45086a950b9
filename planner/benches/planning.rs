//! How long it takes to plan the blocks of a model for one configuration, as `estimate` does it.
//!
//! `cargo bench -p meshwright-planner` prints a line for each model and configuration: the median of many calls.

use cost::PROGRAM;
use ir::models::{Batch, preset};
use ir::options::{ParallelConfig, PlanOptions};
use ir::types::DType;
use std::hint::black_box;
use std::time::Instant;
use transforms::differentiate::gradients;

/// Models, and their degrees of dp, cp, tp and ep.
const CASES: [(&str, [u64; 4]); 7] = [
    ("llama3-8b", [1, 1, 1, 1]),
    ("llama3-8b", [1, 1, 4, 1]),
    ("llama3.1-405b", [1, 2, 8, 1]),
    ("megatron-175b", [1, 1, 8, 1]),
    ("mixtral-8x7b", [4, 1, 2, 8]),
    ("deepseek-v3", [8, 2, 4, 64]),
    ("tiny-moe", [2, 2, 2, 4]),
];

/// Calls of a case.
const ROUNDS: usize = 50;

fn main() {
    for (name, [dp, cp, tp, ep]) in CASES {
        let parallel = ParallelConfig { dp, cp, tp, ep, sp: tp > 1, ..ParallelConfig::default() };
        let mut seconds: Vec<f64> = (0..ROUNDS).map(|_| planned(name, &parallel)).collect();
        let first = seconds[0];
        seconds.sort_by(f64::total_cmp);
        let (median, first) = (seconds[ROUNDS / 2] * 1e3, first * 1e3);
        println!("{name} dp={dp} cp={cp} tp={tp} ep={ep}: {median:.2} ms, the first {first:.2} ms");
    }
}

/// Seconds of one call.
fn planned(name: &str, parallel: &ParallelConfig) -> f64 {
    let config = &preset(name).expect("a preset").config;
    let batch = Batch { batch: parallel.dp * parallel.mbs, seq: 1024, dtype: DType::BF16 };
    let model = config.build(&batch).expect("a model");
    let options = PlanOptions::of(parallel.clone());
    let clock = Instant::now();
    let model = gradients(black_box(model)).expect("gradients");
    black_box(meshwright_planner::plan(model, &options, &PROGRAM, None, &mut |_, _| {}).expect("a plan"));
    clock.elapsed().as_secs_f64()
}
