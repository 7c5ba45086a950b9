//! The simulator on large pipelines.
//!
//! Throughput is in actions per second; its floor is a read of each action and a write of each slot.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use meshwright_scheduler::actions::split_backward;
use meshwright_scheduler::costs::StageCosts;
use meshwright_scheduler::schedules::find;
use meshwright_scheduler::simulate::{DependencyGraph, simulate};

/// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn pipelines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulate");
    for (ranks, microbatches) in [(8, 24), (32, 256)] {
        let costs = StageCosts::uniform(ranks, 10.4, 10.2, 7.7, 0.4);
        let kind = find("1f1b").unwrap();
        let fused = kind.make(&costs, &kind.pipeline(ranks, None, microbatches).unwrap()).unwrap();
        let schedule = split_backward(fused);
        let actions: usize = schedule.rows.iter().map(Vec::len).sum();
        group.throughput(Throughput::Elements(actions as u64));
        group.bench_function(format!("{ranks} ranks x {microbatches} micro-batches"), |bench| {
            bench.iter(|| simulate(black_box(&schedule), &costs).unwrap().makespan);
        });
        let wiring = DependencyGraph::of(&schedule, costs.f.len()).unwrap();
        group.bench_function(format!("wired: {ranks} ranks x {microbatches} micro-batches"), |bench| {
            bench.iter(|| black_box(&wiring).run(&costs).makespan());
        });
        let timeline = simulate(&schedule, &costs).unwrap();
        group.bench_function(format!("floor: {ranks} ranks x {microbatches} micro-batches"), |bench| {
            bench.iter_batched(|| (), |()| black_box(&timeline).clone(), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, pipelines);
criterion_main!(benches);
