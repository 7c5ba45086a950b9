//! Closed forms of the literature over a grid of ranks, micro-batches and costs.

use super::*;
use crate::check::check;
use crate::simulate::simulate;

const COSTS: [(f64, f64, f64); 3] = [(1.0, 1.0, 1.0), (10.0, 11.0, 7.0), (3.0, 5.0, 2.0)];

fn grid() -> impl Iterator<Item = (u32, u32)> {
    (1..=6).flat_map(|p| [1, 2, 3, 4, 7, 12].map(|m| (p, m)))
}

fn make(name: &str, costs: &StageCosts, m: u32) -> Schedule {
    let kind = find(name).unwrap();
    kind.make(costs, &kind.pipeline(costs.stages(), None, m).unwrap()).unwrap()
}

#[test]
fn both_kinds_have_the_bubble_of_the_table() {
    for kind in ["gpipe", "1f1b"].map(|name| find(name).unwrap()) {
        for (p, m) in grid() {
            for (f, i, w) in COSTS {
                let costs = StageCosts::uniform(p, f, i, w, 0.0);
                let time = simulate(&make(kind.name, &costs, m), &costs).unwrap();
                let t = f + i + w;
                assert_eq!(time.makespan, f64::from(m + p - 1) * t, "{} p={p} m={m}", kind.name);
                assert_eq!(time.span, time.makespan, "rank 0 is first and last");
                assert_eq!(time.bubble(), f64::from(p - 1) / f64::from(m + p - 1));
            }
        }
    }
}

#[test]
fn gpipe_pays_each_hop_once_per_direction() {
    for (p, m) in grid() {
        let costs = StageCosts::uniform(p, 10.0, 11.0, 7.0, 3.0);
        let time = simulate(&make("gpipe", &costs, m), &costs).unwrap();
        assert_eq!(time.makespan, f64::from(m + p - 1) * 28.0 + 2.0 * f64::from(p - 1) * 3.0, "p={p} m={m}");
    }
}

#[test]
fn peaks_are_those_of_the_table() {
    for (p, m) in grid() {
        let costs = StageCosts::uniform(p, 1.0, 1.0, 1.0, 0.5);
        let peak = |name| simulate(&make(name, &costs, m), &costs).unwrap().peak_memory;
        assert_eq!(peak("gpipe"), vec![f64::from(m); p as usize]);
        assert_eq!(peak("1f1b"), (0..p).map(|r| f64::from(m.min(p - r))).collect::<Vec<_>>());
    }
}

#[test]
fn every_kind_passes_the_checker_fused_and_split() {
    for kind in ["gpipe", "1f1b"].map(|name| find(name).unwrap()) {
        for (p, m) in grid() {
            let costs = StageCosts::uniform(p, 1.0, 1.0, 1.0, 0.0);
            let fused = make(kind.name, &costs, m);
            let split = split_backward(fused.clone());
            for schedule in [fused, split] {
                assert_eq!(check(&schedule, &costs, m, |stage, _| stage), vec![]);
            }
        }
    }
}

#[test]
fn a_split_backward_frees_the_upstream_rank_earlier() {
    let costs = StageCosts::uniform(4, 1.0, 1.0, 1.0, 0.0);
    let split = split_backward(make("1f1b", &costs, 8));
    assert_eq!(split.rows[3][..4].iter().map(Action::to_string).collect::<Vec<_>>(), ["3F0", "3I0", "3W0", "3F1"]);
    // Warm-up and the one drain of 4 ranks each lose w per hop: 33 - 3.
    assert_eq!(simulate(&split, &costs).unwrap().makespan, 30.0);
}

#[test]
fn the_bound_proves_1f1b_optimal_among_fused_orders_and_never_exceeds_a_simulation() {
    for (p, m) in grid() {
        for (f, i, w) in COSTS {
            for comm in [0.0, 2.0] {
                let costs = StageCosts::uniform(p, f, i, w, comm);
                let time = simulate(&make("1f1b", &costs, m), &costs).unwrap();
                let bound = |fused| lower(&costs, p, m, fused);
                assert!(bound(true).makespan <= time.makespan && bound(false).makespan <= bound(true).makespan);
                assert!(bound(true).span <= time.span && bound(false).span <= time.span);
                if comm == 0.0 {
                    assert_eq!(bound(true).makespan, time.makespan);
                }
            }
        }
    }
}

fn lower(costs: &StageCosts, p: u32, m: u32, fused: bool) -> bound::Bound {
    bound::lower_bound(costs, &Pipeline::new(Placement::Chain, p, m), fused)
}

#[test]
fn other_numbers_of_stages_are_refused() {
    let costs = StageCosts::uniform(5, 1.0, 1.0, 1.0, 0.0);
    let error = find("gpipe").unwrap().make(&costs, &Pipeline::new(Placement::Chain, 4, 8)).unwrap_err();
    assert_eq!(error, "a chain on 4 ranks has 4 stages, not 5");
}
