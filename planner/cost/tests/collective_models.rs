//! How far the two models of collective time differ, over kinds, group sizes, bytes, clusters and stacks.
//!
//! [`Pattern`] counts bytes and messages on one link at its full bandwidth, by recursive doubling. The planner compares
//! reshard paths by it: it needs no stack, and is affine in the bytes. [`Platform::collective_time`] is fitted to measurements. It has
//! start-up times, bandwidth by message size, rings, trees, and the levels of a cluster. Estimates and plans use it.

use meshwright_cost::{CLUSTERS, Cluster, CollectiveKind, Group, Interval, Pattern, Platform, Recipe, Stack};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SMALL: [u64; 4] = [KIB, 16 * KIB, 256 * KIB, MIB];
const LARGE: [u64; 3] = [64 * MIB, 256 * MIB, 1024 * MIB];

const REDUCE: &[(CollectiveKind, Pattern)] = &[(CollectiveKind::AllReduce, Pattern::Sum)];
const GATHER: &[(CollectiveKind, Pattern)] =
    &[(CollectiveKind::AllGather, Pattern::Round), (CollectiveKind::ReduceScatter, Pattern::Round)];
const EXCHANGE: &[(CollectiveKind, Pattern)] = &[(CollectiveKind::AllToAll, Pattern::Exchange)];
const SEND: &[(CollectiveKind, Pattern)] = &[(CollectiveKind::Send, Pattern::Pieces(1))];

/// Range of the fitted model's seconds over those of one link.
struct Row {
    kinds: &'static [(CollectiveKind, Pattern)],
    bytes: &'static [u64],
    /// `true` for groups within the innermost link level, `false` for larger ones.
    is_inner: bool,
    range: Interval,
}

const fn row(
    kinds: &'static [(CollectiveKind, Pattern)],
    bytes: &'static [u64],
    is_inner: bool,
    [low, high]: [f64; 2],
) -> Row {
    Row { kinds, bytes, is_inner, range: Interval { low, high } }
}

/// The table of `docs/plans.md`, "Two cost models, and when they disagree".
const ROWS: [Row; 14] = [
    row(REDUCE, &SMALL, true, [1.0, 33.0]),
    row(REDUCE, &LARGE, true, [0.95, 3.1]),
    row(REDUCE, &SMALL, false, [0.3, 33.0]),
    row(REDUCE, &LARGE, false, [0.05, 1.4]),
    row(GATHER, &SMALL, true, [0.45, 33.0]),
    row(GATHER, &LARGE, true, [1.0, 3.2]),
    row(GATHER, &SMALL, false, [0.27, 17.0]),
    row(GATHER, &LARGE, false, [0.05, 1.3]),
    row(EXCHANGE, &SMALL, true, [0.12, 7.6]),
    row(EXCHANGE, &LARGE, true, [0.32, 2.1]),
    row(EXCHANGE, &SMALL, false, [0.3, 6.0]),
    row(EXCHANGE, &LARGE, false, [0.35, 1.3]),
    row(SEND, &SMALL, true, [1.0, 8.0]),
    row(SEND, &LARGE, true, [1.0, 9.5]),
];

/// Seconds of the fitted model over those of one link, for neighbouring ranks and each number of bytes.
fn ratios(platform: &Platform<'_>, row: &Row, ranks: u64) -> Vec<f64> {
    let links = &platform.cluster.links;
    let link = links.iter().find(|link| link.joins >= ranks).unwrap_or(&links[links.len() - 1]);
    let of = |&(kind, pattern): &(CollectiveKind, Pattern), bytes: u64| {
        let one = pattern.traffic(link, ranks, bytes, bytes).seconds_on(link, platform.cluster.device.memory_bandwidth);
        platform.collective_time(kind, bytes as f64, Group { ranks, stride: 1 }) / one
    };
    row.kinds.iter().flat_map(|kind| row.bytes.iter().map(move |&bytes| of(kind, bytes))).collect()
}

/// Each row's range holds on the whole grid, and the models come near both of its ends.
#[test]
fn the_models_differ_by_known_factors() {
    let mut wrong = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        let [mut least, mut most] = [f64::INFINITY, 0.0_f64];
        for preset in CLUSTERS {
            let cluster = Cluster::find(preset.name).unwrap();
            for stack in ["meshwright", "megatron-core-2025"].map(|name| Stack::find(name).unwrap()) {
                let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
                let most_ranks = if row.kinds[0].0 == CollectiveKind::Send { 2 } else { 256 };
                let groups = [2, 4, 8, 16, 64, 256]
                    .into_iter()
                    .filter(|&ranks| ranks <= most_ranks && (ranks <= cluster.links[0].joins) == row.is_inner);
                for ratio in groups.flat_map(|ranks| ratios(&platform, row, ranks)) {
                    (least, most) = (least.min(ratio), most.max(ratio));
                }
            }
        }
        let Interval { low, high } = row.range;
        if low > least || most > high {
            wrong.push(format!("row {number}: {least} to {most} is beyond {low} to {high}"));
        }
        if least >= 1.3 * low || most <= high / 1.3 {
            wrong.push(format!("row {number}: {least} to {most} is far from {low} to {high}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
