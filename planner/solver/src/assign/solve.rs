//! The way from a problem to an answer.

use super::branch::{Best, Branch};
use super::clock::Clock;
use super::net::Net;
use super::presolve::presolve;
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
        let mut net = Net::new(self);
        if presolve(&mut net).is_err() {
            return Solution {
                choice: Vec::new(),
                cost: f64::INFINITY,
                bound: f64::INFINITY,
                status: Status::Infeasible,
            };
        }
        let core = net.clone().rooted();
        let margin = budget.gap.max(ROUNDING);
        let mut branch = Branch { clock: &mut clock, best: Best::none(), margin, rounds: [400, 30] };
        let bound = branch.search(core, true);
        let best = branch.best;
        self.answer(&net, &best, bound, margin)
    }

    fn answer(&self, net: &Net, best: &Best, bound: f64, margin: f64) -> Solution {
        if best.choice.is_empty() && best.cost.is_infinite() {
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
