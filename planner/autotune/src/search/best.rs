//! Best configurations found so far, one per kind.

use super::{CostEstimate, Level, SearchNode};
use ir::options::{ParallelConfig, Recompute};
use std::cmp::Ordering;

/// Kind of a configuration: degrees, micro-batch, ZeRO stage, schedule, and kind of recomputation. Configurations of
/// one kind are near-duplicates.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    degrees: [u64; 7],
    zero: u8,
    schedule: String,
    recompute: u8,
}

/// A configuration with its cost.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranked {
    /// The configuration.
    pub parallel: ParallelConfig,
    /// Its cost.
    pub cost: CostEstimate,
}

/// Largest ratio of an alternative's objective to the best objective.
pub const SPREAD: f64 = 1.5;

/// The best configurations, at most one per kind and at most the wanted number.
pub(super) struct Best {
    by_memory: bool,
    wanted: usize,
    /// Entries, best first.
    list: Vec<(Kind, Ranked)>,
}

impl Kind {
    /// Kind of a configuration.
    pub fn of(parallel: &ParallelConfig) -> Kind {
        let (schedule, recompute) = (parallel.schedule.clone(), recomputed(parallel));
        Kind { degrees: degrees(parallel), zero: parallel.zero, schedule, recompute }
    }

    /// Returns whether a configuration is of this kind.
    fn is_of(&self, parallel: &ParallelConfig) -> bool {
        let alike = self.zero == parallel.zero && self.recompute == recomputed(parallel);
        alike && self.degrees == degrees(parallel) && self.schedule == parallel.schedule
    }
}

fn degrees(parallel: &ParallelConfig) -> [u64; 7] {
    let ParallelConfig { dp, tp, cp, pp, ep, etp, mbs, .. } = *parallel;
    [dp, tp, cp, pp, ep, etp, mbs]
}

fn recomputed(parallel: &ParallelConfig) -> u8 {
    match parallel.recompute {
        Recompute::None => 0,
        // Recomputation of modules and of values chosen for the memory budget.
        Recompute::Selective(_) | Recompute::Auto => 1,
        Recompute::Full(_) => 2,
    }
}

impl Best {
    pub(super) fn new(wanted: usize, by_memory: bool) -> Best {
        Best { by_memory, wanted: wanted.max(1), list: Vec::new() }
    }

    /// Objective value: seconds, or bytes rounded to whole bytes, so that sums in another order compare equal.
    fn value(&self, seconds: f64, bytes: f64) -> f64 {
        if self.by_memory { bytes.round() } else { seconds }
    }

    /// Orders by the objective; ties prefer no host offload, then the lower value of the other metric.
    fn compare(&self, a: &Ranked, b: &Ranked) -> Ordering {
        let key = |ranked: &Ranked| {
            let CostEstimate { seconds, bytes, .. } = ranked.cost;
            if self.by_memory { [bytes.round(), seconds] } else { [seconds, bytes] }
        };
        let ([a0, a1], [b0, b1]) = (key(a), key(b));
        let host = || a.parallel.uses_host().cmp(&b.parallel.uses_host());
        a0.total_cmp(&b0).then_with(host).then(a1.total_cmp(&b1)).then_with(|| a.cost.text.cmp(&b.cost.text))
    }

    /// Objective value above which a configuration is not useful.
    pub(super) fn threshold(&self) -> f64 {
        let value = |at: usize| self.list.get(at).map(|(_, ranked)| self.value(ranked.cost.seconds, ranked.cost.bytes));
        let spread = value(0).map_or(f64::INFINITY, |best| best * if self.wanted > 1 { SPREAD } else { 1.0 });
        value(self.wanted - 1).unwrap_or(f64::INFINITY).min(spread)
    }

    /// Objective value above which a node is not useful, because all its configurations are of one kind and a better
    /// one of that kind is known.
    pub(super) fn threshold_of(&self, node: &SearchNode) -> f64 {
        let is_one_kind = matches!(node.level, Level::Complete | Level::Layers);
        let same = self.list.iter().find(|(kind, _)| is_one_kind && kind.is_of(&node.parallel));
        same.map_or(f64::INFINITY, |(_, ranked)| self.value(ranked.cost.seconds, ranked.cost.bytes))
    }

    /// Configuration that every member of a node must beat: the entry of the node's only kind, else the last wanted
    /// entry.
    pub(super) fn rival(&self, node: &SearchNode) -> Option<&Ranked> {
        let is_one_kind = matches!(node.level, Level::Complete | Level::Layers);
        let same = self.list.iter().find(|(kind, _)| is_one_kind && kind.is_of(&node.parallel));
        same.or(self.list.get(self.wanted - 1)).map(|(_, ranked)| ranked)
    }

    /// Inserts a configuration if it is useful.
    pub(super) fn offer(&mut self, ranked: Ranked) {
        let kind = Kind::of(&ranked.parallel);
        match self.list.iter().position(|(other, _)| *other == kind) {
            Some(at) if self.compare(&ranked, &self.list[at].1).is_lt() => {
                self.list.remove(at);
            }
            Some(_) => return,
            None => {}
        }
        let at = self.list.partition_point(|(_, other)| self.compare(other, &ranked).is_lt());
        self.list.insert(at, (kind, ranked));
        self.list.truncate(self.wanted);
        let threshold = self.threshold();
        let mut list = std::mem::take(&mut self.list);
        list.retain(|(_, ranked)| self.value(ranked.cost.seconds, ranked.cost.bytes) <= threshold);
        self.list = list;
    }

    /// Entries, best first.
    pub(super) fn ranked(self) -> Vec<Ranked> {
        self.list.into_iter().map(|(_, ranked)| ranked).collect()
    }

    /// The best entry.
    pub(super) fn first(&self) -> Option<&Ranked> {
        self.list.first().map(|(_, ranked)| ranked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::options::Offload;

    #[test]
    fn of_equals_the_one_that_leaves_the_host_alone_is_best() {
        let ranked = |offload: bool, seconds: f64, bytes: f64| Ranked {
            parallel: ParallelConfig {
                offload: if offload { Offload::Auto } else { Offload::None },
                ..ParallelConfig::default()
            },
            cost: CostEstimate { seconds, bytes, text: format!("offload={offload}") },
        };
        let first = |by_memory: bool, offered: [Ranked; 2]| {
            let mut best = Best::new(1, by_memory);
            offered.into_iter().for_each(|ranked| best.offer(ranked));
            best.first().is_some_and(|best| !best.parallel.offload.is_none())
        };
        assert!(!first(false, [ranked(true, 1.0, 1.0), ranked(false, 1.0, 2.0)]));
        assert!(!first(true, [ranked(true, 1.0, 2.0), ranked(false, 2.0, 2.0)]));
        assert!(first(false, [ranked(true, 0.9, 1.0), ranked(false, 1.0, 2.0)]));
        assert!(first(true, [ranked(true, 1.0, 1.0), ranked(false, 1.0, 2.0)]));
    }
}
