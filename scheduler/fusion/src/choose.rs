//! Choice of groups: each statement is in one of the candidates that are taken, and their seconds are least.

use super::candidates::Candidate;
use super::graph::Graph;
use solver::{Limits, Program, Relation, Var};
use std::collections::BTreeSet;

/// Nodes of the search tree. The programs are nearly integral: most need none.
const NODES: u64 = 200;

/// Rounds of forbidding groups that need each other.
const ROUNDS: usize = 16;

/// The statements in groups, each in order; the groups in an order in which each follows what it needs.
pub(super) fn choose(graph: &Graph<'_>, candidates: &[Candidate]) -> Vec<Vec<usize>> {
    let mut program = Program::new();
    // In microseconds, next to which a solver's tolerances are nothing.
    let vars: Vec<Var> = candidates.iter().map(|candidate| program.binary(1e6 * candidate.seconds)).collect();
    for at in 0..graph.len() {
        let with = candidates.iter().zip(&vars).filter(|(candidate, _)| candidate.members.contains(&at));
        program.constrain(with.map(|(_, &var)| (var, 1.0)), Relation::Eq, 1.0);
    }
    let limits = Limits { nodes: Some(NODES), ..Limits::default() };
    let start = greedy(candidates);
    for _ in 0..ROUNDS {
        let answer = program.solve(&limits, Some(&start));
        let chosen: Vec<&Vec<usize>> = candidates
            .iter()
            .zip(&answer.values)
            .filter(|(_, value)| **value > 0.5)
            .map(|(set, _)| &set.members)
            .collect();
        match ordered(graph, &chosen) {
            Ok(groups) => return groups,
            Err(circle) => {
                let terms: Vec<(Var, f64)> = (candidates.iter().zip(&vars))
                    .filter(|(candidate, _)| circle.contains(&candidate.members))
                    .map(|(_, &var)| (var, 1.0))
                    .collect();
                let most = terms.len() as f64 - 1.0;
                program.constrain(terms, Relation::Le, most);
            }
        }
    }
    (0..graph.len()).map(|at| vec![at]).collect()
}

/// The disjoint candidates that save most, largest first.
fn greedy(candidates: &[Candidate]) -> Vec<f64> {
    let mut by_saving: Vec<usize> = (0..candidates.len()).collect();
    // The sort is stable: of equals the first is taken.
    by_saving.sort_by(|&i, &j| candidates[j].saved.total_cmp(&candidates[i].saved));
    let (mut taken, mut values): (BTreeSet<usize>, _) = (BTreeSet::new(), vec![0.0; candidates.len()]);
    for at in by_saving {
        if candidates[at].members.iter().all(|member| !taken.contains(member)) {
            taken.extend(&candidates[at].members);
            values[at] = 1.0;
        }
    }
    values
}

/// Groups in an order in which each follows what it needs, the one with the earliest statement first; or those that need each other.
pub(super) fn ordered(graph: &Graph<'_>, groups: &[&Vec<usize>]) -> Result<Vec<Vec<usize>>, Vec<Vec<usize>>> {
    let mut of = vec![0; graph.len()];
    for (place, group) in groups.iter().enumerate() {
        group.iter().for_each(|&at| of[at] = place);
    }
    let needs: Vec<BTreeSet<usize>> = (groups.iter().enumerate())
        .map(|(place, group)| {
            let needs = group.iter().flat_map(|&at| graph.needs(at)).map(|&before| of[before]);
            needs.filter(|&before| before != place).collect()
        })
        .collect();
    let mut left: BTreeSet<(usize, usize)> = groups.iter().zip(0..).map(|(group, place)| (group[0], place)).collect();
    let mut order = Vec::new();
    let mut done = vec![false; groups.len()];
    while let Some(&next) = left.iter().find(|(_, place)| needs[*place].iter().all(|&before| done[before])) {
        left.remove(&next);
        done[next.1] = true;
        order.push(groups[next.1].clone());
    }
    let circle = left.into_iter().map(|(_, place)| groups[place].clone()).filter(|group| group.len() > 1);
    if order.len() == groups.len() { Ok(order) } else { Err(circle.collect()) }
}
