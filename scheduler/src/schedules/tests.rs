//! Closed forms of the literature over grids of ranks, chunks, micro-batches and costs.

mod chains;
mod directions;
mod loops;
mod properties;

use super::*;
use crate::bound::lower_bound;
use crate::check::check;
use crate::simulate::{Timeline, simulate};

/// Seconds of F, I and W.
const COSTS: [(f64, f64, f64); 3] = [(1.0, 1.0, 1.0), (10.0, 11.0, 7.0), (3.0, 5.0, 2.0)];

/// The kinds whose order follows from ranks, chunks and micro-batches alone.
const RULES: [&str; 14] = [
    "gpipe",
    "1f1b",
    "eager-1f1b",
    "zb-h1",
    "zb-h2",
    "seq1f1b",
    "interleaved-1f1b",
    "looped-bfs",
    "interleaved-zb",
    "grouped-interleaved",
    "chimera",
    "dualpipe",
    "dualpipe-v",
    "hanayo",
];

fn grid() -> impl Iterator<Item = (u32, u32)> {
    (1..=6).flat_map(|p| [1, 2, 3, 4, 7, 12].map(|m| (p, m)))
}

/// A pipeline of one kind on p ranks.
#[derive(Clone, Copy)]
struct Case {
    kind: &'static ScheduleKind,
    pipeline: Pipeline,
}

impl Case {
    fn new(name: &str, ranks: u32, chunks: Option<u32>, microbatches: u32) -> Case {
        let kind = find(name).unwrap();
        Case { kind, pipeline: kind.pipeline(ranks, chunks, microbatches).unwrap() }
    }

    fn group(self, group: u32) -> Case {
        Case { pipeline: self.kind.choose(self.pipeline, Some(group), None).unwrap(), ..self }
    }

    fn slices(self, slices: u32) -> Case {
        Case { pipeline: self.kind.choose(self.pipeline, None, Some(slices)).unwrap(), ..self }
    }

    fn costs(&self, (f, i, w): (f64, f64, f64), comm: f64) -> StageCosts {
        StageCosts::uniform(self.pipeline.stages(), f, i, w, comm)
    }

    fn make(&self) -> Result<Schedule, ScheduleError> {
        self.kind.make(&self.costs((1.0, 1.0, 1.0), 0.0), &self.pipeline)
    }

    fn time(&self, fiw: (f64, f64, f64), comm: f64) -> Timeline {
        simulate(&self.make().unwrap(), &self.costs(fiw, comm)).unwrap()
    }

    /// Returns the largest number of activations of each rank from F until W or B, each counted as one.
    fn peaks(&self) -> Vec<u32> {
        let peak = |row: &Vec<Action>| {
            let (mut held, mut peak) = (0, 0);
            for action in row {
                held += action.items().filter(|item| item.kind == Kind::F).count() as u32;
                peak = peak.max(held);
                held -= action.items().filter(|item| matches!(item.kind, Kind::B | Kind::W)).count() as u32;
            }
            peak
        };
        self.make().unwrap().rows.iter().map(peak).collect()
    }
}

#[test]
fn every_rule_passes_the_checker_fused_and_split() {
    for name in RULES {
        for (p, m) in grid() {
            let case = Case::new(name, p, None, m);
            let fits = match name {
                "zb-h2" => m >= 2 * p - 1,
                "chimera" => p.is_multiple_of(2) && m.is_multiple_of(2),
                "dualpipe" => p.is_multiple_of(2) && m.is_multiple_of(2) && m >= 2 * p,
                "dualpipe-v" => m >= 2 * p,
                _ => true,
            };
            let made = case.make();
            assert_eq!(made.is_ok(), fits, "{name} p={p} m={m}: {made:?}");
            for schedule in made.into_iter().flat_map(|made| [split_backward(made.clone()), made]) {
                let costs = case.costs((1.0, 1.0, 1.0), 0.0);
                let found = check(&schedule, &costs, m, |stage, mb| case.pipeline.rank(stage, mb));
                assert_eq!(found, vec![], "{name} p={p} m={m}");
                assert_eq!(schedule.name, name);
            }
        }
    }
}

