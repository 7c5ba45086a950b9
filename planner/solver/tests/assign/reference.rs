//! The problem, defined without the solver: the cost and the use of an assignment, and the best of all.

use std::ops::Range;

use meshwright_solver::assign::Assignment;
use serde_json::Value;

use crate::planted::Planted;

/// A problem in plain lists.
pub(crate) struct Stated {
    pub(crate) costs: Vec<Vec<f64>>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) loads: Vec<Load>,
    pub(crate) limit: Option<u64>,
}

pub(crate) struct Pair {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) table: Vec<f64>,
}

pub(crate) struct Load {
    pub(crate) node: usize,
    pub(crate) lo: u32,
    pub(crate) hi: u32,
    pub(crate) amounts: Vec<u64>,
}

/// A list of numbers in JSON.
fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|number| number.as_u64().expect("a whole number")).collect()
}

impl Stated {
    /// Reads an instance in the contest's form, of whole numbers none of which forbids.
    pub(crate) fn read(text: &str) -> Stated {
        let instance: Value = serde_json::from_str(text).expect("JSON");
        let list = |path: &str| instance.pointer(path).and_then(Value::as_array).expect("a list");
        let costs = |value: &Value| numbers(value).into_iter().map(|cost| cost as f64).collect::<Vec<f64>>();
        let ends = list("/problem/edges/nodes").iter().zip(list("/problem/edges/costs"));
        let times = list("/problem/nodes/intervals").iter().zip(list("/problem/nodes/usages"));
        let pair = |(ends, table): (&Value, &Value)| Pair {
            a: numbers(ends)[0] as usize,
            b: numbers(ends)[1] as usize,
            table: costs(table),
        };
        let load = |(node, (times, amounts)): (usize, (&Value, &Value))| {
            let [lo, hi] = numbers(times)[..] else { panic!("an interval has two ends") };
            Load { node, lo: lo as u32, hi: hi as u32, amounts: numbers(amounts) }
        };
        Stated {
            costs: list("/problem/nodes/costs").iter().map(costs).collect(),
            pairs: ends.map(pair).collect(),
            loads: times.enumerate().map(load).collect(),
            limit: instance.pointer("/problem/usage_limit").and_then(Value::as_u64),
        }
    }

    /// A generated problem.
    pub(crate) fn planted(planted: &Planted) -> Stated {
        let pair = |(a, b, table): &(usize, usize, Vec<f64>)| Pair { a: *a, b: *b, table: table.clone() };
        let load = |(node, (when, amounts)): (usize, &(Range<u32>, Vec<u64>))| Load {
            node,
            lo: when.start,
            hi: when.end,
            amounts: amounts.clone(),
        };
        Stated {
            costs: planted.costs.clone(),
            pairs: planted.pairs.iter().map(pair).collect(),
            loads: planted.loads.iter().enumerate().map(load).collect(),
            limit: Some(planted.limit),
        }
    }

    /// The same for the solver.
    pub(crate) fn problem(&self) -> Assignment {
        let mut problem = Assignment::new();
        let nodes: Vec<_> = self.costs.iter().map(|costs| problem.node(costs.clone())).collect();
        for pair in &self.pairs {
            problem.edge(nodes[pair.a], nodes[pair.b], pair.table.clone());
        }
        for load in &self.loads {
            problem.load(nodes[load.node], load.lo..load.hi, load.amounts.clone());
        }
        if let Some(limit) = self.limit {
            problem.limit(limit);
        }
        problem
    }

    /// The cost of an assignment, and whether it is within the limit, time by time.
    pub(crate) fn judge(&self, choice: &[usize]) -> (f64, bool) {
        assert_eq!(choice.len(), self.costs.len(), "a choice for each node");
        let mut cost = 0.0;
        for (costs, &chosen) in self.costs.iter().zip(choice) {
            cost += costs[chosen];
        }
        for pair in &self.pairs {
            cost += pair.table[choice[pair.a] * self.costs[pair.b].len() + choice[pair.b]];
        }
        let last = self.loads.iter().map(|load| load.hi).max().unwrap_or(0);
        let used = |time: u32| -> u64 {
            let live = self.loads.iter().filter(|load| load.lo <= time && time < load.hi);
            live.map(|load| load.amounts[choice[load.node]]).sum()
        };
        (cost, self.limit.is_none_or(|limit| (0..last).all(|time| used(time) <= limit)))
    }

    /// The least cost of all assignments within the limit, if there is one.
    pub(crate) fn least(&self) -> Option<f64> {
        let mut choice = vec![0; self.costs.len()];
        let mut least: Option<f64> = None;
        loop {
            let (cost, fits) = self.judge(&choice);
            if fits && cost.is_finite() && least.is_none_or(|least| cost < least) {
                least = Some(cost);
            }
            let Some(node) = (0..choice.len()).find(|&node| choice[node] + 1 < self.costs[node].len()) else {
                return least;
            };
            choice[node] += 1;
            choice[..node].fill(0);
        }
    }
}
