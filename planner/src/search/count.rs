//! How many layouts a space has, without making them.

use super::Family;
use super::cores::each;
use super::space::Space;
use ir::goal::Recompute;
use std::collections::{BTreeSet, HashMap};

/// The layouts of a space. Degrees and micro-batches are gone through; all below is counted.
pub fn count(space: &Space, axes: &[Family]) -> u64 {
    let ranks: Vec<u64> = axes.iter().map(|family| family.layout.pp).collect::<BTreeSet<u64>>().into_iter().collect();
    let of = |&pp: &u64| of_ranks(space, axes.iter().filter(|family| family.layout.pp == pp));
    each(&ranks, of).into_iter().fold(0, u64::saturating_add)
}

/// Those with as many pipeline ranks.
fn of_ranks<'a>(space: &Space, axes: impl Iterator<Item = &'a Family>) -> u64 {
    let mut pipelines: HashMap<u64, u64> = HashMap::new();
    let mut sum = 0u64;
    for family in axes {
        let layout = &family.layout;
        let shards = space.shards(family).len() as u64;
        let ways = space.ways(layout).len() as u64;
        let hosts = if space.offload && !space.pin.has("offload") { 2 } else { 1 };
        for mbs in space.sizes(layout) {
            let microbatches = space.global_batch / (layout.dp * mbs);
            let of = || recomputed(space, layout.pp, microbatches);
            let below = *pipelines.entry(microbatches).or_insert_with(of);
            sum = sum.saturating_add((ways * shards * hosts).saturating_mul(below));
        }
    }
    sum
}

/// Pipelines of so many ranks and micro-batches, each times the ways to compute again.
fn recomputed(space: &Space, pp: u64, microbatches: u64) -> u64 {
    let orders = space.orders_of(pp, microbatches);
    let of = |order: &super::Order| {
        let starts = space.starts(order.stages).len() as u64;
        let longest = space.layers[0].div_ceil((pp * u64::from(order.vp.unwrap_or(1))).max(1));
        let ways = match (space.pin.has("recompute"), &space.pin.layout.recompute) {
            // None, single values, and each number of layers.
            (false, _) | (true, Recompute::Auto) => 2 + longest,
            (true, _) => 1,
        };
        starts * ways * order.schedules.len() as u64
    };
    orders.iter().map(of).sum()
}
