//! Candidates of groups: sets of statements that may run as one kernel.

use super::graph::Graph;
use std::collections::{BTreeSet, HashMap};

/// The most sets that are looked at for a body, beyond those that grow by the largest saving.
const SETS: usize = 400;

/// A set of statements, in order, and its seconds.
pub(super) struct Candidate {
    pub(super) members: Vec<usize>,
    pub(super) seconds: f64,
    /// The seconds by which its statements apart take longer.
    pub(super) saved: f64,
}

/// Single statements, and the groups that take less time than their statements apart.
///
/// All small groups are among them, up to a number of sets. From each statement a larger one grows by the neighbour that saves most.
pub(super) fn candidates(graph: &Graph<'_>) -> Vec<Candidate> {
    let mut sets = Sets { graph, singles: Vec::new(), seconds: HashMap::new(), order: Vec::new() };
    sets.singles = (0..graph.len()).map(|at| sets.seconds(&[at])).collect();
    let mut at = 0;
    while at < sets.order.len() && sets.order.len() < SETS {
        let set = sets.order[at].clone();
        if set.iter().all(|&at| graph.groups(at)) {
            sets.grown(&set);
        }
        at += 1;
    }
    (0..graph.len()).filter(|&at| graph.groups(at)).for_each(|at| sets.grow(vec![at]));
    let all = std::mem::take(&mut sets.order).into_iter().map(|members| {
        let seconds = sets.seconds[&members];
        Candidate { saved: sets.apart(&members) - seconds, members, seconds }
    });
    all.filter(|set| set.members.len() == 1 || set.saved > 0.0).collect()
}

/// The sets so far.
struct Sets<'a> {
    graph: &'a Graph<'a>,
    /// Seconds of each statement by itself.
    singles: Vec<f64>,
    seconds: HashMap<Vec<usize>, f64>,
    order: Vec<Vec<usize>>,
}

impl Sets<'_> {
    fn seconds(&mut self, set: &[usize]) -> f64 {
        if let Some(&seconds) = self.seconds.get(set) {
            return seconds;
        }
        let seconds = self.graph.seconds(set);
        self.seconds.insert(set.to_vec(), seconds);
        self.order.push(set.to_vec());
        seconds
    }

    /// Seconds of statements one by one.
    fn apart(&self, members: &[usize]) -> f64 {
        members.iter().map(|&at| self.singles[at]).sum()
    }

    /// The groups of a set and one neighbour, with their seconds.
    fn grown(&mut self, set: &[usize]) -> Vec<(f64, Vec<usize>)> {
        let graph = self.graph;
        let larger: BTreeSet<Vec<usize>> =
            graph.neighbours(set).into_iter().filter_map(|with| graph.closed(set, with)).collect();
        larger.into_iter().map(|set| (self.seconds(&set), set)).collect()
    }

    /// Grows a set as long as that saves time, next to the seconds of its statements apart.
    fn grow(&mut self, mut set: Vec<usize>) {
        let mut most = 0.0;
        loop {
            let larger = self.grown(&set).into_iter().map(|(seconds, set)| (self.apart(&set) - seconds, set));
            // `max_by` gives the last of equals; the first one is taken.
            match larger.rev().max_by(|(a, _), (b, _)| a.total_cmp(b)) {
                Some((saving, larger)) if saving > most => (most, set) = (saving, larger),
                _ => return,
            }
        }
    }
}
