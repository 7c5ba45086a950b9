//! Collective time on groups of ranks over the link levels of a cluster.

use crate::cluster::Link;
use crate::group_shape::GroupShape;
use crate::platform::Platform;
use smallvec::SmallVec;

/// Replica group: `ranks` ranks, each `stride` ranks after the previous one, in rank order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// Number of ranks.
    pub ranks: u64,
    /// Distance between neighbours, in ranks.
    pub stride: u64,
}

/// Kind of collective. Bytes are those of the full tensor on one rank: the input of a reduce-scatter, the output of an
/// all-gather.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveKind {
    /// Sum, returned to all ranks.
    AllReduce,
    /// Concatenation of all parts, returned to all ranks.
    AllGather,
    /// Sum, with one part returned to each rank.
    ReduceScatter,
    /// Exchange of parts between all ranks; bytes are those of one rank, its own part included.
    AllToAll,
    /// MoE dispatch or combine: each row is sent to several experts, once per node, and once per rank within the node
    /// (DeepEP).
    Exchange {
        /// Number of experts per row.
        copies: u64,
        /// Number of these experts that are neighbours; 0 for experts anywhere.
        adjacent: u64,
    },
    /// Point-to-point message.
    Send,
}

/// Slice size in bytes for overlapping the levels of a collective. Fitted to the all-reduce of two nodes in the table
/// of `h100-p5-efa`, which takes the sum of its levels at 16 MiB and little more than the slower level at 8 GiB.
const SLICE: f64 = 64e6;

/// Levels of a group, innermost first.
type Levels<'a> = SmallVec<[Level<'a>; 4]>;

/// Part of a group at one level: units that communicate over its links, each of several ranks of the group.
struct Level<'a> {
    link: &'a Link,
    units: f64,
    within: f64,
    /// True if the level is between nodes.
    is_network: bool,
    /// True if a hop of a ring takes less than one of a tree: NCCL between nodes.
    has_short_hops: bool,
    /// Fraction of the link's bandwidth that the stack reaches.
    share: f64,
}

impl Level<'_> {
    /// Seconds of one hop of a message.
    fn hop(&self, bytes: f64) -> f64 {
        self.link.latency + bytes / self.bandwidth(bytes)
    }

    /// Bandwidth of a device at this message size, in bytes per second.
    fn bandwidth(&self, message: f64) -> f64 {
        self.link.bandwidth * self.share * self.link.share.at(message)
    }

    /// Seconds in which `bytes` go over a lane of the level, after the first hop.
    fn pace(&self, bytes: f64) -> f64 {
        bytes / self.within / self.bandwidth(bytes / self.within)
    }

    /// Number of hops from the leaves of a tree to its root.
    fn height(&self) -> f64 {
        self.units.log2().ceil()
    }

    /// Ring all-gather or reduce-scatter over the level's units, with `bytes` per participating rank.
    fn gather(&self, bytes: f64) -> f64 {
        (self.units - 1.0) * self.hop(bytes / self.units)
    }

    /// All-reduce by a ring, by a double tree (up and down), or by a reduction in the switch.
    fn reduce(&self, bytes: f64) -> f64 {
        let ring = 2.0 * self.gather(bytes);
        let switch =
            self.link.switch.map(|rate| self.up_and_down() + bytes / (rate * self.link.share.at(bytes) * self.share));
        let tree = self.link.tree.map(|share| self.tree(bytes / (self.link.bandwidth * self.share * share / 2.0)));
        ring.min(tree.unwrap_or(ring)).min(switch.unwrap_or(ring))
    }

    /// Latency of an empty message to the root of a tree and back, in seconds.
    fn up_and_down(&self) -> f64 {
        2.0 * self.height() * self.link.latency
    }

    /// Seconds of a tree all-reduce whose bytes take `on_link` seconds on a link. The message is split into pieces of
    /// the best size: more pieces fill the levels sooner, but each piece waits for its hops (Sanders, Speck and Traeff
    /// 2009, section 2).
    fn tree(&self, on_link: f64) -> f64 {
        (on_link.sqrt() + self.up_and_down().sqrt()).powi(2)
    }
}

