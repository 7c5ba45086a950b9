//! Mixed linear programs, and what a solver answers.

use std::time::Duration;

/// A variable of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Var(pub(crate) usize);

impl Var {
    /// The variable's place in [`Answer::values`] and in a start.
    pub fn index(self) -> usize {
        self.0
    }
}

/// How a sum relates to its right-hand side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// At most.
    Le,
    /// At least.
    Ge,
    /// Equal.
    Eq,
}

/// A minimisation: `min Σ cost x`, subject to linear rows, bounds and integrality.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) cost: f64,
    pub(crate) integer: bool,
}

impl Column {
    /// Returns whether a value keeps the bounds and the integrality, up to rounding.
    fn holds(&self, value: f64) -> bool {
        let slack = SLACK * value.abs().max(1.0);
        let within = (self.least - slack..=self.most + slack).contains(&value);
        within && (!self.integer || (value - value.round()).abs() <= SLACK)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) terms: Vec<(Var, f64)>,
    pub(crate) relation: Relation,
    pub(crate) right: f64,
}

/// When to stop before optimality is proved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Limit on nodes of the search tree; the same on every machine. `None`: no limit.
    pub nodes: Option<u64>,
    /// Time on the clock; answers then depend on the machine.
    pub time: Option<Duration>,
    /// Relative distance between answer and bound that is good enough.
    pub gap: f64,
}

/// Status of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// No assignment is better.
    Optimal,
    /// An assignment within all rows; better ones may exist.
    Feasible,
    /// There is no assignment.
    Infeasible,
    /// Stopped with no assignment, or with none that passes the check of its rows.
    Unknown,
}

/// Answer of a solver.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// One per variable, integers exact; empty unless the status is Optimal or Feasible.
    pub values: Vec<f64>,
    /// The sum that is small; infinite without values.
    pub objective: f64,
    /// No assignment has a smaller objective, according to the solver.
    pub bound: Option<f64>,
    /// The status of the answer.
    pub status: Status,
}

/// How far a row may be missed, of the largest term in it (at least 1): the solvers' feasibility tolerance, 1e-7, times
/// ten for sums of many terms.
const SLACK: f64 = 1e-6;

impl Program {
    /// A program without variables and rows.
    pub fn new() -> Program {
        Program::default()
    }

    /// A 0/1 variable; `cost` is its weight in the objective.
    pub fn binary(&mut self, cost: f64) -> Var {
        self.integer(0, 1, cost)
    }

    /// An integer variable between `least` and `most`, both included.
    pub fn integer(&mut self, least: i32, most: i32, cost: f64) -> Var {
        self.column(Column { least: f64::from(least), most: f64::from(most), cost, integer: true })
    }

    /// A real variable between `least` and `most`; either may be infinite.
    pub fn real(&mut self, least: f64, most: f64, cost: f64) -> Var {
        self.column(Column { least, most, cost, integer: false })
    }

    fn column(&mut self, column: Column) -> Var {
        self.columns.push(column);
        Var(self.columns.len() - 1)
    }

    /// The row `Σ terms relation right`. A variable may be in it more than once.
    pub fn constrain(&mut self, terms: impl IntoIterator<Item = (Var, f64)>, relation: Relation, right: f64) {
        let mut terms: Vec<(Var, f64)> = terms.into_iter().collect();
        terms.sort_by_key(|&(var, _)| var);
        terms.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 += later.1;
            }
            same
        });
        self.rows.push(Row { terms, relation, right });
    }

    /// How many variables there are.
    pub fn variables(&self) -> usize {
        self.columns.len()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The objective of an assignment.
    pub fn objective(&self, values: &[f64]) -> f64 {
        self.columns.iter().zip(values).map(|(column, value)| column.cost * value).sum()
    }

    /// Returns whether an assignment of all variables keeps all bounds, rows and integrality, up to rounding.
    pub fn holds(&self, values: &[f64]) -> bool {
        values.len() == self.columns.len()
            && self.columns.iter().zip(values).all(|(column, &value)| column.holds(value))
            && self.rows.iter().all(|row| row.holds(values))
    }

    /// Solves with HiGHS if it is built in (feature `highs`), else with microlp.
    ///
    /// `start` is a complete assignment to begin from; one that does not hold is ignored. With a start that holds, the
    /// answer is never worse than it.
    pub fn solve(&self, limits: &Limits, start: Option<&[f64]>) -> Answer {
        let start = start.filter(|values| self.holds(values));
        #[cfg(feature = "highs")]
        let answer = crate::highs_engine::solve(self, limits, start);
        #[cfg(not(feature = "highs"))]
        let answer = crate::microlp_engine::solve(self, limits, start);
        self.checked(answer, start)
    }

    /// Checks an answer: values must satisfy their rows, and be no worse than the start.
    fn checked(&self, mut answer: Answer, start: Option<&[f64]>) -> Answer {
        for (value, column) in answer.values.iter_mut().zip(&self.columns) {
            *value = if column.integer { value.round() } else { *value };
        }
        if !self.holds(&answer.values) && !matches!(answer.status, Status::Infeasible | Status::Unknown) {
            answer = Answer::without(Status::Unknown, None);
        }
        if let Some(start) = start
            && (answer.values.is_empty() || self.objective(start) < answer.objective)
        {
            let status = Status::Feasible;
            answer = Answer { values: start.to_vec(), objective: self.objective(start), status, ..answer };
        }
        answer
    }
}

impl Row {
    fn holds(&self, values: &[f64]) -> bool {
        let (mut sum, mut largest) = (0.0, self.right.abs().max(1.0));
        for &(var, factor) in &self.terms {
            let term = factor * values[var.0];
            sum += term;
            largest = f64::max(largest, term.abs());
        }
        let over = sum - self.right;
        match self.relation {
            Relation::Le => over <= SLACK * largest,
            Relation::Ge => -over <= SLACK * largest,
            Relation::Eq => over.abs() <= SLACK * largest,
        }
    }
}

impl Answer {
    pub(crate) fn without(status: Status, bound: Option<f64>) -> Answer {
        Answer { values: Vec::new(), objective: f64::INFINITY, bound, status }
    }
}

#[cfg(test)]
mod tests;
