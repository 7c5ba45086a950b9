//! Saturation.

use super::facts::Graph;
use super::look::Look;
use super::rule::{Equal, Rule};
use egg::Id;

/// The number of nodes at which saturation stops.
const NODES: usize = 20_000;

/// The number of rounds after which saturation stops.
pub(crate) const ROUNDS: usize = 24;

/// Applies rules until they say nothing new, or a limit is reached. Gives the number of rounds.
pub(crate) fn saturate(graph: &mut Graph, rules: &[Rule]) -> usize {
    for round in 1..=ROUNDS {
        let mut classes: Vec<Id> = graph.classes().map(|class| class.id).collect();
        classes.sort_unstable();
        let look = Look::new(graph);
        let found = |rule: &Rule| classes.iter().flat_map(|&class| rule.apply(&look, class)).collect::<Vec<_>>();
        let equalities: Vec<Equal> = rules.iter().flat_map(found).collect();
        let mut has_changed = false;
        for Equal { class, term } in equalities {
            if graph.total_number_of_nodes() > NODES {
                break;
            }
            let term = term.add(graph);
            has_changed |= graph.union(class, term);
        }
        graph.rebuild();
        if !has_changed || graph.total_number_of_nodes() > NODES {
            return round;
        }
    }
    ROUNDS
}
