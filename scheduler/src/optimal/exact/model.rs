//! One query to the constraint solver: is there an order whose value is at most a target?

use super::super::pieces::Pieces;
use super::super::shop::{Origin, Shop};
use super::super::windows::Windows;
use super::super::{Budget, OrderEntry};
use pumpkin_conflict_resolvers::resolvers::ResolutionResolver;
use pumpkin_constraints::{disjunctive_strict, less_than_or_equals};
use pumpkin_core::Solver;
use pumpkin_core::branching::branchers::autonomous_search::AutonomousSearch;
use pumpkin_core::branching::branchers::dynamic_brancher::DynamicBrancher;
use pumpkin_core::branching::branchers::independent_variable_value_brancher::IndependentVariableValueBrancher;
use pumpkin_core::branching::value_selection::InDomainMin;
use pumpkin_core::branching::variable_selection::{InputOrder, Smallest};
use pumpkin_core::options::SolverOptions;
use pumpkin_core::results::{ProblemSolution, SatisfactionResult, Solution};
use pumpkin_core::termination::TerminationCondition;
use pumpkin_core::variables::{AffineView, DomainId, Literal, TransformableVariable};
use pumpkin_propagators::disjunctive::ArgDisjunctiveTask;
use std::collections::{BTreeMap, HashMap};

/// Largest number of triples of a pair and another operation for which the redundant constraints of `together` are added.
const MOST_TRIPLES: usize = 400_000;

/// Answer of the solver.
pub(super) enum Reply {
    /// The actions of each rank in an order within the target.
    Orders(Vec<Vec<OrderEntry>>),
    /// No order is within the target.
    None,
    /// The budget was spent.
    Open,
}

/// Asks the solver whether an order has a value of at most `target`, and subtracts its steps from the budget.
///
/// The variables are the start of each operation and, for any two operations of a rank whose order [`Windows`] leaves open, a
/// literal for which goes first. For an F and a B (or I) that may overlap there is a literal that joins them; an operation is
/// in at most one pair. Starts are relative to the offsets of [`Pieces`]. The order is read from known precedences and the
/// literals, never from the starts.
pub(super) fn ask(shop: &Shop, windows: &Windows, target: i64, budget: &mut Budget) -> Reply {
    if budget.late() {
        return Reply::Open;
    }
    let mut model = Model::new(shop, windows, *budget);
    model.overlaps();
    model.precedences();
    model.pairs();
    model.joined();
    model.together();
    model.loads(target);
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
    /// Literal that is true if the first operation, which has the smaller index, runs before the second.
    first: HashMap<(usize, usize), Literal>,
    /// Literal that is true if an F and a B (or I, or its W) overlap.
    joined: BTreeMap<(usize, usize), Literal>,
    /// Literal that is true if an operation is in a pair.
    paired: Vec<Option<Literal>>,
    budget: Budget,
    /// True if the deadline has passed. The model is then left incomplete, since no query follows.
    late: bool,
}

/// A sum of variables.
type Terms = Vec<AffineView<DomainId>>;

/// The constraint that a sum is at most a number.
struct AtMost {
    terms: Terms,
    most: i64,
}

/// Subtracts the work of each step from the budget, and checks the deadline.
struct Countdown<'a> {
    budget: &'a mut Budget,
    /// Work of one step, which grows with the problem as propagation does.
    step: u64,
}

impl TerminationCondition for Countdown<'_> {
    fn should_stop(&mut self) -> bool {
        self.budget.work = self.budget.work.saturating_sub(self.step);
        self.budget.work == 0 || self.budget.late()
    }
}

