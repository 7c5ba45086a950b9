//! Exact engine: constraint programming with conflict learning, one target at a time.

mod model;

use super::shop::Shop;
use super::windows::Windows;
use super::{Budget, Engine, Found, Incumbent, OrderEntry, Task};
use model::{Reply, ask};

/// Engine that asks the solver for orders within targets between the bound and the best value, until the two meet.
pub(super) struct Exact;

/// Largest number of operations of a problem, since the engine considers all pairs of operations of a rank.
const MOST_OPERATIONS: usize = 3_500;

/// Largest number of possible start times of all operations together, since the solver stores some bytes for each. A larger
/// problem gets a coarser unit of time.
const MOST_STARTS: f64 = 16e6;

/// Work limit of a query in the first round. Each later round multiplies the limit by four.
const FIRST_ROUND: u64 = 100_000;

/// Number of unanswered queries after which the next round begins.
const MOST_OPEN: u32 = 4;

impl Engine for Exact {
    fn name(&self) -> &'static str {
        "cp"
    }

    fn suits(&self, task: &Task) -> bool {
        task.instance.operations.len() <= MOST_OPERATIONS
    }

    fn search(&self, task: &Task) -> Found {
        let most = task.best.map_or_else(|| task.instance.sequential_seconds(), |best| best.value);
        let mut shop = Shop::new(task.problem, task.instance, most);
        let units = MOST_STARTS / shop.len().max(1) as f64;
        if most / shop.unit > units {
            shop = Shop::in_units(task.problem, task.instance, most, units);
        }
        let mut search = Search::new(task, &shop);
        search.run();
        Found { better: search.better, bound: search.low as f64 * shop.unit }
    }
}

struct Search<'a> {
    task: &'a Task<'a>,
    shop: &'a Shop,
    budget: Budget,
    /// Lower bound: no order has a smaller value.
    low: i64,
    /// Upper bound: the value of some order, or the target from which the search begins without one.
    high: i64,
    better: Option<Incumbent>,
}

impl<'a> Search<'a> {
    fn new(task: &'a Task<'a>, shop: &'a Shop) -> Search<'a> {
        let low = shop.units_within(task.bound);
        let high = match task.best {
            Some(best) => whole(best.value, shop),
            None => whole(task.instance.sequential_seconds(), shop) + 1,
        };
        Search { task, shop, budget: task.budget, low, high: high.max(low), better: None }
    }

    /// Bisects targets below the best value. The next round repeats unanswered queries with a larger work limit.
    fn run(&mut self) {
        let mut round = FIRST_ROUND;
        while self.low < self.high && self.budget.work > 0 && !self.budget.late() {
            // Smallest and largest unanswered target of this round. Targets below may have a proof, targets above an order.
            let mut open: Option<(i64, i64)> = None;
            let mut unanswered = 0;
            while unanswered < MOST_OPEN
                && let Some(target) = next_target(self.low, self.high, open)
            {
                if !self.decide(target, round) {
                    unanswered += 1;
                    open = Some(open.map_or((target, target), |(from, to)| (from.min(target), to.max(target))));
                } else if open.is_some_and(|(from, to)| self.low > from || self.high <= to) {
                    open = None;
                }
                if self.budget.work == 0 || self.budget.late() {
                    return;
                }
            }
            round = round.saturating_mul(4);
        }
    }

    /// Runs one query, and returns whether it was answered.
    fn decide(&mut self, target: i64, work: u64) -> bool {
        self.budget.work = self.budget.work.saturating_sub((self.shop.len() as u64).pow(2) / 64);
        let Ok(windows) = Windows::within(self.shop, target, self.budget.deadline) else {
            self.low = target + 1;
            return true;
        };
        let given = work.min(self.budget.work);
        let mut budget = Budget { work: given, ..self.budget };
        let reply = ask(self.shop, &windows, target, &mut budget);
        self.budget.work -= given - budget.work;
        let said = match &reply {
            Reply::Orders(_) => "an order",
            Reply::None => "none",
            Reply::Open => "open",
        };
        (self.task.log)(&format!(
            "cp: target {target} in [{}, {}), {} of work: {said}",
            self.low,
            self.high,
            given - budget.work
        ));
        match reply {
            Reply::None => self.low = target + 1,
            Reply::Open => return false,
            Reply::Orders(orders) => self.take(&orders, target),
        }
        true
    }

    /// Records an order within the target. The simulator's value may exceed the target if memory is rounded or two chains meet.
    /// The order then only shows that the bound cannot rise.
    fn take(&mut self, orders: &[Vec<OrderEntry>], target: i64) {
        self.high = self.high.min(self.shop.value(orders).unwrap_or(target));
        let best = self.better.as_ref().or(self.task.best).map_or(f64::INFINITY, |best| best.value);
        let found = Incumbent::of(self.task.instance.schedule(orders), self.task.problem, "cp");
        self.better = found.filter(|found| found.value < best).or(self.better.take());
    }
}

/// Returns the smallest number of whole units that is at least the value.
fn whole(value: f64, shop: &Shop) -> i64 {
    (value / shop.unit - 1e-6).ceil() as i64
}

/// Returns the next target: between the bounds, then above and below the unanswered targets.
fn next_target(low: i64, high: i64, open: Option<(i64, i64)>) -> Option<i64> {
    match open {
        None => middle(low, high - 1),
        Some((from, to)) => middle(to + 1, high - 1).or(middle(low, from - 1)),
    }
}

/// Returns the middle of a range; none if it is empty.
fn middle(from: i64, to: i64) -> Option<i64> {
    (from <= to).then(|| from + (to - from) / 2)
}
