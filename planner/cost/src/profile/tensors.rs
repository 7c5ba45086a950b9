//! Recomputation of single values: a block's forward as steps whose results are saved or recomputed.

use super::keep::Keep;
use super::modules::{Dropped, dropped};
use super::section::{cost_of, spare};
use super::site::Site;
use crate::knapsack::{Choice, Forward, Point, Step, best};
use crate::quantities::RecomputeCost;
use ir::entity::{EntityRef, EntitySet};
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Collective, Op};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// Choices whose saved bytes differ by less than the total over `STEPS` count as equal; predictions of memory are less exact.
pub(super) const STEPS: f64 = 256.0;

/// Relative difference up to which sums count as equal.
const SAME: f64 = 1e-9;

/// Largest number of steps of a cluster: those a stack joins, with the collectives that they hide.
const MOST_TOGETHER: usize = 8;

/// Statements of F with one choice: a named statement, and collectives that reduce or exchange its results, or that gather a
/// saved result.
pub(super) struct Part {
    /// Their indices.
    pub(super) stmts: Vec<usize>,
    pub(super) choice: Choice,
}

/// Parts of F. Values that are gathered again by their readers are never saved, nor are values that passes inserted between
/// those of a statement.
pub(super) fn parts(site: &Site<'_>) -> Vec<Part> {
    let block = site.block();
    let later: FxHashSet<Value> = site.later.iter().copied().collect();
    let mut parts: Vec<Part> = Vec::new();
    for (at, stmt) in block[SectionKind::F].stmts.iter().enumerate() {
        let is_read_later = stmt.results.iter().any(|value| later.contains(value));
        let joins = match &stmt.op {
            Op::Collective(Collective::AllGather { .. }) => is_read_later,
            Op::Collective(collective) => collective.communicates(),
            _ => false,
        };
        if joins && let Some(&operand) = stmt.operands.first() {
            let mut named = parts.iter_mut().filter(|part| part.choice == Choice::Either);
            if let Some(part) = named.find(|part| part.stmts(block).any(|stmt| stmt.results.contains(&operand))) {
                part.stmts.push(at);
                continue;
            }
        }
        let choice = match &stmt.op {
            _ if site.remade.contains_key(&stmt.results[0]) => Choice::View,
            Op::Kernel(op) if op.def().facts().is_view => Choice::View,
            Op::Kernel(_) if stmt.results.iter().any(|&value| name(site, value).is_some()) => Choice::Either,
            _ if is_read_later => Choice::Keep,
            _ => Choice::Recompute,
        };
        parts.push(Part { stmts: vec![at], choice });
    }
    parts
}

/// Name of a value in a configuration; `None` for values that a pass has numbered.
fn name<'a>(site: &Site<'a>, value: Value) -> Option<&'a str> {
    Some(site.block().value_name(value)).filter(|name| name.parse::<u32>().is_err())
}

/// Values that are not saved if the statements with these indices are recomputed: their results, and those never saved.
pub(super) fn results_of(site: &Site<'_>, places: &BTreeSet<usize>) -> EntitySet<Value> {
    let mut values = EntitySet::new();
    for part in parts(site) {
        if part.choice == Choice::Recompute || part.stmts.iter().any(|at| places.contains(at)) {
            part.stmts(site.block()).flat_map(|stmt| &stmt.results).for_each(|&value| {
                values.insert(value);
            });
        }
    }
    values
}

/// Choice of values to recompute.
pub(super) struct Chosen {
    /// Names of the values.
    pub(super) names: Vec<String>,
    /// Saved bytes.
    pub(super) bytes: f64,
    /// Seconds of recomputing the rest, cluster by cluster.
    pub(super) seconds: f64,
    /// Lower bound in seconds on this choice and on all choices that save fewer bytes.
    pub(super) least: f64,
}

impl Chosen {
    /// Bytes that are saved, and seconds of recomputing the rest.
    pub(super) fn cost(&self) -> RecomputeCost {
        RecomputeCost { bytes: self.bytes, seconds: self.seconds }
    }
}

