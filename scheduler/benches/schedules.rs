//! How long each kind takes to make its order, with the profiled times of the 28.3B model of arXiv 2401.10241 (Table 6,
//! m = 256: milliseconds).
//!
//! Throughput is in actions per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use meshwright_scheduler::costs::StageCosts;
use meshwright_scheduler::schedules::SCHEDULES;
use std::hint::black_box;

/// Ranks and micro-batches.
const SIZES: [(u32, u32); 3] = [(8, 24), (16, 64), (32, 256)];

fn schedules(criterion: &mut Criterion) {
    for (p, m) in SIZES {
        let mut group = criterion.benchmark_group(format!("p={p} m={m}"));
        group.sample_size(10);
        for kind in SCHEDULES {
            let Ok(pipeline) = kind.pipeline(p, None, m) else { continue };
            let costs = StageCosts::uniform(pipeline.stages(), 10.402, 10.248, 7.698, 0.460);
            let Ok(schedule) = kind.make(&costs, &pipeline) else { continue };
            group.throughput(Throughput::Elements(schedule.rows.iter().map(|row| row.len() as u64).sum()));
            group.bench_function(kind.name, |bench| bench.iter(|| kind.make(black_box(&costs), &pipeline)));
        }
    }
}

criterion_group!(benches, schedules);
criterion_main!(benches);
