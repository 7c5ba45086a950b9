//! The assignment problem against trying everything, on small random problems; answers are judged by a checker of their own.

#[path = "assign/draw.rs"]
mod draw;
#[path = "assign/planted.rs"]
mod planted;
#[path = "assign/random.rs"]
mod random;
#[path = "assign/reference.rs"]
mod reference;

use std::time::{Duration, Instant};

use draw::Draw;
use meshwright_solver::Status;
use meshwright_solver::assign::{Budget, Solution};
use planted::Planted;
use random::Shape;
use reference::Stated;

/// Costs are small whole numbers or multiples of 1/8: their sums are exact.
const EXACT: f64 = 1e-6;

fn judged(stated: &Stated, answer: &Solution, what: &str) {
    if answer.status == Status::Infeasible || answer.status == Status::Unknown {
        assert!(answer.choice.is_empty(), "{what}: {answer:?}");
        return;
    }
    let (cost, fits) = stated.judge(&answer.choice);
    assert!(fits, "{what}: more than the limit");
    assert!((cost - answer.cost).abs() <= EXACT * cost.abs().max(1.0), "{what}: {cost} is not {}", answer.cost);
    assert!(answer.bound <= answer.cost, "{what}: bound {} above cost {}", answer.bound, answer.cost);
}

fn equal_to_all_tried(shape: Shape, seeds: std::ops::Range<u64>) {
    let (mut answered, mut refused) = (0, 0);
    for seed in seeds {
        let stated = Draw::new(seed).problem(shape);
        let answer = stated.problem().solve(&Budget::default());
        let what = format!("{shape:?} seed {seed}");
        judged(&stated, &answer, &what);
        match stated.least() {
            Some(least) => {
                assert_eq!(answer.status, Status::Optimal, "{what}");
                assert!((answer.cost - least).abs() <= EXACT, "{what}: {} and the least is {least}", answer.cost);
                answered += 1;
            }
            None => {
                assert_eq!(answer.status, Status::Infeasible, "{what}");
                refused += 1;
            }
        }
    }
    assert!(answered > 0, "{shape:?}: nothing could be answered, {refused} were refused");
}

#[test]
fn free_problems() {
    equal_to_all_tried(Shape { edges: 1.5, forbidden: 0.0, limited: false, loads: 1 }, 0..200);
}

#[test]
fn trees_within_a_limit() {
    equal_to_all_tried(Shape { edges: 0.0, forbidden: 0.1, limited: true, loads: 1 }, 200..400);
}

#[test]
fn cycles_within_a_limit() {
    equal_to_all_tried(Shape { edges: 1.0, forbidden: 0.0, limited: true, loads: 1 }, 400..600);
}

#[test]
fn many_forbidden_pairs() {
    equal_to_all_tried(Shape { edges: 1.0, forbidden: 0.5, limited: true, loads: 1 }, 600..800);
}

#[test]
fn several_loads_a_node() {
    equal_to_all_tried(Shape { edges: 0.7, forbidden: 0.2, limited: true, loads: 3 }, 800..1000);
}

/// The contest's example: its best assignment costs 445.
#[test]
fn the_example_of_the_contest() {
    let stated = Stated::read(include_str!("assign/example.json"));
    let answer = stated.problem().solve(&Budget::default());
    judged(&stated, &answer, "example");
    assert_eq!((answer.cost, answer.status), (445.0, Status::Optimal));
    assert_eq!(answer.choice, [0, 0, 2, 1, 0]);
}

/// Grids of three rows are solved column by column by the reference.
#[test]
fn grids() {
    for seed in 0..10 {
        let (stated, least) = Draw::new(seed).grid(30);
        let answer = stated.problem().solve(&Budget::default());
        judged(&stated, &answer, "grid");
        assert_eq!(answer.status, Status::Optimal, "seed {seed}");
        assert!((answer.cost - least).abs() <= EXACT, "seed {seed}: {} and the least is {least}", answer.cost);
    }
}

/// Small problems with an assignment within the limit: the answer is the least of all.
#[test]
fn planted_problems_equal_to_all_tried() {
    for seed in 0..200 {
        let stated = Stated::planted(&Planted::new(7, 4, seed));
        let answer = stated.problem().solve(&Budget::default());
        judged(&stated, &answer, "planted");
        let least = stated.least().expect("what was planted");
        assert_eq!(answer.status, Status::Optimal, "seed {seed}");
        assert!((answer.cost - least).abs() <= EXACT, "seed {seed}: {} and the least is {least}", answer.cost);
    }
}