impl Platform<'_> {
    /// Collective time in seconds for `bytes` on a group, if no other traffic uses its links. All groups of this kind
    /// run at the same time, each device with its own share of its node's network cards.
    ///
    /// An all-reduce runs level by level. All-gathers and reduce-scatters use one ring through all ranks or, if the
    /// stack can, run level by level, whichever takes less. In an all-to-all, traffic within a node and traffic between
    /// nodes overlap.
    pub fn collective_time(&self, kind: CollectiveKind, bytes: f64, group: Group) -> f64 {
        self.time(kind, bytes, &group.into())
    }

    /// Collective time on ranks along any axes.
    pub fn time(&self, kind: CollectiveKind, bytes: f64, group: &GroupShape) -> f64 {
        self.collective_time_with(kind, bytes, group, |_| 0.0)
    }

    /// Collective time between the ranks of a layer, which wait for each other. Such a ring runs alone, whereas
    /// consecutive gradient rings fill each other's pauses.
    pub fn isolated_time(&self, kind: CollectiveKind, bytes: f64, group: &GroupShape) -> f64 {
        self.collective_time_with(kind, bytes, group, |level| level.link.step.unwrap_or(0.0))
    }

    /// Seconds of all-gathers of `bytes` in `messages` equal parts, one after the other around a ring. Each step waits for the one before.
    /// Its message is a rank's part, over as many lanes between nodes as the node has ranks of the group.
    pub fn stepwise_gather_time(&self, bytes: f64, messages: f64, group: Group) -> f64 {
        let part = bytes / messages / group.ranks as f64;
        let levels = self.levels(&group.into());
        let steps = messages * (group.ranks as f64 - 1.0);
        steps * levels.iter().map(|level| level.pace(part)).fold(0.0, f64::max)
    }

    /// Seconds of broadcasts of `bytes` in `messages` equal parts, one after the other around a ring of all ranks: a part goes through all
    /// links before the next one begins.
    pub fn broadcast_time(&self, bytes: f64, messages: f64, group: Group) -> f64 {
        let levels = self.levels(&group.into());
        if levels.is_empty() || bytes <= 0.0 {
            return 0.0;
        }
        let ranks = group.ranks as f64;
        let part = bytes / messages;
        // A ring sends what the ranks do not have: of a broadcast all of it.
        let whole = part * ranks / (ranks - 1.0);
        messages * (self.cluster.links[0].start + flat(&levels, whole, ranks, |level| level.link.step.unwrap_or(0.0)))
    }

    /// Seconds that any message takes, however few bytes it has. Beyond them fewer bytes take no less time for each.
    pub fn least_wait(&self) -> f64 {
        let latency = self.cluster.links.iter().map(|link| link.latency).fold(f64::INFINITY, f64::min);
        self.cluster.links[0].start + RING_HOP * latency
    }

    fn collective_time_with(
        &self,
        kind: CollectiveKind,
        bytes: f64,
        group: &GroupShape,
        step: fn(&Level<'_>) -> f64,
    ) -> f64 {
        if bytes <= 0.0 {
            return 0.0;
        }
        let levels = self.levels(group);
        let Some(outer) = levels.last() else { return 0.0 };
        let (start, ranks) = (self.cluster.links[0].start, group.ranks() as f64);
        match kind {
            CollectiveKind::Send => {
                start + outer.hop(bytes).max(outer.link.latency + bytes / outer.link.pair.unwrap_or(f64::MAX))
            }
            CollectiveKind::AllToAll => start + each_to_each(&levels, bytes, ranks, |_| 1.0),
            CollectiveKind::Exchange { copies, adjacent } => {
                start
                    + each_to_each(&levels, bytes, ranks, |units| reached(units, copies.max(1) as f64, adjacent as f64))
            }
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
                let flat = flat(&levels, bytes, ranks, step);
                let staged = staged(&levels, bytes, Level::gather);
                start + if self.stack.traits.network.hierarchical { flat.min(staged) } else { flat }
            }
            CollectiveKind::AllReduce => start + staged(&levels, bytes, Level::reduce),
        }
    }

    /// Levels that a group uses, innermost first. A level's unit is the greatest divisor of the group's rank count that
    /// fits.
    fn levels(&self, group: &GroupShape) -> Levels<'_> {
        let ranks = group.ranks();
        let mut within = 1;
        let mut levels = Levels::new();
        for (index, link) in self.cluster.links.iter().enumerate() {
            let is_last = index + 1 == self.cluster.links.len();
            let fits = if is_last { ranks } else { group.ranks_within(link.joins) };
            let mut divisors = (within..=fits).rev().filter(|&joined| ranks.is_multiple_of(joined));
            let joined = divisors.find(|joined| joined.is_multiple_of(within)).unwrap_or(within);
            if joined > within {
                let is_network = index > 0 || is_last;
                let share = if is_network { self.stack.fitted.network.value } else { 1.0 };
                let (units, has_short_hops) = ((joined / within) as f64, index > 0 || link.tree.is_some());
                levels.push(Level { link, units, within: within as f64, is_network, has_short_hops, share });
            }
            within = joined;
        }
        levels
    }
}

