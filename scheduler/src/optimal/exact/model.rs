//! One question to the constraint solver: is there an order whose value is at most a target?

use super::super::Budget;
use super::super::shop::{Origin, Shop};
use super::super::windows::Windows;
use pumpkin_solver::Solver;
use pumpkin_solver::conflict_resolvers::resolvers::ResolutionResolver;
use pumpkin_solver::core::branching::branchers::autonomous_search::AutonomousSearch;
use pumpkin_solver::core::branching::branchers::independent_variable_value_brancher::IndependentVariableValueBrancher;
use pumpkin_solver::core::branching::value_selection::InDomainMin;
use pumpkin_solver::core::branching::variable_selection::Smallest;
use pumpkin_solver::core::options::SolverOptions;
use pumpkin_solver::core::results::{ProblemSolution, SatisfactionResult, Solution};
use pumpkin_solver::core::termination::TerminationCondition;
use pumpkin_solver::core::variables::{AffineView, DomainId, Literal, TransformableVariable};
use pumpkin_solver::propagators::disjunctive::ArgDisjunctiveTask;
use pumpkin_solver::{disjunctive_strict, less_than_or_equals};
use std::collections::HashMap;

/// What the solver says.
pub(super) enum Reply {
    /// The operations of each rank in an order within the target.
    Orders(Vec<Vec<usize>>),
    /// There is none.
    None,
    /// The budget was spent.
    Open,
}

/// Asks whether an order has a value of at most `target`; takes the steps it needs from the budget.
///
/// Variables: the start of each operation, and for each pair of a rank that [`Windows`] leaves open a literal, which
/// goes first. The order is read from what is known and the literals, never from the starts.
pub(super) fn ask(shop: &Shop, windows: &Windows, target: i64, budget: &mut Budget) -> Reply {
    let mut model = Model::new(shop, windows);
    model.precedences();
    model.pairs();
    model.memory();
    model.origins(target);
    model.ranks();
    model.solve(budget)
}

struct Model<'a> {
    shop: &'a Shop,
    windows: &'a Windows,
    solver: Solver,
    starts: Vec<DomainId>,
    /// True where the first operation, of the smaller index, goes before the second.
    first: HashMap<(usize, usize), Literal>,
}

/// Counts the work of steps down, and looks at the clock now and then.
struct Countdown<'a> {
    budget: &'a mut Budget,
    /// Work of a step: what is propagated grows with the problem.
    step: u64,
    steps: u64,
}

impl TerminationCondition for Countdown<'_> {
    fn should_stop(&mut self) -> bool {
        self.budget.work = self.budget.work.saturating_sub(self.step);
        self.steps += 1;
        self.budget.work == 0 || (self.steps.is_multiple_of(64) && self.budget.late())
    }
}

