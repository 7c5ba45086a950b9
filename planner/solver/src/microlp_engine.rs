//! microlp: simplex and branch and bound in Rust. Used directly, since good_lp passes on neither the limit of nodes nor the
//! bound.

use crate::program::{Answer, Limits, Program, Relation, Status};
use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, SolveOptions, TerminationReason, Variable};

pub(crate) fn solve(program: &Program, limits: &Limits, start: Option<&[f64]>) -> Answer {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let variables: Vec<Variable> = (program.columns.iter())
        .map(|column| match column.integer {
            true => problem.add_integer_var(column.cost, (column.least as i32, column.most as i32)),
            false => problem.add_var(column.cost, (column.least, column.most)),
        })
        .collect();
    for row in &program.rows {
        let relation = match row.relation {
            Relation::Le => ComparisonOp::Le,
            Relation::Ge => ComparisonOp::Ge,
            Relation::Eq => ComparisonOp::Eq,
        };
        let terms: Vec<(Variable, f64)> = row.terms.iter().map(|&(var, factor)| (variables[var.0], factor)).collect();
        problem.add_constraint(terms, relation, row.right);
    }
    let mut options = SolveOptions::default();
    options.node_limit = limits.nodes;
    options.time_limit = limits.time;
    options.mip_gap = limits.gap;
    options.warm_start = start.map(|values| variables.iter().copied().zip(values.iter().copied()).collect());

    let outcome = match problem.solve_with(options) {
        Ok(outcome) => outcome,
        Err(Error::Infeasible) => return Answer::without(Status::Infeasible, None),
        Err(_) => return Answer::without(Status::Unknown, None),
    };
    let bound = outcome.stats().best_bound;
    let Some(solution) = outcome.solution() else { return Answer::without(Status::Unknown, bound) };
    let status = match solution.termination_reason() {
        TerminationReason::ProvenOptimal => Status::Optimal,
        _ => Status::Feasible,
    };
    let values = variables.iter().map(|&variable| solution.var_value_raw(variable)).collect();
    Answer { values, objective: solution.objective(), bound, status }
}
