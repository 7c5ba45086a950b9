//! Seconds of collectives on groups of ranks over the levels of a cluster.

use crate::cluster::Link;
use crate::machine::Machine;
use ir::goal::Layout;
use smallvec::SmallVec;

/// Which ranks talk: `ranks` of them, each `stride` ranks after the one before, innermost rank order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// How many.
    pub ranks: u64,
    /// The distance between neighbours.
    pub stride: u64,
}

/// How many times further apart neighbours on an axis are than among the ranks alone that work on a block together, of which so
/// many are data-parallel: other ranks lie between them where the layout's order puts pp or dp further inside.
pub fn spread(layout: &Layout, axis: &str, together: u64) -> u64 {
    let others = |name: &String| match name.as_str() {
        "pp" => layout.pp,
        "dp" => (layout.dp / together).max(1),
        _ => 1,
    };
    layout.order.iter().skip_while(|name| *name != axis).skip(1).map(others).product()
}

/// What they do. Bytes are those of the whole tensor on one rank: the input of a reduce-scatter, the output of an all-gather.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Talk {
    /// Sum, to all.
    AllReduce,
    /// Parts to all.
    AllGather,
    /// Sum, a part to each.
    ReduceScatter,
    /// Each to each; bytes are those that a rank has, its own part among them.
    AllToAll,
    /// The same of rows of which each goes to several experts: to a node once, and on within it, to a rank once (DeepEP).
    Exchange {
        /// To how many.
        copies: u64,
        /// Of how many these are neighbours; 0: they lie anywhere.
        adjacent: u64,
    },
    /// One to the next.
    Send,
}

/// Bytes that one level of a collective works on while the other works on those before: fits the all-reduce of two nodes in
/// the table of `h100-p5-efa`, which takes the sum of its levels at 16 MiB and little more than the slower one at 8 GiB.
const SLICE: f64 = 64e6;

/// Those of a group, innermost first.
type Levels<'a> = SmallVec<[Level<'a>; 4]>;

/// What a group has of a level: units that talk over its links, each of so many ranks of the group.
struct Level<'a> {
    link: &'a Link,
    units: f64,
    within: f64,
    /// Whether it lies between nodes.
    is_network: bool,
    /// The share of the link's bandwidth that the stack reaches.
    share: f64,
}

impl Level<'_> {
    /// Seconds of a hop of a message.
    fn hop(&self, bytes: f64) -> f64 {
        self.link.latency + bytes / self.bandwidth(bytes)
    }

    /// Bytes per second of a device that sends messages of this size.
    fn bandwidth(&self, message: f64) -> f64 {
        self.link.bandwidth * self.share * self.link.share.at(message)
    }

    /// Hops from the leaves of a tree to its root.
    fn height(&self) -> f64 {
        self.units.log2().ceil()
    }

    /// All-gather or reduce-scatter over its units of `bytes` that a rank of each takes part with: a ring.
    fn gather(&self, bytes: f64) -> f64 {
        (self.units - 1.0) * self.hop(bytes / self.units)
    }

    /// All-reduce: a ring; a double tree, up and down; or a sum in the switch.
    fn reduce(&self, bytes: f64) -> f64 {
        let ring = 2.0 * self.gather(bytes);
        let switch =
            self.link.switch.map(|rate| self.up_and_down() + bytes / (rate * self.link.share.at(bytes) * self.share));
        let tree = self.link.tree.map(|share| self.tree(bytes / (self.link.bandwidth * self.share * share / 2.0)));
        ring.min(tree.unwrap_or(ring)).min(switch.unwrap_or(ring))
    }

    /// Seconds of a message of no bytes to the root of a tree and back.
    fn up_and_down(&self) -> f64 {
        2.0 * self.height() * self.link.latency
    }

    /// Seconds of a sum over a tree whose bytes take so many on a link. They go in pieces of the best size: more pieces fill the
    /// levels sooner, but each waits for its hops (Sanders, Speck and Traeff 2009, section 2).
    fn tree(&self, on_link: f64) -> f64 {
        (on_link.sqrt() + self.up_and_down().sqrt()).powi(2)
    }
}

