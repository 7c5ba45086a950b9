//! Repeating patterns alone, without a rule's schedule to begin from: value, distance from the bound, and time.
//!
//! `cargo bench -p meshwright-scheduler --bench periodic -- --quick`

use criterion::{Criterion, criterion_group, criterion_main};
use meshwright_scheduler::costs::StageCosts;
use meshwright_scheduler::optimal::{Budget, Engine, Found, Instance, Periodic, Task, lower_bound};
use meshwright_scheduler::placement::{Pipeline, Placement};
use meshwright_scheduler::problem::{Backward, Objective, Problem};
use std::hint::black_box;

/// Ranks, micro-batches, ms of F, I, W and a hop, hidden size, heads: rows of tables 3 and 6 of Qi et al. 2024, "Zero bubble
/// pipeline parallelism". Sequences are 1024 long.
const ROWS: [(u32, u32, [f64; 4], f64, f64); 12] = [
    (8, 24, [18.522, 18.086, 9.337, 0.601], 2304.0, 24.0),
    (8, 32, [18.513, 18.086, 9.331, 0.626], 2304.0, 24.0),
    (8, 64, [18.546, 18.097, 9.321, 0.762], 2304.0, 24.0),
    (8, 24, [29.718, 29.444, 19.927, 0.527], 4096.0, 32.0),
    (8, 32, [29.802, 29.428, 19.530, 0.577], 4096.0, 32.0),
    (8, 64, [29.935, 29.621, 19.388, 0.535], 4096.0, 32.0),
    (16, 48, [11.347, 11.248, 8.132, 0.377], 5120.0, 40.0),
    (16, 64, [11.307, 11.254, 8.101, 0.379], 5120.0, 40.0),
    (16, 128, [11.325, 11.308, 8.109, 0.378], 5120.0, 40.0),
    (32, 96, [10.419, 10.207, 7.715, 0.408], 6144.0, 48.0),
    (32, 128, [10.408, 10.204, 7.703, 0.408], 6144.0, 48.0),
    (32, 256, [10.402, 10.248, 7.698, 0.460], 6144.0, 48.0),
];

/// Costs of every stage, with room for `times` as many micro-batches as ranks.
fn costs(pipeline: &Pipeline, [f, i, w, comm]: [f64; 4], (hidden, heads): (f64, f64), times: f64) -> StageCosts {
    let mut costs = StageCosts::uniform(pipeline.stages(), f, i, w, comm);
    let (mem_f, mem_w) = (34.0 * hidden + 5.0 * heads * 1024.0, 32.0 * hidden); // table 1, per token
    costs.mem_f.fill(mem_f);
    costs.mem_w.fill(mem_w);
    costs.mem_i.fill(mem_f - mem_w);
    costs.limit = Some(vec![times * f64::from(pipeline.ranks * pipeline.chunks) * mem_f; pipeline.ranks as usize]);
    costs
}

fn search(problem: &Problem, bound: f64) -> Found {
    let instance = Instance::new(problem);
    let budget = Budget { work: 1_000_000, deadline: None };
    Periodic.search(&Task { problem, instance: &instance, best: None, bound, tolerance: 1e-9, budget, log: &|_| {} })
}

fn run(criterion: &mut Criterion, name: &str, pipeline: &Pipeline, costs: &StageCosts) {
    let (objective, backward) = (Objective::Span, Backward::Split);
    let problem = Problem { costs, pipeline, objective, backward, deadline: None };
    let work = costs.f.iter().chain(&costs.i).chain(&costs.w).sum::<f64>() * f64::from(pipeline.microbatches);
    let bound = lower_bound(&problem, 1.0);
    if let Some(best) = search(&problem, bound).better {
        let (idle, gap) = (1.0 - work / f64::from(pipeline.ranks) / best.value, best.value / bound - 1.0);
        println!("{name}: span {:.3}, bubble {idle:.4}, above the bound {:.2} %", best.value, 100.0 * gap);
    }
    criterion.bench_function(name, |bencher| bencher.iter(|| search(black_box(&problem), bound)));
}

fn periodic(criterion: &mut Criterion) {
    for (ranks, microbatches, times, hidden, heads) in ROWS {
        for limit in [1.0, 2.0] {
            let pipeline = Pipeline::new(Placement::Chain, ranks, microbatches);
            let costs = costs(&pipeline, times, (hidden, heads), limit);
            run(criterion, &format!("chain p={ranks} m={microbatches} f={} {limit}p", times[0]), &pipeline, &costs);
        }
    }
    for (placement, limit) in [(Placement::V, 1.0), (Placement::V, 0.5), (Placement::Loop, 1.0)] {
        let pipeline = Pipeline::new(placement, 8, 64);
        let costs = costs(&pipeline, [10.0, 11.0, 7.0, 1.0], (4096.0, 32.0), limit);
        run(criterion, &format!("{placement} p=8 m=64 {limit}p"), &pipeline, &costs);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = periodic
}
criterion_main!(benches);
