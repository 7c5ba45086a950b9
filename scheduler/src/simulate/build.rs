//! Construction of a schedule's dependency graph. Each rank advances as long as its inputs have been produced.

use super::SimulateError;
use super::deadlock::{Blocked, Deadlock, StalledRank, WaitsFor};
use super::graph::{ActionNode, DependencyGraph, Edge, NONE};
use super::positions::{ActionIndex, Need};
use ir::schedule::{Action, Item, Kind, Schedule};
use std::collections::HashMap;

/// A dependency graph under construction.
pub(super) struct GraphBuilder<'a> {
    schedule: &'a Schedule,
    places: ActionIndex,
    /// Number of actions of each row that are in the graph.
    done: Vec<usize>,
    /// The action that makes each result, [`NONE`] before it is in the graph.
    made: Vec<u32>,
    sorts: Sorts,
    graph: DependencyGraph,
}

impl<'a> GraphBuilder<'a> {
    pub(super) fn new(schedule: &'a Schedule, stages: usize) -> Result<GraphBuilder<'a>, SimulateError> {
        let places = ActionIndex::of(schedule, stages)?;
        let (ranks, actions) = (schedule.rows.len(), schedule.rows.iter().map(Vec::len).sum());
        let graph = DependencyGraph {
            ranks,
            stages,
            actions: Vec::with_capacity(actions),
            edges: Vec::with_capacity(actions),
            sorts: Vec::new(),
        };
        let (done, made) = (vec![0; ranks], vec![NONE; places.len()]);
        Ok(GraphBuilder { schedule, places, done, made, sorts: Sorts::new(stages), graph })
    }

    pub(super) fn build(mut self) -> Result<DependencyGraph, SimulateError> {
        let ranks = self.done.len();
        let mut needs: Vec<Option<Need>> = vec![None; ranks];
        let mut waiting: Vec<Vec<(usize, usize)>> = vec![Vec::new(); ranks]; // per producing rank: (position, who waits)
        let mut ready: Vec<usize> = (0..ranks).rev().collect();
        while let Some(rank) = ready.pop() {
            needs[rank] = self.advance(rank);
            if let Some(place) = needs[rank].and_then(|need| self.places.find(need)) {
                waiting[place.rank as usize].push((place.position as usize, rank));
            }
            let done = self.done[rank];
            waiting[rank].retain(|&(position, waiter)| {
                if position < done {
                    ready.push(waiter);
                }
                position >= done
            });
        }
        if needs.iter().any(Option::is_some) {
            return Err(self.deadlock(&needs).into());
        }
        self.graph.edges.shrink_to_fit();
        Ok(self.graph)
    }

    /// Adds the actions of a rank until its row ends or an input has not been produced, and returns that input.
    fn advance(&mut self, rank: usize) -> Option<Need> {
        let schedule = self.schedule;
        for action in &schedule.rows[rank][self.done[rank]..] {
            let (edges, at) = (self.graph.edges.len(), self.graph.actions.len() as u32);
            let (makes, is_forward) = match action {
                Action::One(item) => ([self.made_by(item), None], item.kind == Kind::F),
                Action::Pair(a, b) => ([self.made_by(a), self.made_by(b)], a.kind == Kind::F || b.kind == Kind::F),
            };
            for (made, hop) in makes.into_iter().flatten() {
                if let Some(need) = self.add_edges(rank as u32, made, hop, is_forward) {
                    self.graph.edges.truncate(edges);
                    return Some(need);
                }
            }
            for (made, _) in makes.into_iter().flatten() {
                self.made[self.places.number(made)] = at;
            }
            let sort = self.sorts.of(action, &mut self.graph.sorts);
            let edges_end = self.graph.edges.len() as u32;
            self.graph.actions.push(ActionNode { rank: rank as u32, sort, edges_end });
            self.done[rank] += 1;
        }
        None
    }

    /// Returns the result of an item, and the hop of its remote input.
    fn made_by(&self, item: &Item) -> Option<(Need, u32)> {
        Some((self.places.made_by(*item)?, hop(item)))
    }

    /// Adds edges from the producers of an action's inputs. Stops at the first input that has not been produced, and returns
    /// it.
    ///
    /// A result of the same rank is available when the rank is free, and delays nothing. Its edge is added for forwards only,
    /// since the wait reasons use the arrival of their inputs.
    fn add_edges(&mut self, rank: u32, made: Need, hop: u32, is_forward: bool) -> Option<Need> {
        for need in self.places.needs(made).into_iter().flatten() {
            let from = self.made[self.places.number(need)];
            if from == NONE {
                return Some(need);
            }
            if self.graph.actions[from as usize].rank != rank {
                self.graph.edges.push(Edge { from, hop });
            } else if is_forward {
                self.graph.edges.push(Edge { from, hop: 0 });
            }
        }
        None
    }

    fn deadlock(&self, needs: &[Option<Need>]) -> Deadlock {
        let ranks = needs.iter().enumerate().map(|(rank, need)| StalledRank {
            done: self.schedule.rows[rank][..self.done[rank]].to_vec(),
            blocked: need.and_then(|need| self.blocked(rank, need)),
        });
        Deadlock { ranks: ranks.collect() }
    }

    /// Returns the wait of a rank for an input.
    fn blocked(&self, rank: usize, need: Need) -> Option<Blocked> {
        let place = self.places.find(need);
        let action = place.map(|place| self.schedule.rows[place.rank as usize][place.position as usize]);
        let item = action.and_then(|action| action.items().find(|item| self.places.made_by(*item) == Some(need)));
        let other = place.and_then(|place| Some((place.rank as usize, self.next_action(place.rank as usize)?)));
        let on = WaitsFor::Result(item.unwrap_or(self.places.maker(need)));
        Some(Blocked { at: self.next_action(rank)?, on, other })
    }

    fn next_action(&self, rank: usize) -> Option<Action> {
        self.schedule.rows[rank].get(self.done[rank]).copied()
    }
}

/// Returns the [`Edge::hop`] of an item's remote input. F has its input from the previous stage, all others from the next
/// stage.
fn hop(item: &Item) -> u32 {
    item.stage.map_or(0, |stage| if item.kind == Kind::F { stage } else { stage + 1 })
}

/// Sorts of the actions so far: of single items by kind and stage, of pairs by those of both items.
struct Sorts {
    stages: usize,
    single: Vec<u32>,
    pairs: HashMap<(usize, usize), u32>,
}

impl Sorts {
    fn new(stages: usize) -> Sorts {
        Sorts { stages, single: vec![NONE; Kind::ALL.len() * (stages + 1)], pairs: HashMap::new() }
    }

    fn number(&self, item: &Item) -> usize {
        item.kind as usize * (self.stages + 1) + item.stage.map_or(0, |stage| stage as usize + 1)
    }

    /// Returns the sort of an action, and adds the action to `sorts` if it is the first of its sort.
    fn of(&mut self, action: &Action, sorts: &mut Vec<Action>) -> u32 {
        let sort = match action {
            Action::One(item) => {
                let number = self.number(item);
                &mut self.single[number]
            }
            Action::Pair(a, b) => {
                let numbers = (self.number(a), self.number(b));
                self.pairs.entry(numbers).or_insert(NONE)
            }
        };
        if *sort == NONE {
            *sort = sorts.len() as u32;
            sorts.push(*action);
        }
        *sort
    }
}