impl<'a> Model<'a> {
    fn new(shop: &'a Shop, windows: &'a Windows, budget: Budget) -> Model<'a> {
        let options = SolverOptions { memory_preallocated: 1, ..SolverOptions::default() };
        let mut solver = Solver::with_options(options);
        let starts = (0..shop.len())
            .map(|index| {
                let last = windows.latest[index] - windows.pieces.long[index];
                solver.new_bounded_integer(windows.earliest[index] as i32, last as i32)
            })
            .collect();
        let (first, joined, paired) = (HashMap::new(), BTreeMap::new(), vec![None; shop.len()]);
        Model { shop, windows, solver, starts, first, joined, paired, budget, late: false }
    }

    /// Adds a literal for each possible overlapped pair; an operation is in at most one pair.
    fn overlaps(&mut self) {
        let (shop, Pieces { partners, may, .. }) = (self.shop, &self.windows.pieces);
        let mut pairs_of: Vec<Vec<Literal>> = vec![Vec::new(); shop.len()];
        for (forward, partners) in partners.iter().enumerate() {
            for &backward in partners {
                let joined = self.solver.new_literal();
                self.joined
                    .extend([backward].into_iter().chain(shop.weights[backward]).map(|b| ((forward, b), joined)));
                pairs_of[forward].push(joined);
                pairs_of[backward].push(joined);
            }
        }
        for (index, pairs) in
            pairs_of.into_iter().enumerate().filter(|&(index, ref pairs)| may[index] && !pairs.is_empty())
        {
            let paired = self.solver.new_literal();
            pairs.iter().for_each(|&pair| self.clause([!pair, paired]));
            self.clause(pairs.iter().copied().chain([!paired]));
            self.at_most(AtMost { terms: pairs.iter().map(Literal::get_integer_variable).collect(), most: 1 });
            self.paired[index] = Some(paired);
            if let Some(weights) = shop.weights[index] {
                self.paired[weights] = Some(paired);
                self.joined.insert((index, weights), paired);
            }
        }
    }

    /// Constrains the pieces of a pair to follow each other. A W in no pair runs after the earlier W of its stage.
    fn joined(&mut self) {
        let (shop, offset) = (self.shop, &self.windows.pieces.offset);
        for (&(first, second), &joined) in &self.joined.clone() {
            let apart = offset[second] - offset[first];
            for (a, b, most) in [(first, second, -apart), (second, first, apart)] {
                let terms = weighed([(self.starts[a], 1), (self.starts[b], -1)], None);
                self.at_most_if(joined, AtMost { terms, most });
            }
            if let Err(goes_first) = self.goes_first(first, second) {
                self.clause([!joined, goes_first]);
            }
        }
        for (weights, behind) in shop.behind.iter().enumerate() {
            let Some(paired) = self.paired[weights] else { continue };
            for &before in behind {
                if let Err(goes_first) = self.goes_first(before, weights) {
                    self.clause([paired, goes_first]);
                }
            }
        }
    }

    /// Constrains all operations of a pair to have the same predecessors and successors. The starts imply this, but prune
    /// later.
    fn together(&mut self) {
        let shop = self.shop;
        let all = self.joined.keys().map(|&(first, _)| shop.of_rank[shop.rank[first]].len()).sum::<usize>();
        if all > MOST_TRIPLES {
            return;
        }
        for (&(first, second), &joined) in &self.joined.clone() {
            let follows = self.windows.pieces.partners[first].contains(&second) || shop.weights[first] == Some(second);
            for &other in shop.of_rank[shop.rank[first]].iter().filter(|_| follows) {
                let of_pair = other == first || other == second || self.joined.get(&(first, other)) == Some(&joined);
                if of_pair {
                    continue;
                }
                match (self.goes_first(first, other), self.goes_first(second, other)) {
                    (Err(one), Err(two)) => {
                        self.clause([!joined, !one, two]);
                        self.clause([!joined, one, !two]);
                    }
                    (Err(open), Ok(known)) | (Ok(known), Err(open)) => {
                        self.clause([!joined, if known { open } else { !open }]);
                    }
                    (Ok(one), Ok(two)) if one != two => self.clause([!joined]),
                    (Ok(_), Ok(_)) => {}
                }
            }
        }
    }

    /// Constrains the work of a rank, less the time that its pairs save, to fit within the target.
    fn loads(&mut self, target: i64) {
        let shop = self.shop;
        let Some(pair) = shop.pair else { return };
        for (rank, (origin, operations)) in shop.origin.iter().zip(&shop.of_rank).enumerate() {
            let earliest = operations.iter().map(|&index| self.windows.earliest[index]).min().unwrap_or(0);
            let room = match origin {
                Origin::At(moment) => target + moment - earliest,
                Origin::FirstOf(_) => target,
            };
            let work: i64 = operations.iter().map(|&index| shop.long[index]).sum();
            let pairs = self.joined.iter().filter(|&(&(forward, backward), _)| {
                shop.rank[forward] == rank && self.windows.pieces.partners[forward].contains(&backward)
            });
            let saved = pairs.map(|(&(forward, backward), &joined)| {
                let weights = shop.weights[backward].map_or(0, |weights| shop.long[weights]);
                (joined, pair - shop.long[forward] - shop.long[backward] - weights)
            });
            let terms = weighed([], saved);
            if work > room {
                self.at_most(AtMost { terms, most: room - work });
            }
        }
    }

    /// Returns the literal of the operation's pair, and the change in its end relative to its start if it is in that pair.
    fn later(&self, index: usize) -> Option<(Literal, i64)> {
        let alone = self.shop.long[index] + self.windows.pieces.offset[index];
        Some((self.paired[index]?, self.shop.pair? - alone))
    }

    /// Builds `end(a) + lag - begin(b) <= 0`. Both operations of a pair begin at the same time, and no constraint holds between
    /// them.
    fn apart(&self, a: usize, b: usize, lag: i64) -> AtMost {
        let begin = self.paired[b].map(|paired| (paired, self.windows.pieces.offset[b]));
        let joined = self.joined.get(&(a, b)).copied().zip(self.shop.pair.map(|pair| -pair));
        let literals = self.later(a).into_iter().chain(begin).chain(joined);
        let terms = weighed([(self.starts[a], 1), (self.starts[b], -1)], literals);
        AtMost { terms, most: -(self.shop.long[a] + lag) }
    }

    /// Returns whether time is left.
    fn goes_on(&mut self) -> bool {
        self.late |= self.budget.late();
        !self.late
    }

    fn at_most(&mut self, sum: AtMost) {
        if !self.goes_on() {
            return;
        }
        let tag = self.solver.new_constraint_tag();
        self.solver.add_constraint(less_than_or_equals(sum.terms, sum.most as i32, tag)).post();
    }

    /// Adds a constraint that holds if a literal is true.
    fn at_most_if(&mut self, literal: Literal, sum: AtMost) {
        if !self.goes_on() {
            return;
        }
        let tag = self.solver.new_constraint_tag();
        self.solver.add_constraint(less_than_or_equals(sum.terms, sum.most as i32, tag)).implied_by(literal);
    }

    fn clause(&mut self, literals: impl IntoIterator<Item = Literal>) {
        if !self.goes_on() {
            return;
        }
        let tag = self.solver.new_constraint_tag();
        self.solver.add_clause(literals.into_iter().map(|literal| literal.get_true_predicate()), tag);
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
        self.at_most(self.apart(from, index, lag));
    }

    /// Adds a literal for each pair of operations whose order is open.
    fn pairs(&mut self) {
        let shop = self.shop;
        for rank in &shop.of_rank {
            for (nth, &a) in rank.iter().enumerate() {
                for &b in rank[nth + 1..].iter().filter(|&&b| !self.windows.ordered(a, b)) {
                    let literal = self.solver.new_literal();
                    self.first.insert((a, b), literal);
                    self.at_most_if(literal, self.apart(a, b, 0));
                    self.at_most_if(!literal, self.apart(b, a, 0));
                }
            }
        }
    }

    /// Returns whether `a` runs before `b`, as a fact or as a literal.
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

    /// Constrains the memory in use at the start of each F, with the memory that it takes, to the limit.
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
                        Err(literal) => terms.push(literal.get_integer_variable().scaled(change as i32)),
                    }
                }
                if !terms.is_empty() {
                    self.at_most(AtMost { terms, most: limit - held });
                }
            }
        }
    }

    /// Constrains the operations that may be last on a rank to end within the target. With two chains, a rank's span counts
    /// from its first operation. (Without, the domains of the starts imply this for operations in no pair.)
    fn origins(&mut self, target: i64) {
        let shop = self.shop;
        for (origin, operations) in shop.origin.iter().zip(&shop.of_rank) {
            let mut ends = operations.clone();
            ends.retain(|&index| !operations.iter().any(|&other| self.windows.before[other].has(index)));
            for end in ends {
                let most = target - shop.long[end];
                match origin {
                    Origin::At(_) if self.paired[end].is_none() => {}
                    Origin::At(moment) => {
                        let terms = weighed([(self.starts[end], 1)], self.later(end));
                        self.at_most(AtMost { terms, most: most + moment });
                    }
                    Origin::FirstOf(firsts) => {
                        for &start in firsts {
                            let starts = [(self.starts[end], 1), (self.starts[start], -1)];
                            self.at_most(AtMost { terms: weighed(starts, self.later(end)), most });
                        }
                    }
                }
            }
        }
    }

    /// Constrains each rank to one operation at a time. The pairwise constraints imply this, but one cumulative constraint
    /// prunes more (edge finding).
    fn ranks(&mut self) {
        let shop = self.shop;
        for rank in &shop.of_rank {
            if !self.goes_on() {
                return;
            }
            let tasks: Vec<_> = rank
                .iter()
                .map(|&index| ArgDisjunctiveTask {
                    start_time: self.starts[index],
                    processing_time: self.windows.pieces.long[index] as i32,
                })
                .collect();
            let tag = self.solver.new_constraint_tag();
            self.solver.add_constraint(disjunctive_strict(tasks, tag)).post();
        }
    }

    fn solve(mut self, budget: &mut Budget) -> Reply {
        if self.late {
            return Reply::Open;
        }
        let starts = IndependentVariableValueBrancher::new(Smallest::new(&self.starts), InDomainMin);
        let literals = self.joined.values().chain(self.first.values()).chain(self.paired.iter().flatten());
        let mut literals: Vec<DomainId> = literals.map(|literal| *literal.get_integer_variable().inner()).collect();
        literals.sort_unstable();
        let literals = IndependentVariableValueBrancher::new(InputOrder::new(&literals), InDomainMin);
        let mut brancher = AutonomousSearch::new(DynamicBrancher::new(vec![Box::new(starts), Box::new(literals)]));
        let mut resolver = ResolutionResolver::default();
        let step = 10 + (self.shop.len() + self.joined.len()) as u64 / 16;
        let mut countdown = Countdown { budget, step };
        let solution = match self.solver.satisfy(&mut brancher, &mut countdown, &mut resolver) {
            SatisfactionResult::Satisfiable(found) => Solution::from(found.solution()),
            SatisfactionResult::Unsatisfiable(..) => return Reply::None,
            SatisfactionResult::Unknown(..) => return Reply::Open,
        };
        let assignment = Assignment { model: &self, solution };
        Reply::Orders(self.shop.of_rank.iter().map(|rank| assignment.order(rank)).collect())
    }
}

