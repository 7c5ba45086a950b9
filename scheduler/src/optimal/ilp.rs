//! Engine of the zero-bubble paper for small problems: a mixed-integer program with a 0/1 variable per pair of operations
//! whose order is undecided (Qi et al. 2024, "Zero bubble pipeline parallelism", appendix G).
//!
//! Beyond the paper:
//! - precedences that hold in every order as good as the incumbent are found first ([`Windows`]). Their pairs need no variable,
//!   and earliest start and latest end make each big M as small as possible;
//! - the kinds of a stage follow micro-batch order, so that no two orders are equal up to the numbers of micro-batches;
//! - the operations after an operation on its rank must fit before the end, those before it after the rank's earliest start;
//! - the search starts from the incumbent. An answer is read from its 0/1 variables, never from its times: times are rounded,
//!   and sorting by them can make an order worse than the answer.

use super::shop::{Origin, Shop};
use super::windows::Windows;
use super::{Engine, Found, Incumbent, Instance, Task};
use ir::schedule::{Action, Item, Kind, Schedule};
use solver::{Limits, Program, Relation, Status, Var};
use std::collections::HashMap;
use std::time::Instant;

/// The engine of the mixed-integer program.
pub(super) struct Ilp;

/// Largest number of operations, and of pairs whose order is open. Above these, microlp takes seconds for a node.
const MOST_OPERATIONS: usize = 120;
const MOST_PAIRS: usize = 200;

/// Steps of the budget per node, which takes some milliseconds.
const STEPS_PER_NODE: u64 = 500;

/// Mean scaled length of an operation, far above the solver's tolerances of 1e-7.
const MEAN: f64 = 10.0;

impl Engine for Ilp {
    fn name(&self) -> &'static str {
        "ilp"
    }

    fn suits(&self, task: &Task) -> bool {
        task.instance.pair.is_none() && task.instance.operations.len() <= MOST_OPERATIONS
    }

    fn search(&self, task: &Task) -> Found {
        let nothing = Found { better: None, bound: f64::NEG_INFINITY };
        let value = task.best.map_or_else(|| task.instance.sequential_seconds(), |best| best.value);
        let shop = Shop::new(task.problem, task.instance, value);
        let target = (value / shop.unit - 1e-6).ceil() as i64;
        let Ok(windows) = Windows::within(&shop, target, task.budget.deadline) else { return nothing };
        let model = Model::new(&shop, &windows, target);
        let (pairs, rows) = (model.order.len(), model.program.rows());
        (task.log)(&format!("ilp: {pairs} pairs, {rows} rows"));
        if pairs > MOST_PAIRS {
            return nothing;
        }
        let start = task.best.and_then(|best| model.start(&orders(&best.schedule, task.instance)?));
        let time = task.budget.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limits = Limits { nodes: Some(task.budget.work / STEPS_PER_NODE), time, gap: 0.0 };
        let answer = model.program.solve(&limits, start.as_deref());
        if answer.status == Status::Infeasible {
            return nothing;
        }
        let bound = answer.bound.map_or(f64::NEG_INFINITY, |bound| model.bound(bound));
        let orders = (!answer.values.is_empty()).then(|| model.read(&answer.values));
        let found = orders.and_then(|orders| Incumbent::of(task.instance.schedule(&orders), task.problem, "ilp"));
        let better = found.filter(|found| task.best.is_none_or(|best| found.value < best.value));
        Found { better, bound }
    }
}

/// Converts the rows of a schedule to operations of an instance. Returns `None` if a row has other operations.
fn orders(schedule: &Schedule, instance: &Instance) -> Option<Vec<Vec<usize>>> {
    let index: HashMap<Item, usize> = (instance.operations.iter().enumerate())
        .map(|(index, of)| (Item::new(of.kind, of.stage as u32, of.microbatch as u32), index))
        .collect();
    let orders = schedule.rows.iter().map(|row| {
        let items = row.iter().flat_map(Action::items);
        let work = items.filter(|item| matches!(item.kind, Kind::F | Kind::I | Kind::W | Kind::B));
        work.map(|item| index.get(&item).copied()).collect()
    });
    orders.collect()
}

struct Model<'a> {
    shop: &'a Shop,
    windows: &'a Windows,
    program: Program,
    /// The objective, in scaled time.
    end: Var,
    starts: Vec<Var>,
    /// Variable for each pair of operations of a rank whose order is open, the smaller index first: 1 if that operation runs
    /// first.
    order: HashMap<(usize, usize), Var>,
    /// Scaled time of one unit of the shop.
    scale: f64,
}

