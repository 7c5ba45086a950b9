//! The bound against the optimum over all orders of small pipelines.

use super::*;
use crate::brute_force::{Objective, best};
use crate::problem::Backward;

/// A deterministic random number generator (Knuth, MMIX).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32 % sides
    }

    fn costs(&mut self, stages: u32) -> StageCosts {
        let same = self.roll(2) == 0;
        let mut times = |least: u32| {
            let first = f64::from(least + self.roll(6));
            (0..stages).map(|_| if same { first } else { f64::from(least + self.roll(6)) }).collect::<Vec<f64>>()
        };
        let (f, i, w, mut comm) = (times(1), times(1), times(0), times(0));
        comm.pop();
        StageCosts { f, i, w, comm, ..StageCosts::uniform(stages, 1.0, 1.0, 1.0, 0.0) }
    }
}

/// Pipelines small enough for an exhaustive search over all orders.
const PIPELINES: [(Placement, u32, u32, u32); 9] = [
    (Placement::Chain, 1, 1, 3),
    (Placement::Chain, 2, 1, 3),
    (Placement::Chain, 3, 1, 2),
    (Placement::Loop, 2, 2, 1),
    (Placement::Loop, 1, 3, 1),
    (Placement::V, 2, 2, 1),
    (Placement::V, 3, 2, 1),
    (Placement::Bidirectional, 2, 2, 2),
    (Placement::Bidirectional, 3, 2, 2),
];

/// Larger pipelines, for actions that do not overlap.
const MORE: [(Placement, u32, u32, u32); 4] = [
    (Placement::Chain, 3, 1, 3),
    (Placement::Loop, 2, 2, 2),
    (Placement::V, 2, 2, 2),
    (Placement::Bidirectional, 2, 2, 3),
];

/// Bounds under memory limits hold for all orders of small pipelines, and are met in many.
#[test]
fn bounds_of_memory_are_never_above_the_optimum() {
    let mut dice = Dice(7);
    let (mut limited, mut met) = (0, 0);
    for round in 0..40 {
        for &(placement, ranks, chunks, microbatches) in PIPELINES.iter().chain(&MORE) {
            let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, microbatches) };
            let mut costs = dice.costs(pipeline.stages());
            let left = f64::from(dice.roll(5)) / 4.0;
            costs.mem_w.fill(left);
            costs.mem_i.fill(1.0 - left);
            let room = f64::from(2 * chunks + dice.roll(4)) / 2.0;
            costs.limit = Some(vec![room; ranks as usize]);
            let fused = round % 2 == 0;
            let backward = if fused { Backward::Fused } else { Backward::Split };
            for (objective, brute) in [
                (Objective::Makespan, crate::problem::Objective::Makespan),
                (Objective::Span, crate::problem::Objective::Span),
            ] {
                let Some(best) = best(&costs, &pipeline, fused, objective) else { continue };
                let problem =
                    Problem { costs: &costs, pipeline: &pipeline, objective: brute, backward, deadline: None };
                let bound = bound_of_memory(&problem);
                assert!(
                    bound <= best * (1.0 + 1e-9),
                    "{placement} {ranks} {microbatches} {room}: {bound} {best} {costs:?}"
                );
                let free = lower_bound(&costs, &pipeline, fused);
                let free = if objective == Objective::Span { free.span } else { free.makespan };
                limited += usize::from(best > free * (1.0 + 1e-9));
                met += usize::from(best > free * (1.0 + 1e-9) && bound >= best * (1.0 - 1e-9));
            }
        }
    }
    assert!(limited > 100 && 4 * met > limited, "{met} of {limited} are met");
}

/// Returns the number of cases whose optimum equals the bound, and the number of all cases.
fn met(pipelines: &[(Placement, u32, u32, u32)], seed: u64, rounds: u32, pairs: bool) -> (u32, u32) {
    let mut dice = Dice(seed);
    let (mut met, mut cases) = (0, 0);
    for round in 0..rounds {
        for &(placement, ranks, chunks, microbatches) in pipelines {
            let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, microbatches) };
            let mut costs = dice.costs(pipeline.stages());
            costs.fb = pairs.then(|| f64::from(2 + dice.roll(9)));
            let fused = round % 2 == 0;
            let bound = lower_bound(&costs, &pipeline, fused);
            for (objective, bound) in [(Objective::Makespan, bound.makespan), (Objective::Span, bound.span)] {
                let best = best(&costs, &pipeline, fused, objective).expect("without limits there is an order");
                assert!(bound <= best, "{bound} > {best}: {pipeline:?} fused {fused} {costs:?}");
                met += u32::from(bound == best);
                cases += 1;
            }
        }
    }
    (met, cases)
}

#[test]
fn it_never_exceeds_the_best_order() {
    let (small, of_small) = met(&PIPELINES, 1, 12, false);
    let (large, of_large) = met(&MORE, 2, 4, false);
    let (met, cases) = (small + large, of_small + of_large);
    assert!(10 * met > 9 * cases, "met in {met} of {cases}");
}

#[test]
fn it_never_exceeds_the_best_order_with_overlapped_pairs() {
    let (met, cases) = met(&PIPELINES, 3, 8, true);
    assert!(4 * met > cases, "met in {met} of {cases}");
}