/// Values of a model's literals that satisfy all constraints.
struct Assignment<'a> {
    model: &'a Model<'a>,
    solution: Solution,
}

impl Assignment<'_> {
    /// Returns the actions of a rank in order.
    fn order(&self, rank: &[usize]) -> Vec<OrderEntry> {
        let mut order: Vec<usize> = rank.iter().copied().filter(|&index| !self.is_second(index)).collect();
        order.sort_by_cached_key(|&index| {
            rank.iter().filter(|&&other| other != index && self.goes_first(other, index)).count()
        });
        let entries = order.into_iter().map(|index| match self.partner(index) {
            Some(backward) => OrderEntry::Pair(index, backward),
            None => OrderEntry::One(index),
        });
        entries.collect()
    }

    fn goes_first(&self, a: usize, b: usize) -> bool {
        self.model.goes_first(a, b).unwrap_or_else(|literal| self.solution.get_literal_value(literal))
    }

    /// Returns the operation that an F overlaps.
    fn partner(&self, index: usize) -> Option<usize> {
        let mut partners = self.model.windows.pieces.partners[index].iter().copied();
        partners.find(|&backward| self.solution.get_literal_value(self.model.joined[&(index, backward)]))
    }

    /// Returns whether an operation is in a pair, but is not its F.
    fn is_second(&self, index: usize) -> bool {
        let paired = self.model.paired[index].filter(|_| self.model.windows.pieces.partners[index].is_empty());
        paired.is_some_and(|paired| self.solution.get_literal_value(paired))
    }
}

/// Builds a sum of starts and literals in which no variable appears twice, as the solver's propagator requires.
fn weighed<const N: usize>(starts: [(DomainId, i32); N], literals: impl IntoIterator<Item = (Literal, i64)>) -> Terms {
    let mut weights: Vec<(Literal, i64)> = Vec::new();
    for (literal, weight) in literals {
        match weights.iter_mut().find(|(known, _)| *known == literal) {
            Some((_, sum)) => *sum += weight,
            None => weights.push((literal, weight)),
        }
    }
    weights.retain(|&(_, weight)| weight != 0);
    let literals = weights.into_iter().map(|(literal, weight)| literal.get_integer_variable().scaled(weight as i32));
    starts.into_iter().map(|(start, weight)| start.scaled(weight)).chain(literals).collect()
}
