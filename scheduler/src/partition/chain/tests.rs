//! Bounds and partitions of chains, against the simulated steps of all partitions.

use super::*;
use crate::costs::StageCosts;
use crate::placement::Placement;
use crate::schedules::{ScheduleKind, find};
use crate::simulate::DependencyGraph;

/// Numbers that look random and are the same each time (Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most
    }
}

/// All partitions of block instances into a number of stages.
fn partitions(runs: usize, stages: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![0]];
    for stage in 1..stages {
        let next = |starts: Vec<usize>| {
            let from = starts[stage - 1] + 1;
            (from..=runs + stage - stages).map(move |start| [starts.as_slice(), &[start]].concat()).collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(next).collect();
    }
    all
}

/// Seconds of a step, by simulation.
fn simulated(chain: &Chain, starts: &[usize], kind: &ScheduleKind, pipeline: &Pipeline) -> f64 {
    let end = |stage: usize| starts.get(stage + 1).copied().unwrap_or(chain.before.len() - 1);
    let own = |stage: usize| chain.before[end(stage)] - chain.before[starts[stage]];
    let each = |of: fn(RunSeconds) -> f64| (0..starts.len()).map(|stage| of(own(stage))).collect::<Vec<f64>>();
    let costs = StageCosts {
        f: each(|own| own.f),
        i: each(|own| own.i),
        w: each(|own| own.w),
        ..StageCosts::uniform(starts.len() as u32, 0.0, 0.0, 0.0, chain.hop)
    };
    let schedule = kind.make(&costs, pipeline).unwrap();
    DependencyGraph::of(&schedule, starts.len()).unwrap().run(&costs).makespan()
}

/// Random chains have light layers before heavy ones, and a head. No partition takes less than the bound. The faster of the two
/// partitions that the bound gives takes hardly longer than the best of all.
#[test]
fn no_partition_is_faster_than_the_bound() {
    let mut dice = Dice(3);
    let (mut equal, mut cases) = (0, 0);
    for name in ["1f1b", "gpipe", "eager-1f1b", "zb-h1", "zb-h2"] {
        let kind = find(name).unwrap();
        for _ in 0..40 {
            let (ranks, layers) = (2 + dice.below(4), 6 + dice.below(4));
            let pipeline = Pipeline::new(Placement::Chain, ranks as u32, (2 * ranks + dice.below(9)) as u32);
            let light = dice.below(3);
            let weight = |run: usize| {
                if run == 0 {
                    0.05
                } else if run <= light {
                    0.6
                } else {
                    1.0
                }
            };
            let mut runs: Vec<RunSeconds> = (0..=layers)
                .map(|run| RunSeconds { f: weight(run), i: 1.1 * weight(run), w: 0.9 * weight(run) })
                .collect();
            let head = 0.3 * dice.below(9) as f64;
            runs.push(RunSeconds { f: head, i: head, w: head });
            let ahead = |rank| kind.min_in_flight(rank, &pipeline);
            let chain = Chain::new(&runs, &pipeline, ahead, kind.splits_backward, 0.01);
            let (bound, last) = chain.fastest().unwrap();
            let seconds = |starts: &[usize]| simulated(&chain, starts, kind, &pipeline);
            let all = partitions(runs.len(), ranks);
            let least = all.iter().map(|starts| seconds(starts)).fold(f64::INFINITY, f64::min);
            let path = all.iter().map(|starts| chain.longest_path(starts)).fold(f64::INFINITY, f64::min);
            assert!(bound <= least * (1.0 + 1e-9), "{name} {ranks} {layers}: {bound} {least}");
            assert!((path / bound - 1.0).abs() < 2.0 * PRECISION, "{name} {ranks} {layers}: {bound} {path}");
            let first = chain.longest_stages_first(chain.longest_path(&last)).unwrap();
            let ours = seconds(&last).min(seconds(&first));
            // Paths of gpipe that turn after the last forward are longer than those of the bound.
            let most = if name == "gpipe" { 1.12 } else { 1.08 };
            assert!(ours <= most * least, "{name} {ranks} {layers}: {ours} {least}");
            equal += usize::from(ours <= least * (1.0 + 1e-9));
            cases += 1;
        }
    }
    assert!(3 * equal > cases, "{equal} of {cases}");
}

/// 32 layers and a head of 2.4 of them on eight ranks: an even partition takes a sixth longer than the best.
#[test]
fn the_last_stage_of_a_heavy_head_has_fewer_layers() {
    let layer = RunSeconds { f: 1.0, i: 1.0, w: 1.0 };
    let mut runs = vec![layer; 34];
    (runs[0], runs[33]) = (RunSeconds::default(), RunSeconds { f: 2.4, i: 2.4, w: 2.4 });
    let pipeline = Pipeline::new(Placement::Chain, 8, 64);
    let kind = find("1f1b").unwrap();
    let chain = Chain::new(&runs, &pipeline, |rank| kind.min_in_flight(rank, &pipeline), false, 0.0);
    let (bound, starts) = chain.fastest().unwrap();
    let seconds = |starts: &[usize]| simulated(&chain, starts, kind, &pipeline);
    let even = [0, 5, 9, 13, 17, 21, 25, 29];
    assert!(seconds(&starts) < 0.87 * seconds(&even), "{starts:?}");
    assert!(seconds(&starts) < 1.02 * bound, "{starts:?}");
}

#[test]
fn more_ranks_than_instances_have_no_partition() {
    let pipeline = Pipeline::new(Placement::Chain, 4, 8);
    assert!(Chain::new(&[RunSeconds::default(); 3], &pipeline, |_| 1, false, 0.0).fastest().is_none());
}
