//! Smallest memory limit under which a pipeline has any valid order.

use crate::costs::StageCosts;
use crate::placement::Pipeline;

/// Returns the least memory limit of each rank under which any order exists, in the unit of the costs.
///
/// The first backward of a micro-batch on a rank runs after F of all its slices on all stages of that rank. Until then no
/// memory of the micro-batch is freed. So no order needs less than `slices x sum of mem_f` over the rank's stages; with two
/// chains, over those of the direction that needs more. Running one micro-batch at a time needs exactly that on every rank.
pub fn least_limit(costs: &StageCosts, pipeline: &Pipeline) -> Vec<f64> {
    let last = pipeline.microbatches.saturating_sub(1); // of two chains, this one runs from the last rank to the first
    let least = (0..pipeline.ranks).map(|rank| {
        let [down, up] = [0, last].map(|microbatch| {
            let stages = pipeline.stages_of(rank, microbatch);
            f64::from(pipeline.slices) * stages.map(|stage| costs.mem_f[stage as usize]).sum::<f64>()
        });
        down.max(up)
    });
    least.collect()
}

/// Returns the first rank whose limit is below `least`, the result of [`least_limit`].
pub fn first_below(least: &[f64], limit: Option<&[f64]>) -> Option<usize> {
    let limit = limit?;
    (least.iter().zip(limit)).position(|(least, limit)| *least > limit * (1.0 + 1e-9))
}

#[cfg(test)]
mod tests;
