//! The mixed-integer program against known optima.

use super::*;
use crate::costs::StageCosts;
use crate::optimal::{Budget, bound, start};
use crate::placement::{Pipeline, Placement};
use crate::problem::{Backward, Objective, Problem};

/// Returns the value and the bound of the engine when it starts from an order of list scheduling.
fn solved(costs: &StageCosts, pipeline: &Pipeline, objective: Objective) -> (f64, f64) {
    let problem = Problem { costs, pipeline, objective, backward: Backward::Split, deadline: None };
    let instance = Instance::new(&problem);
    let best = start::best(&problem, &instance, &mut std::iter::empty(), &|_| {}).unwrap();
    let bound = bound::of(&problem, Some(&instance), best.value);
    let budget = Budget { work: 1_000_000, deadline: None };
    let task = Task {
        problem: &problem,
        instance: &instance,
        best: Some(&best),
        bound,
        tolerance: 1e-9,
        budget,
        log: &|_| {},
    };
    assert!(Ilp.suits(&task));
    let found = Ilp.search(&task);
    (found.better.map_or(best.value, |better| better.value), found.bound)
}

fn limited(pipeline: &Pipeline, (f, i, w, comm): (f64, f64, f64, f64), limit: f64) -> StageCosts {
    let mut costs = StageCosts::uniform(pipeline.stages(), f, i, w, comm);
    costs.limit = Some(vec![limit; pipeline.ranks as usize]);
    costs
}

/// Two ranks and two micro-batches, with memory for one: the micro-batches run one after the other. Each takes 5 on rank 0: F,
/// a wait of 2, I and W.
#[test]
fn room_for_one_micro_batch() {
    let pipeline = Pipeline::new(Placement::Chain, 2, 2);
    let (value, bound) = solved(&limited(&pipeline, (1.0, 1.0, 1.0, 0.0), 1.0), &pipeline, Objective::Makespan);
    assert_eq!((value, bound), (10.0, 10.0));
}

/// With costs 5/6/4 and no hop, two other solvers (HiGHS and CBC on the paper's own program) found these optimal spans.
#[test]
fn spans_of_the_paper_are_proved() {
    for (ranks, microbatches, room, span) in [(2, 8, 2.0, 127.0), (3, 6, 3.0, 104.0)] {
        let pipeline = Pipeline::new(Placement::Chain, ranks, microbatches);
        let costs = limited(&pipeline, (5.0, 6.0, 4.0, 0.0), room);
        assert_eq!(solved(&costs, &pipeline, Objective::Span), (span, span), "{ranks} x {microbatches}");
    }
}

/// Checks that the bound is at most the value and the value at least the load, in every placement and for both objectives.
#[test]
fn all_placements_and_objectives() {
    for placement in Placement::ALL {
        let pipeline = Pipeline::new(placement, 2, 3);
        let costs = limited(&pipeline, (2.0, 3.0, 1.0, 1.0), 3.0);
        let load = f64::from(pipeline.microbatches * pipeline.stages()) * 6.0 / 2.0;
        for objective in [Objective::Makespan, Objective::Span] {
            let (value, bound) = solved(&costs, &pipeline, objective);
            assert!(bound <= value + 1e-6 && value >= load, "{placement} {objective:?}: {value} {bound}");
        }
    }
}