impl Machine<'_> {
    /// Seconds of a collective of so many bytes on a group, when nothing else uses its links. All groups of this kind run at
    /// once, each device over its own share of its node's network cards.
    ///
    /// An all-reduce goes level by level. Gathers and scatters take one ring through all ranks, or go level by level where the
    /// stack can, whichever takes less. In an all-to-all what stays in a node and what leaves it go at the same time.
    pub fn talk(&self, talk: Talk, bytes: f64, group: Group) -> f64 {
        self.talk_within(talk, bytes, group, |_| 0.0)
    }

    /// The same between the ranks of a layer, which wait for each other: a ring stands alone, where those of gradients follow
    /// one on the other and fill its pauses.
    pub fn talk_alone(&self, talk: Talk, bytes: f64, group: Group) -> f64 {
        self.talk_within(talk, bytes, group, |level| level.link.step.unwrap_or(0.0))
    }

    fn talk_within(&self, talk: Talk, bytes: f64, group: Group, step: fn(&Level<'_>) -> f64) -> f64 {
        if bytes <= 0.0 {
            return 0.0;
        }
        let levels = self.levels(group);
        let Some(outer) = levels.last() else { return 0.0 };
        let start = self.cluster.links[0].start;
        match talk {
            Talk::Send => {
                start + outer.hop(bytes).max(outer.link.latency + bytes / outer.link.pair.unwrap_or(f64::MAX))
            }
            Talk::AllToAll => start + each_to_each(&levels, bytes, group.ranks as f64, |_| 1.0),
            Talk::Exchange { copies, adjacent } => {
                let share = |units: f64| reached(units, copies.max(1) as f64, adjacent as f64);
                start + each_to_each(&levels, bytes, group.ranks as f64, share)
            }
            Talk::AllGather | Talk::ReduceScatter => {
                let flat = flat(&levels, bytes, group.ranks as f64, step);
                let staged = staged(&levels, bytes, Level::gather);
                start + if self.stack.facts.hierarchical { flat.min(staged) } else { flat }
            }
            Talk::AllReduce => start + staged(&levels, bytes, Level::reduce),
        }
    }

    /// The levels that a group uses, innermost first. A level's unit has the greatest divisor of the group's ranks that fits.
    fn levels(&self, group: Group) -> Levels<'_> {
        let mut within = 1;
        let mut levels = Levels::new();
        for (index, link) in self.cluster.links.iter().enumerate() {
            let is_last = index + 1 == self.cluster.links.len();
            let fits = if is_last { group.ranks } else { (link.joins / group.stride.max(1)).clamp(1, group.ranks) };
            let is_whole = |n: &u64| group.ranks.is_multiple_of(*n) && n.is_multiple_of(within);
            let joined = (within..=fits).rev().find(is_whole).unwrap_or(within);
            if joined > within {
                let is_network = index > 0 || is_last;
                let share = if is_network { self.stack.fitted.network.value } else { 1.0 };
                levels.push(Level { link, units: (joined / within) as f64, within: within as f64, is_network, share });
            }
            within = joined;
        }
        levels
    }
}

/// Level by level: each works on what the levels within it leave to a rank. They overlap, a slice at a time.
fn staged<'a>(levels: &[Level<'a>], bytes: f64, seconds: fn(&Level<'a>, f64) -> f64) -> f64 {
    let of = levels.iter().map(|level| seconds(level, bytes / level.within));
    let (all, most) = of.fold((0.0, 0.0), |(all, most), seconds| (all + seconds, f64::max(most, seconds)));
    most + (all - most) / (bytes / SLICE).max(1.0)
}

/// A hop of a ring between nodes over one of a tree: 4.0 of 8.5 us (NCCL's tuning table, protocol LL128).
const RING_HOP: f64 = 0.47;

/// One ring through all ranks, over as many links of each level as there are: its first part goes over all of them, or takes a
/// `step` for each rank if that is more, and all others follow without a pause at the pace of the slowest level. Between nodes
/// the ring has as many lanes as a node has ranks of the group.
fn flat(levels: &[Level<'_>], bytes: f64, ranks: f64, step: fn(&Level<'_>) -> f64) -> f64 {
    let links = |level: &Level<'_>| ranks / level.within * (1.0 - 1.0 / level.units);
    let hop = |level: &Level<'_>| level.link.latency * if level.is_network { RING_HOP } else { 1.0 };
    let around: f64 = levels.iter().map(|level| links(level) * hop(level)).sum();
    let steps = (ranks - 1.0) * levels.iter().map(step).fold(0.0, f64::max);
    let pace = |level: &Level<'_>| bytes / level.within / level.bandwidth(bytes / level.within);
    around.max(steps) + (1.0 - 1.0 / ranks) * levels.iter().map(pace).fold(0.0, f64::max)
}

/// Each rank's parts for the ranks of a level leave over its link: of rows that go to several the `share` for so many units.
fn each_to_each(levels: &[Level<'_>], bytes: f64, ranks: f64, share: impl Fn(f64) -> f64) -> f64 {
    let seconds = levels.iter().map(|level| {
        let peers = (level.units - 1.0) * level.within;
        let sent = bytes * share(if level.is_network { level.units } else { ranks });
        level.link.latency + peers * level.link.message + sent * peers / ranks / level.bandwidth(bytes)
    });
    seconds.fold(0.0, f64::max)
}

/// Of so many copies of a row for experts on n units, the share that is left when each unit gets one: of experts anywhere
/// `n (1 - (1 - 1/n)^copies)` in the mean, of neighbours as many units as they lie on.
fn reached(units: f64, copies: f64, adjacent: f64) -> f64 {
    let units = match adjacent {
        0.0 => units * (1.0 - (1.0 - 1.0 / units).powf(copies)),
        experts => (copies * units / experts).max(1.0),
    };
    (units / copies).min(1.0)
}

#[cfg(test)]
mod tests;