/// Pareto-optimal choices of values to recompute, from the fewest seconds to the fewest bytes.
pub(super) fn frontier(site: &Site<'_>) -> Vec<Chosen> {
    let parts = parts(site);
    let times = RecomputeTimes::of(site);
    let seconds =
        |steps: &[usize]| times.seconds(&steps.iter().flat_map(|&at| parts[at].stmts.iter().copied()).collect());
    let clusters = clusters(site, &parts, &seconds);
    let stmts = &site.block()[SectionKind::F].stmts;
    let bytes = site.block().values.keys().map(|value| {
        let maker = stmts.iter().find(|stmt| stmt.results.contains(&value));
        Keep::of_value(site, maker, value)
    });
    let forward = Forward {
        bytes: bytes.collect(),
        steps: parts.iter().zip(clusters).map(|(part, cluster)| part.step(site, cluster)).collect(),
        wanted: site.later.iter().copied().filter(|&value| may_be_kept(site, value)).map(EntityRef::index).collect(),
        seconds: &seconds,
    };
    let mut all = Vec::new();
    for Point { bytes, seconds, recomputed } in best(&forward, forward.whole() / STEPS) {
        let chosen = recomputed.iter().filter(|&&at| parts[at].choice == Choice::Either);
        let names = chosen.filter_map(|&at| stmts[parts[at].stmts[0]].results.iter().find_map(|&it| name(site, it)));
        all.push(Chosen { names: names.map(str::to_string).collect(), bytes, seconds, least: seconds });
    }
    times.bound(&mut all);
    all
}

/// Returns whether a value can be saved by the forward; parameters and inputs stay in memory anyway.
fn may_be_kept(site: &Site<'_>, value: Value) -> bool {
    matches!(site.block().arg_kind(value), None | Some(ArgKind::Value))
}

impl Part {
    fn step(&self, site: &Site<'_>, cluster: usize) -> Step {
        let stmts = self.stmts(site.block());
        let makes: BTreeSet<Value> = stmts.clone().flat_map(|stmt| stmt.results.iter().copied()).collect();
        // A kernel of the backward computes some values from other operands than their statement does.
        let mut read: Vec<Value> = makes.iter().filter_map(|value| site.remade.get(value)).flatten().copied().collect();
        if read.is_empty() {
            read.extend(stmts.clone().flat_map(|stmt| stmt.operands.iter().copied()));
        }
        let reads: BTreeSet<Value> =
            read.into_iter().filter(|value| !makes.contains(value) && may_be_kept(site, *value)).collect();
        let [makes, reads] = [makes, reads].map(|values| values.into_iter().map(EntityRef::index).collect());
        let extra = stmts.map(|stmt| site.beside(stmt)).sum();
        Step { choice: self.choice, makes, reads, extra, cluster }
    }

    /// Statements of the part.
    fn stmts<'s>(&'s self, block: &'s Block) -> impl Iterator<Item = &'s Stmt> + Clone {
        self.stmts.iter().map(|&at| &block[SectionKind::F].stmts[at])
    }

    /// Returns whether the part may be recomputed.
    fn may_run(&self) -> bool {
        matches!(self.choice, Choice::Either | Choice::Recompute)
    }
}

/// Seconds of recomputed statements: on the device or, if the backward waits for the CPU even without them, on the CPU.
pub(super) struct RecomputeTimes<'s, 'a> {
    site: &'s Site<'a>,
    waits_for_cpu: bool,
}

impl<'s, 'a> RecomputeTimes<'s, 'a> {
    pub(super) fn of(site: &'s Site<'a>) -> RecomputeTimes<'s, 'a> {
        let backward = [SectionKind::I, SectionKind::W].map(|kind| cost_of(site, kind, &site.stmts(kind)));
        RecomputeTimes { site, waits_for_cpu: spare(&backward) < 0.0 }
    }

    /// Sets the lower bounds `least` of choices, from the fewest seconds to the fewest bytes. Products hide collectives, also
    /// across clusters; the last choice recomputes most and hides most. If even its clusters take no less time together, no
    /// choice's do.
    fn bound(&self, all: &mut [Chosen]) {
        if all.last().is_none_or(|last| self.together(last) >= last.seconds * (1.0 - SAME)) {
            return;
        }
        let mut least = f64::INFINITY;
        for choice in all.iter_mut().rev().filter(|choice| !choice.names.is_empty()) {
            least = least.min(self.together(choice));
            choice.least = least;
        }
    }

