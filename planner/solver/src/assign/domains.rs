//! Choices that are still open at every node while an assignment is made: forbidden pairs close what has no support at
//! a neighbour (AC-4, Mohr and Henderson 1986), and the least use of what is open counts against the limit.

use super::net::Net;
use super::slack::Slack;

/// A node without a choice, or a limit that the least use of the open choices exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conflict {
    /// A neighbour closed the last choice of this node.
    Pairs { node: usize },
    /// The use of this node's choices exceeds the limit at some time.
    Limit { node: usize },
}

/// Open choices of a net's nodes. Everything that was closed can be opened in reverse order.
pub(crate) struct Domains<'n> {
    net: &'n Net,
    open: Vec<Vec<bool>>,
    count: Vec<usize>,
    /// Open choices of the other end that each choice is allowed with, `a` first; none for edges that forbid nothing.
    support: Vec<[Vec<u32>; 2]>,
    /// The least amount of each load among the open choices.
    least: Vec<Vec<i64>>,
    slack: Slack,
    /// Closed choices, in order.
    trail: Vec<(usize, usize)>,
    /// Closed choices at the front of the trail, which no longer support their neighbours.
    passed: usize,
    /// Table entries read.
    pub(crate) steps: u64,
}

impl<'n> Domains<'n> {
    /// All choices of a net that cost less than infinity, and have support.
    pub(crate) fn new(net: &'n Net) -> Result<Domains<'n>, Conflict> {
        let least: Vec<Vec<i64>> =
            net.loads.iter().map(|loads| loads.iter().map(|load| least_of(&load.amount)).collect()).collect();
        let mut change = net.spent.clone();
        for (load, &least) in net.loads.iter().flatten().zip(least.iter().flatten()) {
            change[load.lo] += least;
            change[load.hi] -= least;
        }
        let mut domains = Domains {
            net,
            open: net.cost.iter().map(|costs| vec![true; costs.len()]).collect(),
            count: net.cost.iter().map(Vec::len).collect(),
            support: net.edges.iter().map(|_| [Vec::new(), Vec::new()]).collect(),
            least,
            slack: Slack::new(&net.less(&change)),
            trail: Vec::new(),
            passed: 0,
            steps: net.entries() as u64,
        };
        domains.begin()?;
        Ok(domains)
    }

    /// Counts support, and closes what has none.
    fn begin(&mut self) -> Result<(), Conflict> {
        for (number, edge) in self.net.edges.iter().enumerate() {
            if edge.table.iter().all(|cost| cost.is_finite()) {
                continue;
            }
            let wide = self.net.choices(edge.b);
            let mut columns = vec![0; wide];
            let mut rows = Vec::with_capacity(edge.table.len() / wide);
            for row in edge.table.chunks_exact(wide) {
                rows.push(row.iter().filter(|cost| cost.is_finite()).count() as u32);
                columns.iter_mut().zip(row).for_each(|(count, cost)| *count += u32::from(cost.is_finite()));
            }
            self.support[number] = [rows, columns];
        }
        for node in self.net.nodes() {
            for choice in 0..self.net.choices(node) {
                let is_supported = self.net.near[node].iter().all(|&edge| {
                    let support = &self.support[edge][usize::from(self.net.edges[edge].b == node)];
                    support.get(choice).is_none_or(|&count| count > 0)
                });
                if !self.net.cost[node][choice].is_finite() || !is_supported {
                    self.remove(node, choice)?;
                }
            }
        }
        self.propagate()
    }

    /// Number of open choices of a node.
    pub(crate) fn count(&self, node: usize) -> usize {
        self.count[node]
    }

    /// The open choices of a node.
    pub(crate) fn open(&self, node: usize) -> &[bool] {
        &self.open[node]
    }

    /// The first open choice of a node.
    pub(crate) fn first(&self, node: usize) -> usize {
        self.open[node].iter().position(|&open| open).unwrap_or(0)
    }

    /// Number of closed choices: the state to which [`Domains::undo`] returns.
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Leaves a node one choice.
    pub(crate) fn assign(&mut self, node: usize, choice: usize) -> Result<(), Conflict> {
        for other in 0..self.net.choices(node) {
            if other != choice && self.open[node][other] {
                self.remove(node, other)?;
            }
        }
        self.propagate()
    }

    /// Closes one choice of a node.
    pub(crate) fn close(&mut self, node: usize, choice: usize) -> Result<(), Conflict> {
        if self.open[node][choice] {
            self.remove(node, choice)?;
        }
        self.propagate()
    }

    /// Closes the choices of a node that exceed the limit with the least that all others use.
    pub(crate) fn fit(&mut self, node: usize) -> Result<(), Conflict> {
        let net = self.net;
        let mut fits = self.open[node].clone();
        let mut gone = false;
        for (load, &least) in net.loads[node].iter().zip(&self.least[node]) {
            let most = self.slack.least(load.lo, load.hi) + least;
            for (fits, &amount) in fits.iter_mut().zip(&load.amount) {
                if *fits && amount > most {
                    *fits = false;
                    gone = true;
                }
            }
        }
        self.steps += 30 * net.loads[node].len() as u64;
        if !gone {
            return Ok(());
        }
        if !fits.contains(&true) {
            return Err(Conflict::Limit { node });
        }
        for (choice, fits) in fits.into_iter().enumerate() {
            if self.open[node][choice] && !fits {
                self.remove(node, choice)?;
            }
        }
        self.propagate()
    }

    /// Opens what was closed since `mark`.
    pub(crate) fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            let Some((node, choice)) = self.trail.pop() else { return };
            if self.trail.len() < self.passed {
                self.passed = self.trail.len();
                self.count_support(node, choice, true);
            }
            self.open[node][choice] = true;
            self.count[node] += 1;
            self.update_least(node, choice);
        }
    }

    /// Returns whether the same choices are open, with the same support and memory left.
    #[cfg(test)]
    pub(crate) fn is_like(&self, other: &Domains<'_>) -> bool {
        let [left, other_left] = [self, other].map(|domains| {
            let times = 0..domains.net.room.len();
            times.map(|time| domains.slack.least(time, time + 1)).collect::<Vec<i64>>()
        });
        let same = self.open == other.open && self.count == other.count && self.least == other.least;
        same && self.support == other.support && left == other_left
    }

    fn remove(&mut self, node: usize, choice: usize) -> Result<(), Conflict> {
        self.open[node][choice] = false;
        self.count[node] -= 1;
        self.trail.push((node, choice));
        if self.count[node] == 0 {
            return Err(Conflict::Pairs { node });
        }
        self.update_least(node, choice);
        if self.slack.least_of_all() < 0 { Err(Conflict::Limit { node }) } else { Ok(()) }
    }

    /// Recomputes the least use of a node whose choice was opened or closed.
    fn update_least(&mut self, node: usize, choice: usize) {
        if self.count[node] == 0 {
            return;
        }
        for (load, least) in self.net.loads[node].iter().zip(&mut self.least[node]) {
            if load.amount[choice] > *least {
                continue;
            }
            let open = load.amount.iter().zip(&self.open[node]).filter(|open| *open.1);
            let now = open.map(|open| *open.0).min().unwrap_or(*least);
            if now != *least {
                self.slack.add(load.lo, load.hi, *least - now);
                *least = now;
            }
        }
    }

    /// Closes what lost its support, until nothing changes.
    fn propagate(&mut self) -> Result<(), Conflict> {
        let net = self.net;
        while self.passed < self.trail.len() {
            let (node, choice) = self.trail[self.passed];
            self.passed += 1;
            self.count_support(node, choice, false);
            for &number in &net.near[node] {
                let other = net.edges[number].other(node);
                let side = usize::from(net.edges[number].b == other);
                for i in 0..self.support[number][side].len() {
                    if self.support[number][side][i] == 0 && self.open[other][i] {
                        self.remove(other, i)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds a choice to the support of the neighbours' choices, or takes it from them.
    fn count_support(&mut self, node: usize, choice: usize, opens: bool) {
        for &number in &self.net.near[node] {
            let edge = &self.net.edges[number];
            let [of_a, of_b] = &mut self.support[number];
            if of_a.is_empty() {
                continue;
            }
            let wide = of_b.len();
            if edge.a == node {
                count_finite(of_b, edge.table[choice * wide..][..wide].iter(), opens);
                self.steps += wide as u64;
            } else {
                self.steps += of_a.len() as u64;
                count_finite(of_a, edge.table[choice..].iter().step_by(wide), opens);
            }
        }
    }
}

fn least_of(amounts: &[i64]) -> i64 {
    amounts.iter().copied().min().unwrap_or(0)
}

/// Adds one to the counts whose costs are finite, or takes it from them.
fn count_finite<'c>(counts: &mut [u32], costs: impl Iterator<Item = &'c f64>, opens: bool) {
    for (count, _) in counts.iter_mut().zip(costs).filter(|(_, cost)| cost.is_finite()) {
        *count = if opens { *count + 1 } else { *count - 1 };
    }
}