/// Larger ones with a limit that what was planted just meets: an assignment is always found, and costs no more than with more work.
#[test]
fn planted_problems_have_an_answer() {
    for (nodes, seed) in [(100, 0), (100, 1), (400, 2), (400, 3), (1000, 4), (1000, 5)] {
        let stated = Stated::planted(&Planted::new(nodes, 12, seed));
        let problem = stated.problem();
        let mut cost = f64::INFINITY;
        for work in [30_000_000, 100_000_000] {
            let answer = problem.solve(&Budget { work: Some(work), ..Budget::default() });
            judged(&stated, &answer, "planted");
            assert!(!answer.choice.is_empty(), "{nodes} nodes, seed {seed}, {work} steps: {answer:?}");
            assert!(answer.cost <= cost, "{nodes} nodes, seed {seed}, {work} steps: {} after {cost}", answer.cost);
            cost = answer.cost;
        }
    }
}

/// A gap that is good enough ends the search: the answer is within it.
#[test]
fn a_gap_is_kept() {
    for seed in 0..50 {
        let stated = Draw::new(seed).problem(Shape { edges: 1.0, forbidden: 0.1, limited: true, loads: 2 });
        let answer = stated.problem().solve(&Budget { gap: 0.2, ..Budget::default() });
        judged(&stated, &answer, "gap");
        if let Some(least) = stated.least() {
            let most = least + 0.2 * answer.cost.abs() + EXACT;
            assert!(answer.cost <= most, "seed {seed}: {} and the least is {least}", answer.cost);
            assert!(answer.gap() <= 0.2 + EXACT, "seed {seed}: {}", answer.gap());
        }
    }
}

/// Threads beside each other find what one does.
#[test]
fn threads_agree() {
    for seed in 0..50 {
        let stated = Draw::new(seed).problem(Shape { edges: 1.0, forbidden: 0.1, limited: true, loads: 2 });
        let time = Some(Duration::from_secs(60));
        let answer = stated.problem().solve(&Budget { work: None, time, threads: 2, ..Budget::default() });
        judged(&stated, &answer, "threads");
        match stated.least() {
            Some(least) => assert!((answer.cost - least).abs() <= EXACT, "seed {seed}"),
            None => assert_eq!(answer.status, Status::Infeasible, "seed {seed}"),
        }
    }
}

/// Larger ones cannot be tried out: a search that is cut short must still give a bound below the optimum.
#[test]
fn bounds_hold_when_cut_short() {
    let shape = Shape { edges: 0.8, forbidden: 0.01, limited: true, loads: 2 };
    let mut proved = 0;
    for seed in 0..20 {
        let stated = Draw::new(seed).larger(shape, 40);
        let problem = stated.problem();
        let whole = problem.solve(&Budget::default());
        judged(&stated, &whole, "whole");
        for work in [1, 100_000, 1_000_000] {
            let short = problem.solve(&Budget { work: Some(work), ..Budget::default() });
            judged(&stated, &short, "short");
            if whole.status == Status::Optimal {
                proved += 1;
                let slack = 1e-6 * whole.cost.abs();
                assert!(short.bound <= whole.cost + slack, "seed {seed}: {} > {}", short.bound, whole.cost);
                assert!(short.cost >= whole.cost - slack, "seed {seed}: {} < {}", short.cost, whole.cost);
            }
        }
        let again = problem.solve(&Budget { work: Some(1_000_000), ..Budget::default() });
        assert_eq!(again, problem.solve(&Budget { work: Some(1_000_000), ..Budget::default() }), "seed {seed}");
    }
    assert!(proved > 20, "only {proved} answers to hold bounds against");
}

/// The time is a limit of the clock: it is tested with much to spare.
#[test]
fn deadlines_are_kept() {
    let stated = Draw::new(7).larger(Shape { edges: 3.0, forbidden: 0.0, limited: true, loads: 2 }, 2000);
    let problem = stated.problem();
    let start = Instant::now();
    let time = Some(Duration::from_millis(300));
    let answer = problem.solve(&Budget { work: None, time, threads: 2, ..Budget::default() });
    judged(&stated, &answer, "deadline");
    assert!(!matches!(answer.status, Status::Infeasible | Status::Optimal), "a problem that does not take long");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