#[test]
fn more_chunks_groups_and_slices_pass_the_checker() {
    let mut cases = Vec::new();
    for (p, m) in [(1, 3), (2, 5), (3, 2), (3, 7), (4, 8), (4, 14), (5, 11)] {
        cases.extend((1..=4).map(|q| Case::new("seq1f1b", p, None, m).slices(q)));
        cases.extend([4, 6].map(|v| Case::new("hanayo", p, Some(v), m)));
        for v in 2..=4 {
            cases.extend(
                ["interleaved-1f1b", "interleaved-zb", "looped-bfs"].map(|name| Case::new(name, p, Some(v), m)),
            );
            let groups = (p.min(m)..=m).filter(|g| m.is_multiple_of(*g) || m % g >= p);
            let grouped = ["interleaved-1f1b", "interleaved-zb"].map(|name| Case::new(name, p, Some(v), m));
            cases.extend(groups.flat_map(|g| grouped.map(|case| case.group(g))));
            cases.extend((p.div_ceil(2)..=p).map(|g| Case::new("grouped-interleaved", p, Some(v), m).group(g)));
        }
    }
    for case in cases {
        let costs = case.costs((1.0, 1.0, 1.0), 0.0);
        let pipeline = case.pipeline;
        let found = check(&case.make().unwrap(), &costs, pipeline.microbatches, |stage, mb| pipeline.rank(stage, mb));
        assert_eq!(found, vec![], "{} {pipeline:?}", case.kind.name);
    }
}

#[test]
fn the_bound_proves_1f1b_optimal_among_fused_orders_and_never_exceeds_a_rule() {
    for name in RULES {
        for (p, m) in grid() {
            let case = Case::new(name, p, None, m);
            for fiw in COSTS.into_iter().filter(|_| case.make().is_ok()) {
                for comm in [0.0, 2.0] {
                    let time = case.time(fiw, comm);
                    let lower = |fused| lower_bound(&case.costs(fiw, comm), &case.pipeline, fused);
                    let (fused, split) = (lower(true), lower(false));
                    assert!(split.makespan <= fused.makespan && split.makespan <= time.makespan, "{name} p={p} m={m}");
                    assert!(split.span <= time.span, "{name} p={p} m={m}");
                    if name == "1f1b" {
                        assert!(fused.makespan <= time.makespan && fused.span <= time.span);
                        assert!(comm > 0.0 || fused.makespan == time.makespan, "p={p} m={m}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_split_backward_frees_the_upstream_rank_earlier() {
    let case = Case::new("1f1b", 4, None, 8);
    let split = split_backward(case.make().unwrap());
    assert_eq!(split.rows[3][..4].iter().map(Action::to_string).collect::<Vec<_>>(), ["3F0", "3I0", "3W0", "3F1"]);
    // Warm-up and the one drain of 4 ranks each lose w per hop: 33 - 3.
    assert_eq!(simulate(&split, &case.costs((1.0, 1.0, 1.0), 0.0)).unwrap().makespan, 30.0);
}

#[test]
fn other_numbers_of_stages_are_refused() {
    let costs = StageCosts::uniform(5, 1.0, 1.0, 1.0, 0.0);
    let error = find("gpipe").unwrap().make(&costs, &Pipeline::new(Placement::Chain, 4, 8)).unwrap_err();
    assert_eq!(error.to_string(), "a chain on 4 ranks has 4 stages, not 5");
}

#[test]
fn a_constraint_that_fails_says_what_would_do() {
    let why = |name, p, v, m, g, q| {
        let kind = find(name).unwrap();
        let case = |pipeline| Case { kind, pipeline };
        let chosen = kind.pipeline(p, v, m).and_then(|pipeline| kind.choose(pipeline, g, q));
        chosen.and_then(|pipeline| case(pipeline).make()).unwrap_err().to_string()
    };
    let (none, some) = (None, Some);
    for (found, expected) in [
        (why("zb-h2", 4, none, 6, none, none), "4 ranks need 7 micro-batches or more, not 6; zb-h1 takes any number"),
        (why("dualpipe", 4, none, 6, none, none), "4 ranks need 8 micro-batches or more, not 6"),
        (why("dualpipe-v", 4, none, 7, none, none), "4 ranks need 8 micro-batches or more, not 7"),
        (why("dualpipe", 3, none, 8, none, none), "two directions share the ranks: 2 or 4 would do, not 3"),
        (why("chimera", 4, none, 1, none, none), "two directions share the micro-batches: 2 would do, not 1"),
        (why("hanayo", 4, some(3), 8, none, none), "a wave is 2 chunks per rank: 2 or 4 chunks would do, not 3"),
        (why("interleaved-1f1b", 4, some(1), 8, none, none), "it has 2 or more chunks per rank, not 1"),
        (why("interleaved-1f1b", 4, none, 8, some(3), none), "groups have 4 to 8 micro-batches, not 3"),
        (
            why("interleaved-zb", 4, none, 9, some(4), none),
            "groups of 4 leave a last group of 1, but each needs 4 micro-batches or more: 8 micro-batches would do",
        ),
        (why("grouped-interleaved", 4, none, 8, some(5), none), "on 4 ranks groups have 2 to 4 micro-batches, not 5"),
        (
            why("1f1b", 4, none, 8, some(4), none),
            "it has no groups: interleaved-1f1b, interleaved-zb, grouped-interleaved have them",
        ),
        (why("interleaved-1f1b", 4, none, 8, none, some(2)), "it has no slices: seq1f1b has them"),
    ] {
        assert_eq!(found, expected);
    }
}
