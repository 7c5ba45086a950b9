//! The way from a problem to an answer.

use super::clock::Clock;
use super::net::{Infeasible, Net};
use super::presolve::{cover, presolve};
use super::search::Search;
use super::shared::{Best, Shared};
use super::{Assignment, Budget, Solution};
use crate::Status;

/// Rounding in sums of many costs, relative to the sum: gains below it are not looked for.
const ROUNDING: f64 = 1e-9;

impl Assignment {
    /// The best assignment that the budget allows, and a bound: the same on every machine unless `budget.time` is set.
    ///
    /// `Optimal` means that no assignment costs less by more than `budget.gap`, or a thousand-millionth, of the cost.
    pub fn solve(&self, budget: &Budget) -> Solution {
        let mut clock = Clock::new(budget);
        let margin = budget.gap.max(ROUNDING);
        let Ok(net) = core(self, &mut clock) else {
            return Solution {
                choice: Vec::new(),
                cost: f64::INFINITY,
                bound: f64::INFINITY,
                status: Status::Infeasible,
            };
        };
        let shared = Shared::new(Best::none());
        let threads = if budget.time.is_some() { budget.threads } else { 1 };
        let bound = Search { shared: &shared, margin }.run(net.clone().rooted(), &mut clock, threads);
        self.answer(&net, &shared.best(), bound, margin)
    }

    fn answer(&self, net: &Net, best: &Best, bound: f64, margin: f64) -> Solution {
        if best.cost == f64::INFINITY {
            let status = if bound == f64::INFINITY { Status::Infeasible } else { Status::Unknown };
            return Solution { choice: Vec::new(), cost: f64::INFINITY, bound, status };
        }
        let choice = net.restore(&best.choice);
        let cost = self.cost(&choice);
        let bound = bound.min(cost);
        let proved = cost - bound <= 2.0 * margin * cost.abs();
        Solution { choice, cost, bound, status: if proved { Status::Optimal } else { Status::Feasible } }
    }
}

/// The part of a problem that presolving does not answer.
fn core(problem: &Assignment, clock: &mut Clock) -> Result<Net, Infeasible> {
    let mut net = Net::new(problem);
    presolve(&mut net, clock)?;
    loop {
        let times = net.room.len();
        cover(&mut net);
        presolve(&mut net, clock)?;
        if 10 * net.room.len() >= 9 * times || clock.over() {
            return Ok(net);
        }
    }
}
