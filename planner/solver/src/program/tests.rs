//! Small random programs against all their assignments.

use super::*;
use proptest::prelude::*;

/// Factors, relation and right-hand side.
type Small = (Vec<i32>, u8, i32);

/// A small program: 0/1 variables with costs, and rows of small integer factors.
fn small() -> impl Strategy<Value = (Vec<i32>, Vec<Small>)> {
    (1usize..8).prop_flat_map(|variables| {
        let row = (prop::collection::vec(-4..5i32, variables), 0..3u8, -3..6i32);
        (prop::collection::vec(-9..10i32, variables), prop::collection::vec(row, 0..5))
    })
}

fn built(costs: &[i32], rows: &[Small]) -> Program {
    let mut program = Program::new();
    let vars: Vec<Var> = costs.iter().map(|&cost| program.binary(f64::from(cost))).collect();
    for (factors, relation, right) in rows {
        let relation = [Relation::Le, Relation::Ge, Relation::Eq][usize::from(*relation)];
        program.constrain(vars.iter().copied().zip(factors.iter().map(|&f| f64::from(f))), relation, f64::from(*right));
    }
    program
}

/// The least objective over all assignments, in integers.
fn tried(costs: &[i32], rows: &[Small]) -> Option<i32> {
    let sum = |factors: &[i32], bits: u32| -> i32 {
        (0..factors.len()).map(|at| factors[at] * (bits >> at & 1) as i32).sum()
    };
    let holds = |bits: u32| {
        rows.iter().all(|(factors, relation, right)| match (relation, sum(factors, bits)) {
            (0, total) => total <= *right,
            (1, total) => total >= *right,
            (_, total) => total == *right,
        })
    };
    (0..1u32 << costs.len()).filter(|&bits| holds(bits)).map(|bits| sum(costs, bits)).min()
}

proptest! {
    #[test]
    fn the_answer_is_that_of_trying_all((costs, rows) in small()) {
        let answer = built(&costs, &rows).solve(&Limits::default(), None);
        match tried(&costs, &rows) {
            Some(least) => {
                prop_assert_eq!(answer.status, Status::Optimal);
                prop_assert!((answer.objective - f64::from(least)).abs() < 1e-6);
            }
            None => prop_assert_eq!(answer.status, Status::Infeasible),
        }
    }
}

/// max 5x + 4y + 3z with 2x + 3y + z <= 5, 4x + y + 2z <= 11, 3x + 4y + 2z <= 8: 13 at (2, 0, 1) (Chvatal, Linear
/// Programming, chapter 2).
fn textbook() -> (Program, [Var; 3]) {
    let mut program = Program::new();
    let vars = [-5.0, -4.0, -3.0].map(|cost| program.real(0.0, f64::INFINITY, cost));
    for (factors, right) in [([2.0, 3.0, 1.0], 5.0), ([4.0, 1.0, 2.0], 11.0), ([3.0, 4.0, 2.0], 8.0)] {
        program.constrain(vars.into_iter().zip(factors), Relation::Le, right);
    }
    (program, vars)
}

#[test]
fn reals_are_solved() {
    let (program, [x, y, z]) = textbook();
    let answer = program.solve(&Limits::default(), None);
    let value = |var: Var| (answer.values[var.index()] * 1e6).round() / 1e6;
    assert_eq!((answer.status, value(x), value(y), value(z)), (Status::Optimal, 2.0, 0.0, 1.0));
    assert!((answer.objective + 13.0).abs() < 1e-6);
}

#[test]
fn integers_lie_within_their_bounds() {
    let mut program = Program::new();
    let (n, x) = (program.integer(-3, 9, -2.0), program.real(0.5, 4.0, 1.0));
    program.constrain([(n, 2.0), (x, -1.0)], Relation::Le, 6.0);
    let answer = program.solve(&Limits::default(), None);
    // 2n <= 6 + x: n = 5 with x = 4 gives -6; n = 3 with x = 0.5 gives -5.5; n = 4 with x = 2 gives -6.
    assert_eq!(answer.status, Status::Optimal);
    assert!((answer.objective + 6.0).abs() < 1e-6 && program.holds(&answer.values), "{answer:?}");
}

/// A knapsack of ten: too much for no node at all, but a start that holds is kept.
#[test]
fn out_of_nodes_the_start_is_the_answer() {
    let mut program = Program::new();
    let weights = [31.0, 29.0, 27.0, 23.0, 22.0, 19.0, 17.0, 13.0, 11.0, 7.0];
    let vars = weights.map(|weight| program.binary(-weight - 0.1));
    program.constrain(vars.into_iter().zip(weights), Relation::Le, 100.0);
    let start: Vec<f64> = (0..10).map(|at| f64::from(at < 3)).collect();
    let answer = program.solve(&Limits { nodes: Some(1), ..Limits::default() }, Some(&start));
    assert!(answer.objective <= program.objective(&start) && program.holds(&answer.values), "{answer:?}");
    assert!(answer.bound.is_none_or(|bound| bound <= answer.objective + 1e-9), "{answer:?}");
    let outside: Vec<f64> = vec![1.0; 10];
    assert!(!program.holds(&outside));
    let proved = program.solve(&Limits::default(), Some(&outside));
    assert_eq!(proved.status, Status::Optimal);
    assert!(proved.objective <= answer.objective + 1e-9);
}

#[test]
fn a_variable_may_stand_twice_in_a_row() {
    let mut program = Program::new();
    let x = program.integer(0, 10, -1.0);
    program.constrain([(x, 1.0), (x, 2.0)], Relation::Le, 10.0);
    assert_eq!(program.solve(&Limits::default(), None).values, [3.0]);
}