/// Precedence between two operations.
enum Before {
    No,
    Yes,
    /// If the variable is 1.
    If(Var),
    /// If the variable is 0.
    Unless(Var),
}

impl Before {
    fn holds(&self, values: &[f64]) -> bool {
        match self {
            Before::No => false,
            Before::Yes => true,
            Before::If(first) => values[first.index()] > 0.5,
            Before::Unless(first) => values[first.index()] < 0.5,
        }
    }
}

impl<'a> Model<'a> {
    fn new(shop: &'a Shop, windows: &'a Windows, target: i64) -> Model<'a> {
        let mean = shop.long.iter().sum::<i64>() as f64 / shop.len() as f64;
        let scale = MEAN / mean.max(1.0);
        let mut program = Program::new();
        let end = program.real(0.0, target as f64 * scale, 1.0);
        let starts = (0..shop.len()).map(|index| {
            let latest = windows.latest[index] - shop.long[index];
            program.real(windows.earliest[index] as f64 * scale, latest as f64 * scale, 0.0)
        });
        let starts = starts.collect();
        let mut model = Model { shop, windows, program, end, starts, order: HashMap::new(), scale };
        for rank in 0..shop.of_rank.len() {
            model.pairs(&shop.of_rank[rank]);
        }
        model.needs();
        for rank in 0..shop.of_rank.len() {
            model.memory(rank);
            model.loads(rank);
        }
        model
    }

    fn long(&self, index: usize) -> f64 {
        self.shop.long[index] as f64 * self.scale
    }

    /// Constrains each operation to start after its inputs have been computed and have arrived.
    fn needs(&mut self) {
        for index in 0..self.shop.len() {
            for &(from, lag) in &self.shop.after[index] {
                let apart = self.long(from) + lag as f64 * self.scale;
                let terms = [(self.starts[index], 1.0), (self.starts[from], -1.0)];
                self.program.constrain(terms, Relation::Ge, apart);
            }
        }
    }

    /// Orders the operations of a rank: `start_b >= start_a + d_a - M (1 - a first)`, with M no larger than the windows need.
    fn pairs(&mut self, rank: &[usize]) {
        for (nth, &a) in rank.iter().enumerate() {
            for &b in &rank[nth + 1..] {
                if !self.windows.ordered(a, b) {
                    let first = self.program.binary(0.0);
                    self.order.insert((a, b), first);
                    self.apart(a, b, first, true);
                    self.apart(b, a, first, false);
                }
            }
            for &b in rank.iter().filter(|&&b| self.windows.before[b].has(a)).collect::<Vec<_>>() {
                let terms = [(self.starts[b], 1.0), (self.starts[a], -1.0)];
                self.program.constrain(terms, Relation::Ge, self.long(a));
            }
        }
    }

    /// Constrains `a` to end before `b` starts if the variable is 1, or if it is 0 where `value` is false.
    fn apart(&mut self, a: usize, b: usize, first: Var, value: bool) {
        let most = (self.windows.latest[a] - self.windows.earliest[b]) as f64 * self.scale;
        let (sign, right) = if value { (-most, self.long(a) - most) } else { (most, self.long(a)) };
        self.program.constrain([(self.starts[b], 1.0), (self.starts[a], -1.0), (first, sign)], Relation::Ge, right);
    }

    fn before(&self, a: usize, b: usize) -> Before {
        match (self.order.get(&(a, b)), self.order.get(&(b, a))) {
            (Some(&first), _) => Before::If(first),
            (_, Some(&first)) => Before::Unless(first),
            _ if self.windows.before[b].has(a) => Before::Yes,
            _ => Before::No,
        }
    }

    /// Sums `of` over the operations before `index` on its rank (or after it), as terms and a constant.
    fn sum(&self, index: usize, behind: bool, of: impl Fn(usize) -> f64) -> (Vec<(Var, f64)>, f64) {
        let (mut terms, mut constant) = (Vec::new(), 0.0);
        let rank = &self.shop.of_rank[self.shop.rank[index]];
        for &other in rank.iter().filter(|&&other| other != index) {
            let weight = of(other);
            let before = if behind { self.before(index, other) } else { self.before(other, index) };
            match before {
                Before::No => {}
                Before::Yes => constant += weight,
                Before::If(first) => terms.push((first, weight)),
                Before::Unless(first) => {
                    constant += weight;
                    terms.push((first, -weight));
                }
            }
        }
        (terms, constant)
    }

    /// Constrains the memory in use at each F, its own included, to the limit.
    fn memory(&mut self, rank: usize) {
        let shop = self.shop;
        let Some(limit) = shop.limit[rank] else { return };
        let limit = (limit as f64).max(1.0);
        for &index in shop.of_rank[rank].iter().filter(|&&index| shop.takes[index] > 0) {
            let (terms, constant) =
                self.sum(index, false, |other| (shop.takes[other] - shop.frees[other]) as f64 / limit);
            self.program.constrain(terms, Relation::Le, 1.0 - constant - shop.takes[index] as f64 / limit);
        }
    }

    /// Constrains the operations after each operation to fit before the end, and those before it after the rank's earliest
    /// start.
    fn loads(&mut self, rank: usize) {
        let shop = self.shop;
        let earliest = shop.of_rank[rank].iter().map(|&index| self.windows.earliest[index]).min().unwrap_or(0);
        for &index in &shop.of_rank[rank] {
            let (terms, constant) = self.sum(index, false, |other| self.long(other));
            let negated = terms.into_iter().map(|(var, factor)| (var, -factor));
            let terms: Vec<_> = negated.chain([(self.starts[index], 1.0)]).collect();
            self.program.constrain(terms, Relation::Ge, earliest as f64 * self.scale + constant);

            let (behind, constant) = self.sum(index, true, |other| self.long(other));
            let negated = behind.into_iter().map(|(var, factor)| (var, -factor));
            let terms: Vec<_> = negated.chain([(self.end, 1.0), (self.starts[index], -1.0)]).collect();
            let long = self.long(index) + constant;
            match &shop.origin[rank] {
                Origin::At(moment) => {
                    self.program.constrain(terms, Relation::Ge, long - *moment as f64 * self.scale);
                }
                Origin::FirstOf(firsts) => {
                    for &first in firsts {
                        let from_first = terms.iter().copied().chain([(self.starts[first], 1.0)]);
                        self.program.constrain(from_first.collect::<Vec<_>>(), Relation::Ge, long);
                    }
                }
            }
        }
    }

    /// Returns the assignment of an order in which every operation runs as early as possible, or `None` if the order deadlocks.
    fn start(&self, orders: &[Vec<usize>]) -> Option<Vec<f64>> {
        let times = earliest(self.shop, orders)?;

        let spans = self.shop.of_rank.iter().zip(&self.shop.origin).map(|(rank, origin)| {
            let last = rank.iter().map(|&index| times[index] + self.shop.long[index]).max().unwrap_or(0);
            last - match origin {
                Origin::At(moment) => *moment,
                Origin::FirstOf(firsts) => firsts.iter().map(|&index| times[index]).min().unwrap_or(0),
            }
        });
        let mut values = vec![0.0; self.program.variables()];
        values[self.end.index()] = spans.max()? as f64 * self.scale;
        for (var, &time) in self.starts.iter().zip(&times) {
            values[var.index()] = time as f64 * self.scale;
        }
        for (&(a, b), var) in &self.order {
            values[var.index()] = f64::from(u8::from((times[a], a) < (times[b], b)));
        }
        Some(values)
    }

    /// Reads the orders from the 0/1 variables: the position of an operation is the number of operations before it.
    fn read(&self, values: &[f64]) -> Vec<Vec<usize>> {
        let orders = self.shop.of_rank.iter().map(|rank| {
            let mut order = rank.clone();
            order.sort_by_cached_key(|&index| {
                rank.iter().filter(|&&other| self.before(other, index).holds(values)).count()
            });
            order
        });
        orders.collect()
    }

    /// Converts a bound of the program to one of the problem, in seconds. If no cost was rounded, the bound is a whole number
    /// of units.
    fn bound(&self, scaled: f64) -> f64 {
        let units = scaled / self.scale * (1.0 - 1e-6);
        self.shop.unit * if self.shop.exact { units.ceil() } else { units }
    }
}

/// Returns the earliest start of every operation under the orders, in units, or `None` if the orders deadlock.
fn earliest(shop: &Shop, orders: &[Vec<usize>]) -> Option<Vec<i64>> {
    let mut times: Vec<Option<i64>> = vec![None; shop.len()];
    let (mut place, mut free) = (vec![0; orders.len()], vec![0; orders.len()]);
    loop {
        let before = place.clone();
        for (rank, order) in orders.iter().enumerate() {
            while let Some(&index) = order.get(place[rank]) {
                let inputs = shop.after[index].iter();
                let arrivals = inputs.map(|&(from, lag)| times[from].map(|time| time + shop.long[from] + lag));
                let Some(arrivals) = arrivals.collect::<Option<Vec<i64>>>() else { break };
                let start = arrivals.into_iter().fold(free[rank], i64::max);
                (times[index], free[rank]) = (Some(start), start + shop.long[index]);
                place[rank] += 1;
            }
        }
        if place == before {
            return times.into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests;
