//! How long it takes to plan the blocks of a model for one layout, as `estimate` does it.
//!
//! `cargo bench -p meshwright-planner` prints a line for each model and layout: the median of many calls.

use cost::CPU;
use ir::differentiate::gradients;
use ir::goal::{Goal, Layout};
use ir::models::{Batch, preset};
use ir::types::DType;
use std::hint::black_box;
use std::time::Instant;

/// Models, and their degrees of dp, cp and tp.
const CASES: [(&str, [u64; 3]); 4] =
    [("llama3-8b", [1, 1, 4]), ("llama3-8b", [1, 2, 8]), ("llama3-8b", [1, 1, 1]), ("gpt2", [1, 1, 4])];

/// Calls of a case.
const ROUNDS: usize = 50;

fn main() {
    for (name, [dp, cp, tp]) in CASES {
        let layout = Layout { dp, cp, tp, sp: tp > 1, ..Layout::default() };
        let mut seconds: Vec<f64> = (0..ROUNDS).map(|_| planned(name, &layout)).collect();
        let first = seconds[0];
        seconds.sort_by(f64::total_cmp);
        println!(
            "{name} dp={dp} cp={cp} tp={tp}: {:.2} ms, the first {:.2} ms",
            seconds[ROUNDS / 2] * 1e3,
            first * 1e3
        );
    }
}

/// Seconds of one call.
fn planned(name: &str, layout: &Layout) -> f64 {
    let config = &preset(name).expect("a preset").config;
    let batch = Batch { batch: layout.dp * layout.mbs, seq: 1024, dtype: DType::BF16 };
    let model = config.build(&batch).expect("a model");
    let goal = Goal::of(layout.clone());
    let clock = Instant::now();
    let model = gradients(black_box(model)).expect("gradients");
    black_box(meshwright_planner::plan(model, &goal, &CPU, None, &mut |_, _| {}).expect("a plan"));
    clock.elapsed().as_secs_f64()
}
