//! How long it takes to plan the blocks of a model for one layout, as `estimate` does it.
//!
//! `cargo bench --bench planning` prints a line for each model and layout: the median of many calls.

use ir::goal::Layout;
use ir::models::{Batch, preset};
use ir::types::DType;
use meshwright::layout;
use meshwright::pipeline::plan_blocks;
use std::hint::black_box;
use std::time::Instant;

/// Models and layouts.
const CASES: [(&str, &str); 4] = [
    ("llama3-8b", "tp=4,sp=true"),
    ("llama3-8b", "tp=8,cp=2,sp=true"),
    ("llama3-8b", "dp=8"),
    ("gpt2", "tp=4,sp=true"),
];

/// Calls of a case.
const ROUNDS: usize = 50;

fn main() {
    for (name, mesh) in CASES {
        let layout = layout::parse(mesh).expect("a layout");
        let mut seconds: Vec<f64> = (0..ROUNDS).map(|_| planned(name, &layout)).collect();
        let first = seconds[0];
        seconds.sort_by(f64::total_cmp);
        println!("{name:20} {mesh:24} {:6.2} ms, the first {:.2} ms", seconds[ROUNDS / 2] * 1e3, first * 1e3);
    }
}

/// Seconds of one call.
fn planned(name: &str, layout: &Layout) -> f64 {
    let batch = layout.together().expect("it folds").dp * layout.mbs;
    let config = &preset(name).expect("a preset").config;
    let model = config.build(&Batch { batch, seq: 1024, dtype: DType::BF16 }).expect("a model");
    let clock = Instant::now();
    black_box(plan_blocks(black_box(model), layout).expect("a plan"));
    clock.elapsed().as_secs_f64()
}
