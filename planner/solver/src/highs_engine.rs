//! HiGHS through good_lp, which reports no bound before optimality, and takes a gap of 1e-9 for optimal.

use crate::program::{Answer, Limits, Program, Relation, Status};
use good_lp::solvers::highs::highs;
use good_lp::{Expression, ProblemVariables, ResolutionError, Solution, SolverModel, WithInitialSolution, variable};

/// Relative gap below which an answer is optimal: the solver's own tolerance of feasibility.
const PROVED: f64 = 1e-7;

pub(crate) fn solve(program: &Program, limits: &Limits, start: Option<&[f64]>) -> Answer {
    let mut problem = ProblemVariables::new();
    let variables: Vec<_> = (program.columns.iter())
        .map(|column| {
            let definition = variable().min(column.least).max(column.most);
            problem.add(if column.integer { definition.integer() } else { definition })
        })
        .collect();
    let objective: Expression = variables.iter().zip(&program.columns).map(|(&v, column)| column.cost * v).sum();
    let mut model = problem.minimise(objective).using(highs).set_threads(1);
    model = model.set_option("mip_rel_gap", limits.gap.max(PROVED)).set_option("mip_abs_gap", 0.0);
    if let Some(nodes) = limits.nodes {
        model = model.set_option("mip_max_nodes", i32::try_from(nodes).unwrap_or(i32::MAX));
    }
    if let Some(time) = limits.time {
        model = model.set_time_limit(time.as_secs_f64());
    }
    for row in &program.rows {
        let sum: Expression = row.terms.iter().map(|&(var, factor)| factor * variables[var.index()]).sum();
        model.add_constraint(match row.relation {
            Relation::Le => sum.leq(row.right),
            Relation::Ge => sum.geq(row.right),
            Relation::Eq => sum.eq(row.right),
        });
    }
    if let Some(start) = start {
        model = model.with_initial_solution(variables.iter().copied().zip(start.iter().copied()));
    }
    let solution = match model.solve() {
        Ok(solution) => solution,
        Err(ResolutionError::Infeasible) => return Answer::without(Status::Infeasible, None),
        Err(_) => return Answer::without(Status::Unknown, None),
    };
    let values: Vec<f64> = variables.iter().map(|&variable| solution.value(variable)).collect();
    let objective = program.objective(&values);
    let proved = limits.gap <= PROVED && !matches!(solution.status(), good_lp::solvers::SolutionStatus::TimeLimit);
    let (status, bound) = if proved { (Status::Optimal, Some(objective)) } else { (Status::Feasible, None) };
    Answer { values, objective, bound, status }
}
