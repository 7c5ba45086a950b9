//! The smallest limit, compared with all orders of small pipelines.

use super::*;
use crate::brute_force::{Objective, best};
use crate::placement::Placement;

fn pipelines() -> impl Iterator<Item = (Pipeline, StageCosts)> {
    let sizes = [
        (Placement::Chain, 3, 1, 2),
        (Placement::Loop, 2, 2, 2),
        (Placement::Loop, 2, 3, 1),
        (Placement::V, 2, 2, 2),
        (Placement::V, 3, 3, 1),
        (Placement::Bidirectional, 2, 2, 1),
        (Placement::Bidirectional, 3, 2, 2),
        (Placement::Bidirectional, 2, 2, 3),
    ];
    sizes.into_iter().map(|(placement, ranks, chunks, microbatches)| {
        let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, microbatches) };
        let mut costs = StageCosts::uniform(pipeline.stages(), 1.0, 1.0, 1.0, 0.0);
        costs.mem_i = (0..pipeline.stages()).map(|stage| f64::from(1 + stage * 5 % 7)).collect();
        costs.mem_w = (0..pipeline.stages()).map(|stage| f64::from(stage * 3 % 4)).collect();
        costs.mem_f = costs.mem_i.iter().zip(&costs.mem_w).map(|(i, w)| i + w).collect();
        (pipeline, costs)
    })
}

#[test]
fn there_is_an_order_at_the_least_limit_and_none_below_it_on_any_rank() {
    for (pipeline, mut costs) in pipelines() {
        let least = least_limit(&costs, &pipeline);
        costs.limit = Some(least.clone());
        for fused in [false, true] {
            assert!(best(&costs, &pipeline, fused, Objective::Makespan).is_some(), "{pipeline:?}");
        }
        for rank in 0..least.len() {
            let mut limit: Vec<f64> = least.iter().map(|limit| limit * 100.0).collect();
            limit[rank] = least[rank] - 0.5;
            assert_eq!(first_below(&least, Some(&limit)), Some(rank));
            costs.limit = Some(limit);
            assert_eq!(best(&costs, &pipeline, false, Objective::Makespan), None, "{pipeline:?} rank {rank}");
        }
    }
}

#[test]
fn all_slices_of_a_microbatch_are_held_together() {
    let costs = StageCosts::uniform(3, 1.0, 1.0, 1.0, 0.0);
    let pipeline = Pipeline { slices: 4, ..Pipeline::new(Placement::Chain, 3, 8) };
    assert_eq!(least_limit(&costs, &pipeline), [4.0, 4.0, 4.0]);
    assert_eq!(first_below(&[4.0], None), None);
}