/// Hierarchical collective: each level processes the data that inner levels leave to a rank. The levels overlap, one
/// slice at a time.
fn staged<'a>(levels: &[Level<'a>], bytes: f64, seconds: fn(&Level<'a>, f64) -> f64) -> f64 {
    let of = levels.iter().map(|level| seconds(level, bytes / level.within));
    let (all, most) = of.fold((0.0, 0.0), |(all, most), seconds| (all + seconds, f64::max(most, seconds)));
    most + (all - most) / (bytes / SLICE).max(1.0)
}

/// Latency of a ring hop between nodes relative to a tree hop: 4.0 of 8.5 us (NCCL's tuning table, protocol LL128).
const RING_HOP: f64 = 0.47;

/// One ring through all ranks, over all parallel links of each level. Its first part uses all links, or takes a `step`
/// per rank if that is more. The other parts follow without a pause at the pace of the slowest level. Between nodes the
/// ring has as many lanes as the node has ranks of the group.
fn flat(levels: &[Level<'_>], bytes: f64, ranks: f64, step: fn(&Level<'_>) -> f64) -> f64 {
    let around = levels.iter().map(|level| {
        let links = ranks / level.within * (1.0 - 1.0 / level.units);
        links * (level.link.latency * if level.has_short_hops { RING_HOP } else { 1.0 })
    });
    let steps = (ranks - 1.0) * levels.iter().map(step).fold(0.0, f64::max);
    let pace = levels.iter().map(|level| level.pace(bytes)).fold(0.0, f64::max);
    around.sum::<f64>().max(steps) + (1.0 - 1.0 / ranks) * pace
}

/// All-to-all: each rank's parts for the ranks of a level leave over the level's link. `share` gives the fraction of
/// rows that are sent, for a number of units.
fn each_to_each(levels: &[Level<'_>], bytes: f64, ranks: f64, share: impl Fn(f64) -> f64) -> f64 {
    let seconds = levels.iter().map(|level| {
        let peers = (level.units - 1.0) * level.within;
        let sent = bytes * share(if level.is_network { level.units } else { ranks });
        level.link.latency + peers * level.link.message + sent * peers / ranks / level.bandwidth(bytes)
    });
    seconds.fold(0.0, f64::max)
}

/// Fraction of `copies` copies of a row for experts on n units that remains if each unit receives one copy. Experts
/// anywhere reach `n (1 - (1 - 1/n)^copies)` units in the mean; neighbouring experts reach the units that contain them.
fn reached(units: f64, copies: f64, adjacent: f64) -> f64 {
    let units = match adjacent {
        0.0 => units * (1.0 - (1.0 - 1.0 / units).powf(copies)),
        experts => (copies * units / experts).max(1.0),
    };
    (units / copies).min(1.0)
}

#[cfg(test)]
mod tests;
