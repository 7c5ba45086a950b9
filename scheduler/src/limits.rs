//! Smallest memory limit under which a pipeline has any valid order.

use crate::costs::StageCosts;
use crate::placement::Pipeline;

/// The least that each rank must be allowed to hold for any order to exist, in the unit of the costs.
///
/// Before the first backward of a micro-batch on a rank can run, all slices of it have been forward through all stages of
/// that rank, and nothing of them is freed. So no order holds less than `slices x sum of mem_f` over the rank's stages; in
/// two chains, over those of the direction that holds more. One micro-batch after the other holds just that on every rank
/// at once.
pub fn least_limit(costs: &StageCosts, pipeline: &Pipeline) -> Vec<f64> {
    let last = pipeline.microbatches.saturating_sub(1); // in two chains it goes up
    let held = |rank, microbatch| {
        let stages = pipeline.stages_of(rank, microbatch);
        f64::from(pipeline.slices) * stages.map(|stage| costs.mem_f[stage as usize]).sum::<f64>()
    };
    (0..pipeline.ranks).map(|rank| f64::max(held(rank, 0), held(rank, last))).collect()
}

/// The first rank that is allowed less than any order holds, if there is one; `least` is of [`least_limit`].
pub fn first_below(least: &[f64], limit: Option<&[f64]>) -> Option<usize> {
    let limit = limit?;
    (least.iter().zip(limit)).position(|(least, limit)| *least > limit * (1.0 + 1e-9))
}

#[cfg(test)]
mod tests;
