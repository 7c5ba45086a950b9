//! How long it takes to decide all shardings of a model by cost, and whether the answer is proved.
//!
//! `cargo bench -p meshwright-planner --bench sharding` prints a line for each model and mesh.

use cost::{Cluster, Platform};
use ir::models::{Batch, preset};
use ir::optimizer::Optimizer;
use ir::options::{ParallelConfig, PlanOptions};
use ir::types::DType;
use meshwright_planner::{plan, shard};
use std::time::Instant;
use transforms::differentiate::differentiate;

/// Models, sequences, and the sizes of the axes.
const CASES: [(&str, u64, [u64; 3]); 5] = [
    ("tiny-llama", 8, [4, 1, 1]),
    ("llama3-8b", 8, [8, 1, 1]),
    ("llama3-8b", 32, [32, 8, 1]),
    ("mixtral-8x7b", 32, [8, 8, 1]),
    ("tiny-llama", 8, [2, 2, 2]),
];

fn main() {
    let cluster = Cluster::find("h100-dgx-ndr").expect("a preset");
    for (name, batch, [dp, tp, cp]) in CASES {
        let batch = Batch { batch, seq: 4096, dtype: DType::F32 };
        let model = preset(name).expect("a preset").config.build(&batch).expect("a model");
        let model = differentiate(model, &Optimizer::default()).expect("a gradient");
        let options = PlanOptions::auto(ParallelConfig { dp, tp, cp, ..ParallelConfig::default() }, Some(u64::MAX), 1);
        let mut model =
            plan(model, &options, &Platform::of_program(&cluster), Some("annotate"), &mut |_, _| {}).expect("a mesh");
        let clock = Instant::now();
        let decided = shard::decide(&mut model, &options, &Platform::of_program(&cluster), &mut |_| {})
            .expect("shardings")
            .expect("something to decide");
        let seconds = clock.elapsed().as_secs_f64();
        let proof = if decided.is_proved { "proved".to_string() } else { format!("bound {:.6}", decided.bound) };
        println!(
            "{name} {dp}x{tp}x{cp}: {seconds:.3} s, {} nodes, cost {:.6}, {proof}",
            decided.nodes, decided.seconds
        );
    }
}