impl<'a> Model<'a> {
    fn new(shop: &'a Shop, windows: &'a Windows) -> Model<'a> {
        let options = SolverOptions { memory_preallocated: 1, ..SolverOptions::default() };
        let mut solver = Solver::with_options(options);
        let starts = (0..shop.len())
            .map(|index| {
                let last = windows.latest[index] - shop.long[index];
                solver.new_bounded_integer(windows.earliest[index] as i32, last as i32)
            })
            .collect();
        Model { shop, windows, solver, starts, first: HashMap::new() }
    }

    /// `start(a) + units <= start(b)`.
    fn apart(&self, a: usize, b: usize) -> Box<[AffineView<DomainId>]> {
        Box::new([self.starts[a].scaled(1), self.starts[b].scaled(-1)])
    }

    fn precedences(&mut self) {
        let shop = self.shop;
        for (index, after) in shop.after.iter().enumerate() {
            for &(from, lag) in after {
                self.before(from, index, lag);
            }
        }
        for rank in &shop.of_rank {
            for &index in rank {
                for from in self.windows.direct(index, rank) {
                    self.before(from, index, 0);
                }
            }
        }
    }

    fn before(&mut self, from: usize, index: usize, lag: i64) {
        let (terms, tag) = (self.apart(from, index), self.solver.new_constraint_tag());
        let apart = (self.shop.long[from] + lag) as i32;
        self.solver.add_constraint(less_than_or_equals(terms, -apart, tag)).post();
    }

    /// A literal for each open pair.
    fn pairs(&mut self) {
        let shop = self.shop;
        for rank in &shop.of_rank {
            for (nth, &a) in rank.iter().enumerate() {
                for &b in rank[nth + 1..].iter().filter(|&&b| !self.windows.ordered(a, b)) {
                    let literal = self.solver.new_literal();
                    self.first.insert((a, b), literal);
                    for (first, second, literal) in [(a, b, literal), (b, a, !literal)] {
                        let (terms, tag) = (self.apart(first, second), self.solver.new_constraint_tag());
                        let constraint = less_than_or_equals(terms, -(shop.long[first] as i32), tag);
                        self.solver.add_constraint(constraint).implied_by(literal);
                    }
                }
            }
        }
    }

    /// Whether `a` goes before `b`: known, or a literal.
    fn goes_first(&self, a: usize, b: usize) -> Result<bool, Literal> {
        if self.windows.before[b].has(a) {
            Ok(true)
        } else if self.windows.before[a].has(b) {
            Ok(false)
        } else if a < b {
            Err(self.first[&(a, b)])
        } else {
            Err(!self.first[&(b, a)])
        }
    }

    /// What is held when an F starts, with what it takes, is within the limit.
    fn memory(&mut self) {
        let shop = self.shop;
        for (rank, operations) in shop.of_rank.iter().enumerate() {
            let Some(limit) = shop.limit[rank] else { continue };
            for &index in operations.iter().filter(|&&index| shop.takes[index] > 0) {
                let (mut held, mut terms) = (shop.takes[index], Vec::new());
                for &other in operations.iter().filter(|&&other| other != index) {
                    let change = shop.takes[other] - shop.frees[other];
                    match self.goes_first(other, index) {
                        _ if change == 0 => {}
                        Ok(true) => held += change,
                        Ok(false) => {}
                        Err(literal) => terms.push(literal.scaled(change as i32)),
                    }
                }
                if !terms.is_empty() {
                    let tag = self.solver.new_constraint_tag();
                    self.solver.add_constraint(less_than_or_equals(terms, (limit - held) as i32, tag)).post();
                }
            }
        }
    }

    /// Where two chains meet, a rank's span counts from its first operation.
    fn origins(&mut self, target: i64) {
        let shop = self.shop;
        for (origin, operations) in shop.origin.iter().zip(&shop.of_rank) {
            let Origin::FirstOf(firsts) = origin else { continue };
            let last = |&&index: &&usize| !operations.iter().any(|&other| self.windows.before[other].has(index));
            for &end in operations.iter().filter(last).collect::<Vec<_>>() {
                for &start in firsts {
                    let (terms, tag) = (self.apart(end, start), self.solver.new_constraint_tag());
                    let most = (target - shop.long[end]) as i32;
                    self.solver.add_constraint(less_than_or_equals(terms, most, tag)).post();
                }
            }
        }
    }

    /// A rank does one operation at a time: what the pairs say too, but together they prune more (edge finding).
    fn ranks(&mut self) {
        let shop = self.shop;
        for rank in &shop.of_rank {
            let task = |&index: &usize| {
                let (start_time, processing_time) = (self.starts[index], shop.long[index] as i32);
                ArgDisjunctiveTask { start_time, processing_time }
            };
            let tasks: Vec<_> = rank.iter().map(task).collect();
            let tag = self.solver.new_constraint_tag();
            self.solver.add_constraint(disjunctive_strict(tasks, tag)).post();
        }
    }

    fn solve(mut self, budget: &mut Budget) -> Reply {
        let backup = IndependentVariableValueBrancher::new(Smallest::new(&self.starts), InDomainMin);
        let mut brancher = AutonomousSearch::new(backup);
        let mut resolver = ResolutionResolver::default();
        let step = 10 + self.shop.len() as u64 / 16;
        let mut countdown = Countdown { budget, step, steps: 0 };
        let solution = match self.solver.satisfy(&mut brancher, &mut countdown, &mut resolver) {
            SatisfactionResult::Satisfiable(found) => Solution::from(found.solution()),
            SatisfactionResult::Unsatisfiable(..) => return Reply::None,
            SatisfactionResult::Unknown(..) => return Reply::Open,
        };
        let goes_first = |a: usize, b: usize| match self.goes_first(a, b) {
            Ok(known) => known,
            Err(literal) => solution.get_literal_value(literal),
        };
        let place = |index: usize, rank: &[usize]| {
            rank.iter().filter(|&&other| other != index && goes_first(other, index)).count()
        };
        let orders = (self.shop.of_rank.iter()).map(|rank| {
            let mut order = rank.clone();
            order.sort_by_cached_key(|&index| place(index, rank));
            order
        });
        Reply::Orders(orders.collect())
    }
}
