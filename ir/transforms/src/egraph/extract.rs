//! The choice of statements: from the latest value to the first, a recognised op takes the place of a value's statement where
//! fewer statements are left.

use super::construct::{Construct, Source};
use super::language::Node;
use ir::graph::{Block, SectionKind};
use ir::ids::Value;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Statements that read or write elements, and views; fewer of the former are better, then fewer of the latter.
type Cost = (usize, usize);

/// A value that a recognised op computes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Replaced {
    /// The node that computes it.
    pub(crate) node: Node,
    /// The statements that are left out because of it, by their place in the section.
    pub(crate) dropped: Vec<usize>,
}

/// The statements of a section after some values have got another definition.
struct Live {
    /// The statements that stay.
    kept: HashSet<usize>,
    cost: Cost,
}

/// The choices for a section.
struct Extraction<'a> {
    block: &'a Block,
    construct: &'a Construct<'a>,
    /// The statement of each value.
    statement: HashMap<Value, usize>,
    roots: Vec<Value>,
    chosen: BTreeMap<Value, Node>,
}

/// The values of a block that recognised ops compute.
pub(crate) fn extract(block: &Block, construct: &Construct<'_>) -> BTreeMap<Value, Replaced> {
    let stmts = &block[SectionKind::F].stmts;
    let statement: HashMap<Value, usize> = stmts
        .iter()
        .enumerate()
        .flat_map(|(place, stmt)| stmt.results.iter().map(move |&result| (result, place)))
        .collect();
    let read: HashSet<Value> = stmts.iter().flat_map(|stmt| stmt.operands.iter().copied()).collect();
    let unread = stmts.iter().filter(|stmt| !stmt.results.iter().any(|result| read.contains(result)));
    let ends = unread.flat_map(|stmt| stmt.results.iter().copied());
    let roots = block[SectionKind::F].ret.iter().copied().chain(ends).collect();
    let mut extraction = Extraction { block, construct, statement, roots, chosen: BTreeMap::new() };
    extraction.choose()
}

impl Extraction<'_> {
    fn choose(&mut self) -> BTreeMap<Value, Replaced> {
        let mut replaced = BTreeMap::new();
        let Some(mut live) = self.live() else { return replaced };
        loop {
            let before = live.cost;
            for place in (0..self.block[SectionKind::F].stmts.len()).rev() {
                let &[value] = self.block[SectionKind::F].stmts[place].results.as_slice() else { continue };
                if let Some((node, next)) = self.best(value, live.cost) {
                    let mut dropped: Vec<usize> = live.kept.difference(&next.kept).copied().collect();
                    dropped.sort_unstable();
                    self.chosen.insert(value, node.clone());
                    replaced.insert(value, Replaced { node, dropped });
                    live = next;
                }
            }
            if live.cost == before {
                break;
            }
        }
        let reached = self.reached().unwrap_or_default();
        replaced.retain(|value, _| reached.contains(value));
        replaced
    }

    /// The definition of a value with the fewest statements, if these are fewer than now.
    fn best(&mut self, value: Value, now: Cost) -> Option<(Node, Live)> {
        if self.chosen.contains_key(&value) {
            return None;
        }
        let mut best: Option<(Node, Live)> = None;
        for node in self.construct.candidates(value) {
            self.chosen.insert(value, node.clone());
            let live = self.live().filter(|live| live.cost < best.as_ref().map_or(now, |(_, best)| best.cost));
            self.chosen.remove(&value);
            best = live.map(|live| (node, live)).or(best);
        }
        best
    }

    /// The values that the section's results need; `None` if a value would need itself.
    fn reached(&self) -> Option<HashSet<Value>> {
        let mut reached = HashSet::new();
        let mut path = HashSet::new();
        self.roots.iter().try_for_each(|&root| self.reach(root, &mut reached, &mut path))?;
        Some(reached)
    }

    fn reach(&self, value: Value, reached: &mut HashSet<Value>, path: &mut HashSet<Value>) -> Option<()> {
        if path.contains(&value) {
            return None;
        }
        if !reached.insert(value) {
            return Some(());
        }
        path.insert(value);
        let needs = match (self.chosen.get(&value), self.statement.get(&value)) {
            (Some(node), _) => self.construct.values(node),
            (None, Some(&place)) => self.block[SectionKind::F].stmts[place].operands.clone(),
            (None, None) => Vec::new(),
        };
        needs.into_iter().try_for_each(|value| self.reach(value, reached, path))?;
        path.remove(&value);
        Some(())
    }

    /// The statements that stay, and the cost of these and of the new ones.
    fn live(&self) -> Option<Live> {
        let reached = self.reached()?;
        let stmts = &self.block[SectionKind::F].stmts;
        let (mut kept, mut new) = (HashSet::new(), HashSet::new());
        for value in &reached {
            match (self.chosen.get(value), self.statement.get(value)) {
                (Some(node), _) => self.construct.sources(node, &mut new),
                (None, Some(&place)) => drop(kept.insert(place)),
                (None, None) => {}
            }
        }
        let views = kept.iter().filter(|&&place| stmts[place].op.is_view()).count();
        let mut cost = (kept.len() - views, views);
        for Source { is_view, .. } in &new {
            if *is_view { cost.1 += 1 } else { cost.0 += 1 }
        }
        Some(Live { kept, cost })
    }
}
