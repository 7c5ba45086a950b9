//! Collectives against published measurements, and what must hold of any.

use super::*;
use crate::cluster::Cluster;
use crate::platform::Recipe;
use crate::stack::Stack;

const MIB: f64 = 1024.0 * 1024.0;

/// A stack that reaches all that the links give.
fn ideal() -> Stack {
    let mut stack = Stack::find("meshwright").unwrap();
    stack.fitted.network.value = 1.0;
    stack
}

fn seconds(cluster: &str, stack: &Stack, kind: CollectiveKind, bytes: f64, group: Group) -> f64 {
    let cluster = Cluster::find(cluster).unwrap();
    Platform { cluster: &cluster, stack, recipe: &Recipe::bf16() }.collective_time(kind, bytes, group)
}

/// The greatest and the mean factor between predicted and measured seconds.
fn factors(rows: impl IntoIterator<Item = (f64, f64)>) -> (f64, f64) {
    let logs: Vec<f64> = rows.into_iter().map(|(predicted, measured)| (predicted / measured).ln().abs()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    (logs.iter().copied().fold(0.0, f64::max).exp(), mean.exp())
}

/// nccl-tests of all-reduce on AWS p5 (Hugging Face, Smol training playbook, 2025): nodes, MiB, microseconds.
const ALL_REDUCE: &[(u64, f64, f64)] = &[
    (1, 0.25, 20.31),
    (1, 2.0, 43.71),
    (1, 16.0, 124.8),
    (1, 128.0, 586.8),
    (1, 1024.0, 4217.9),
    (1, 8192.0, 31316.0),
    (2, 0.25, 84.55),
    (2, 2.0, 120.0),
    (2, 16.0, 347.3),
    (2, 128.0, 857.2),
    (2, 1024.0, 4676.4),
    (2, 8192.0, 33591.0),
    (4, 0.25, 153.0),
    (4, 2.0, 187.0),
    (4, 16.0, 397.0),
    (4, 128.0, 1177.5),
    (4, 1024.0, 7469.3),
    (4, 8192.0, 46913.0),
    (8, 0.25, 286.4),
    (8, 2.0, 282.6),
    (8, 16.0, 494.6),
    (8, 128.0, 1701.0),
    (8, 1024.0, 7606.2),
    (8, 8192.0, 50743.0),
    (16, 0.25, 303.9),
    (16, 2.0, 323.6),
    (16, 16.0, 565.1),
    (16, 128.0, 2119.5),
    (16, 1024.0, 7776.2),
    (16, 8192.0, 51812.0),
];

/// The same of all-to-all.
const ALL_TO_ALL: &[(u64, f64, f64)] = &[
    (1, 0.25, 10.5),
    (1, 2.0, 22.37),
    (1, 16.0, 71.99),
    (1, 128.0, 387.7),
    (1, 1024.0, 2815.7),
    (2, 2.0, 141.2),
    (2, 16.0, 355.0),
    (2, 128.0, 1827.3),
    (2, 1024.0, 12835.0),
    (4, 2.0, 156.2),
    (4, 16.0, 500.3),
    (4, 128.0, 2474.9),
    (4, 1024.0, 19472.0),
    (16, 2.0, 621.5),
    (16, 16.0, 896.4),
    (16, 128.0, 4161.7),
    (16, 1024.0, 25380.0),
];

/// All-gathers and all-reduces of 256 MB on AWS p5 in 2024 (Ultra-Scale Playbook): nodes, GB/s of bus bandwidth of each.
const PLAYBOOK: &[(u64, f64, f64)] = &[
    (1, 249.85, 435.97),
    (2, 184.61, 361.75),
    (4, 118.97, 160.14),
    (8, 69.0, 99.56),
    (16, 54.97, 84.74),
    (32, 27.97, 64.93),
    (64, 11.04, 32.94),
];

/// All-reduces of 8 A100 (ml-engineering, 2026): MiB, microseconds.
const A100: &[(f64, f64)] =
    &[(8.0, 133.5), (16.0, 276.6), (64.0, 684.6), (256.0, 2420.6), (1024.0, 8203.9), (8192.0, 64074.0)];

#[test]
fn all_reduces_over_efa_take_what_was_measured() {
    let rows = ALL_REDUCE.iter().map(|&(nodes, mib, us)| {
        let group = Group { ranks: 8 * nodes, stride: 1 };
        (seconds("h100-p5-efa", &ideal(), CollectiveKind::AllReduce, mib * MIB, group), us * 1e-6)
    });
    let (most, mean) = factors(rows);
    assert!(most < 1.55 && mean < 1.16, "{most} {mean}");
}

#[test]
fn all_to_alls_over_efa_take_what_was_measured() {
    let rows = ALL_TO_ALL.iter().map(|&(nodes, mib, us)| {
        let group = Group { ranks: 8 * nodes, stride: 1 };
        (seconds("h100-p5-efa", &ideal(), CollectiveKind::AllToAll, mib * MIB, group), us * 1e-6)
    });
    let (most, mean) = factors(rows);
    assert!(most < 1.55 && mean < 1.16, "{most} {mean}");
}

/// The playbook's table is of a shared network: its training runs were faster, and so are predictions.
#[test]
fn collectives_are_no_slower_than_the_playbook_measured() {
    let mut nanotron = Stack::find("nanotron-2024").unwrap();
    nanotron.fitted.network.value = 1.0;
    for &(nodes, gather, sum) in PLAYBOOK {
        let ranks = 8 * nodes;
        let wire = 256e6 * (ranks - 1) as f64 / ranks as f64;
        let of = |kind| seconds("h100-p5-efa", &nanotron, kind, 256e6, Group { ranks, stride: 1 });
        assert!(of(CollectiveKind::AllGather) < 1.25 * wire / (gather * 1e9), "{nodes}");
        assert!(of(CollectiveKind::AllReduce) < 1.25 * 2.0 * wire / (sum * 1e9), "{nodes}");
    }
}

/// One that stands alone takes what the table says: its bytes, and a step for each rank.
#[test]
fn a_ring_that_stands_alone_waits_at_each_rank() {
    let nanotron = Stack::find("nanotron-2024").unwrap();
    let cluster = Cluster::find("h100-p5-efa").unwrap();
    let platform = Platform { cluster: &cluster, stack: &nanotron, recipe: &Recipe::bf16() };
    let rows = PLAYBOOK[1..].iter().map(|&(nodes, gather, _)| {
        let ranks = 8 * nodes;
        let wire = 256e6 * (ranks - 1) as f64 / ranks as f64;
        (
            platform.isolated_time(CollectiveKind::AllGather, 256e6, &Group { ranks, stride: 1 }.into()),
            wire / (gather * 1e9),
        )
    });
    let (most, mean) = factors(rows);
    assert!(most < 1.35 && mean < 1.16, "{most} {mean}");
    let node = Group { ranks: 8, stride: 1 };
    assert_eq!(
        platform.isolated_time(CollectiveKind::AllGather, 1e6, &node.into()),
        platform.collective_time(CollectiveKind::AllGather, 1e6, node)
    );
}

#[test]
fn rings_of_a100_take_what_was_measured() {
    let group = Group { ranks: 8, stride: 1 };
    let rows = A100
        .iter()
        .map(|&(mib, us)| (seconds("a100", &ideal(), CollectiveKind::AllReduce, mib * MIB, group), us * 1e-6));
    let (most, mean) = factors(rows);
    assert!(most < 1.25 && mean < 1.06, "{most} {mean}");
}

#[test]
fn nvlink_sharp_sums_in_the_switch() {
    // ml-engineering: 8 H200 reach 480 GB/s at 16 GiB, 367 by a ring; 8 B200 838 at 8 GiB.
    let bus = |cluster: &str, gib: f64| {
        let bytes = gib * 1024.0 * MIB;
        1.75 * bytes / seconds(cluster, &ideal(), CollectiveKind::AllReduce, bytes, Group { ranks: 8, stride: 1 }) / 1e9
    };
    assert!((bus("h200", 16.0) / 480.0 - 1.0).abs() < 0.03, "{}", bus("h200", 16.0));
    assert!((bus("b200", 8.0) / 838.0 - 1.0).abs() < 0.03, "{}", bus("b200", 8.0));
    let ring = |kind| seconds("h200", &ideal(), kind, 16384.0 * MIB, Group { ranks: 8, stride: 1 });
    let gather = 0.875 * 16384.0 * MIB / ring(CollectiveKind::AllGather) / 1e9;
    assert!((gather / 361.0 - 1.0).abs() < 0.05, "{gather}");
}

#[test]
fn more_bytes_take_longer_and_levels_are_never_worse_than_one_ring() {
    let by_level = ideal();
    let mut by_ring = ideal();
    by_ring.traits.network.hierarchical = false;
    let kinds = [
        CollectiveKind::AllReduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
        CollectiveKind::Send,
    ];
    for preset in crate::CLUSTERS {
        for (kind, ranks, stride) in kinds.iter().flat_map(|&kind| [(kind, 8, 1), (kind, 64, 1), (kind, 16, 8)]) {
            let group = Group { ranks, stride };
            let sizes = (0..12).map(|power| 4096.0 * 4f64.powi(power));
            let times: Vec<f64> = sizes.clone().map(|b| seconds(preset.name, &by_level, kind, b, group)).collect();
            assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{} {kind:?} {group:?} {times:?}", preset.name);
            for (bytes, time) in sizes.zip(times) {
                assert!(time <= seconds(preset.name, &by_ring, kind, bytes, group) && time > 0.0);
            }
        }
    }
}

/// 64 nodes: 6 levels up and down at 28 us a hop; the card sends every byte twice. A ring would take 126 hops.
#[test]
fn a_tree_takes_its_bytes_its_hops_and_what_filling_it_costs() {
    let group = Group { ranks: 64, stride: 8 };
    let time = |bytes| seconds("h100-p5-efa", &ideal(), CollectiveKind::AllReduce, bytes, group) - 6.5e-6;
    let (bytes, hops) = (64e6 * 2.0 / (0.95 * 50e9), 12.0 * 28e-6_f64);
    let filling = 2.0 * (bytes * hops).sqrt();
    assert!((time(64e6) / (bytes + hops + filling) - 1.0).abs() < 1e-9);
    assert!(time(8.0) < 1.01 * hops && time(64e9) < 1.03 * 1e3 * bytes);
}

#[test]
fn a_group_of_one_says_nothing() {
    for kind in [CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll, CollectiveKind::Send] {
        assert_eq!(seconds("h100", &ideal(), kind, 1e9, Group { ranks: 1, stride: 4 }), 0.0);
    }
}

#[test]
fn groups_split_at_the_borders_of_nodes() {
    let time = |cluster: &str, ranks, stride| {
        seconds(cluster, &ideal(), CollectiveKind::AllGather, 64e6, Group { ranks, stride })
    };
    // Eight ranks of one node against eight of eight nodes; a domain of 72 holds what two nodes of 8 do not.
    assert!(time("h100", 8, 8) > 4.0 * time("h100", 8, 1));
    assert!(time("h100", 16, 1) > 1.5 * time("gb200", 16, 1));
    // A ring over nodes takes a node's start too.
    let start = Cluster::find("h100").unwrap().links[0].start;
    assert!(seconds("h100", &ideal(), CollectiveKind::AllGather, 8.0, Group { ranks: 2, stride: 8 }) > start + 5e-6);
    // Every rank of a node has its own card: two groups of stride 2 are as fast as one of stride 1 a node.
    assert!(time("h100", 8, 8) <= time("h100", 16, 8));
}

/// With 8 copies for 16 ranks on two nodes, nearly all rows cross once instead of 4 times. Within a node of 8 a row goes
/// to 5.25 ranks on average, and to one rank if all its experts are there.
#[test]
fn rows_cross_once() {
    let of = |kind, ranks| seconds("h100", &ideal(), kind, 1e9, Group { ranks, stride: 1 });
    let once = |copies, ranks| of(CollectiveKind::Exchange { copies, adjacent: 0 }, ranks);
    assert_eq!(once(1, 16), of(CollectiveKind::AllToAll, 16));
    assert!((once(8, 8) / of(CollectiveKind::AllToAll, 8) - 0.656).abs() < 0.01);
    assert!(once(8, 16) < 0.4 * of(CollectiveKind::AllToAll, 16));
    assert!(once(2, 64) < of(CollectiveKind::AllToAll, 64));
    let beside = of(CollectiveKind::Exchange { copies: 8, adjacent: 64 }, 8);
    assert!((beside / of(CollectiveKind::AllToAll, 8) - 0.125).abs() < 0.01, "{beside}");
}

/// InternEvo, doc/en/train_performance.md: steps of InternLM 7B with optimizer states over all devices, less those within nodes. At most 290
/// parameters are broadcast, each by one rank.
#[test]
fn broadcasts_rank_by_rank_take_what_was_measured() {
    let (cluster, stack) = (Cluster::find("a100-roce400").unwrap(), Stack::find("internevo-2023").unwrap());
    let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
    let seconds =
        |ranks: u64| platform.broadcast_time(2.0 * 7.3e9, (ranks as f64).min(290.0), Group { ranks, stride: 1 });
    for (ranks, measured) in [(64, 0.29), (128, 0.42), (256, 0.93), (512, 1.46), (1024, 2.69)] {
        let more = seconds(ranks) - seconds(8);
        assert!((more / measured - 1.0).abs() < 0.25, "{ranks}: {more} s, measured {measured}");
    }
    assert_eq!(platform.broadcast_time(0.0, 8.0, Group { ranks: 8, stride: 1 }), 0.0);
    assert_eq!(platform.broadcast_time(1e9, 8.0, Group { ranks: 1, stride: 1 }), 0.0);
}