    /// Seconds of a choice whose clusters run together.
    fn together(&self, choice: &Chosen) -> f64 {
        let recomputed = Keep::of_dropped(self.site, dropped(self.site, &choice.names)).recomputed(self.site);
        self.of_stmts(&recomputed).min(choice.seconds)
    }

    fn seconds(&self, places: &BTreeSet<usize>) -> f64 {
        let stmts: Vec<&Stmt> = places.iter().map(|&at| &self.site.block()[SectionKind::F].stmts[at]).collect();
        self.of_stmts(&stmts)
    }

    /// Seconds of some statements of F.
    pub(super) fn of_stmts(&self, stmts: &[&Stmt]) -> f64 {
        let cost = cost_of(self.site, SectionKind::F, stmts);
        if self.waits_for_cpu { cost.host } else { cost.device.total() }
    }
}

/// Cluster of each part, by the index of one of its parts. Two parts that touch the same value are in one cluster if their time
/// together differs from the sum of their times.
fn clusters(site: &Site<'_>, parts: &[Part], seconds: &dyn Fn(&[usize]) -> f64) -> Vec<usize> {
    let touched = parts.iter().map(|part| {
        let values = part.stmts(site.block()).flat_map(|stmt| stmt.operands.iter().chain(&stmt.results));
        values.copied().filter(|&value| may_be_kept(site, value)).collect()
    });
    let all: Vec<BTreeSet<Value>> = touched.collect();
    let alone = parts.iter().enumerate().map(|(at, part)| if part.may_run() { seconds(&[at]) } else { 0.0 });
    let alone: Vec<f64> = alone.collect();
    let mut clusters: Vec<usize> = (0..parts.len()).collect();
    for b in (0..parts.len()).filter(|&at| parts[at].may_run()) {
        for a in (0..b).filter(|&at| parts[at].may_run() && !all[at].is_disjoint(&all[b])) {
            let (into, from) = (clusters[a], clusters[b]);
            let size = clusters.iter().filter(|cluster| [into, from].contains(cluster)).count();
            let apart = alone[a] + alone[b];
            if into != from && size <= MOST_TOGETHER && (seconds(&[a, b]) - apart).abs() > SAME * apart {
                clusters.iter_mut().filter(|cluster| **cluster == from).for_each(|cluster| *cluster = into);
            }
        }
    }
    clusters
}

/// Recomputed value of one block instance.
#[derive(Clone, PartialEq, Debug)]
pub struct Recomputed {
    /// Name of the value.
    pub name: String,
    /// Name of the op that computes it.
    pub op: &'static str,
    /// Bytes of all results of its statement that are not saved.
    pub bytes: f64,
    /// Seconds of recomputing it alone.
    pub seconds: f64,
}

/// Values that a configuration recomputes by name, in forward order.
pub(super) fn recomputed(site: &Site<'_>, names: &[String]) -> Vec<Recomputed> {
    let keep = Keep::of_dropped(site, dropped(site, names));
    let times = RecomputeTimes::of(site);
    let stmts = &site.block()[SectionKind::F].stmts;
    let whole = Keep::of_dropped(site, Dropped::default());
    let mut recomputed = Vec::new();
    for part in parts(site) {
        let runs = part.choice == Choice::Either && part.stmts.iter().any(|&at| keep.runs(at));
        let first = &stmts[part.stmts[0]];
        let named = first.results.iter().find_map(|&value| name(site, value)).filter(|_| runs);
        let Some(name) = named else { continue };
        let bytes = part.stmts(site.block()).map(|stmt| {
            let values = stmt.results.iter().filter(|&&value| whole.has(value));
            values.map(|&value| Keep::of_value(site, Some(stmt), value)).sum::<f64>() + site.beside(stmt)
        });
        recomputed.push(Recomputed {
            name: name.to_string(),
            op: first.op.name(),
            bytes: bytes.sum(),
            seconds: times.seconds(&part.stmts.iter().copied().collect()),
        });
    }
    recomputed
}
