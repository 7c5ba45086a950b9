//! Exact engine: constraint programming with conflict learning, one target at a time.

mod model;

use super::shop::Shop;
use super::windows::Windows;
use super::{Budget, Engine, Found, Incumbent, Instance, Step, Task};
use model::{Reply, ask};

/// Asks the solver for orders within targets between the bound and the best value, until they meet.
pub(super) struct Exact;

/// The most operations of a problem: the pairs of a rank are all looked at.
const MOST_OPERATIONS: usize = 3_500;

/// Most starts of all operations together: the solver keeps some bytes for each. Where there are more, the unit is coarser.
const MOST_STARTS: f64 = 16e6;

/// Work that the first questions may take; each round of questions may take four times as much as the one before.
const FIRST_ROUND: u64 = 100_000;

/// Questions of a round that may stay open before the next round.
const MOST_OPEN: u32 = 4;

impl Engine for Exact {
    fn name(&self) -> &'static str {
        "cp"
    }

    fn suits(&self, task: &Task) -> bool {
        task.instance.operations.len() <= MOST_OPERATIONS
    }

    fn search(&self, task: &Task) -> Found {
        let most = task.best.map_or_else(|| all_in_a_row(task.instance), |best| best.value);
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
    /// No order is below.
    low: i64,
    /// Some order has this value, or it is where the search begins to hope.
    high: i64,
    better: Option<Incumbent>,
}

impl<'a> Search<'a> {
    fn new(task: &'a Task<'a>, shop: &'a Shop) -> Search<'a> {
        let low = shop.units_within(task.bound);
        let high =
            task.best.map_or_else(|| whole(all_in_a_row(task.instance), shop) + 1, |best| whole(best.value, shop));
        Search { task, shop, budget: task.budget, low, high: high.max(low), better: None }
    }

    /// Targets below the best value by bisection. What a round leaves open is asked again with more work in the next.
    fn run(&mut self) {
        let mut round = FIRST_ROUND;
        while self.low < self.high && self.budget.work > 0 && !self.budget.late() {
            // Targets left open in this round: below them there may be a proof, above them an order.
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

    /// Asks one question; whether it has an answer.
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

    /// An order within the target. By the simulator its value may be above, where memory is rounded or two chains
    /// meet: then it only says that no better bound can be had.
    fn take(&mut self, orders: &[Vec<Step>], target: i64) {
        self.high = self.high.min(self.shop.value(orders).unwrap_or(target));
        let best = self.better.as_ref().or(self.task.best).map_or(f64::INFINITY, |best| best.value);
        let found = Incumbent::of(self.task.instance.schedule(orders), self.task.problem, "cp");
        self.better = found.filter(|found| found.value < best).or(self.better.take());
    }
}

/// What everything takes if it runs one after the other, hops and all.
fn all_in_a_row(instance: &Instance) -> f64 {
    let operations = instance.operations.iter();
    operations.map(|operation| operation.seconds + operation.after.iter().map(|(_, lag)| lag).sum::<f64>()).sum()
}

/// The least whole units that hold a value.
fn whole(value: f64, shop: &Shop) -> i64 {
    (value / shop.unit - 1e-6).ceil() as i64
}

/// The next target: between the bounds, then above and below what is open.
fn next_target(low: i64, high: i64, open: Option<(i64, i64)>) -> Option<i64> {
    let middle = |from: i64, to: i64| (from <= to).then(|| from + (to - from) / 2);
    match open {
        None => middle(low, high - 1),
        Some((from, to)) => middle(to + 1, high - 1).or(middle(low, from - 1)),
    }
}
