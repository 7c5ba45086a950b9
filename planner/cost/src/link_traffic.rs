//! Traffic and time of one collective, by the formulas of the usual algorithms.

use crate::cluster::{Cluster, Link};
use ir::mesh::{Axes, Extent, Mesh};
use ir::ops::Collective;
use ir::types::{Dim, Type};

/// Traffic of one rank in a collective.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Traffic {
    /// Bytes received from peers, which equal the bytes sent at the same time.
    pub wire: f64,
    /// Number of consecutive messages that the rank waits for.
    pub messages: f64,
    /// Bytes read and written in the rank's own memory, if no peer takes part.
    pub memory: f64,
}

impl Traffic {
    /// Traffic of a collective on one tensor, from the types before and after, by its [`Pattern`]. Of chunks only the rows that are filled on
    /// average move.
    pub fn of(cluster: &Cluster, mesh: &Mesh, change: &Collective, operand: &Type, result: &Type) -> Traffic {
        let over = change.over();
        let bytes = |ty: &Type| {
            let whole = ty.local_bytes(mesh);
            change.ragged().map_or(whole, |ragged| ragged.mean_bytes(ty, whole))
        };
        let (before, after) = (bytes(operand), bytes(result));
        Pattern::of(mesh, change, operand).traffic(cluster.link(mesh, over), mesh.size(over), before, after)
    }

    /// Traffic of two tensors in one transfer.
    #[must_use]
    pub fn with(self, other: Traffic) -> Traffic {
        Traffic {
            wire: self.wire + other.wire,
            messages: self.messages.max(other.messages),
            memory: self.memory + other.memory,
        }
    }

    /// Seconds between the ranks along these axes.
    pub fn seconds(&self, cluster: &Cluster, mesh: &Mesh, over: &Axes) -> f64 {
        self.seconds_on(cluster.link(mesh, over), cluster.device.memory_bandwidth)
    }

    /// Seconds between ranks joined by a link, with a memory bandwidth in bytes per second.
    pub fn seconds_on(&self, link: &Link, memory_bandwidth: f64) -> f64 {
        self.wire / link.bandwidth + self.messages * link.latency + self.memory / memory_bandwidth
    }
}

/// Communication pattern of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Each rank receives its share of the data of all others: `all_gather` and `reduce_scatter`.
    Round,
    /// A reduce-scatter followed by an all-gather: `all_reduce`.
    Sum,
    /// Each rank has a part for each other rank: `all_to_all`.
    Exchange,
    /// Each rank receives its part in this number of pieces: a permute, or a shift.
    Pieces(u64),
    /// Local operation without communication: `all_slice` and `to_partial`.
    Local,
}

impl Pattern {
    fn of(mesh: &Mesh, change: &Collective, operand: &Type) -> Pattern {
        match change {
            Collective::AllGather { .. } | Collective::ReduceScatter { .. } => Pattern::Round,
            Collective::AllReduce { .. } => Pattern::Sum,
            Collective::AllToAll { .. } => Pattern::Exchange,
            Collective::Permute { dims, .. } => {
                let pieces = |(before, after): (&Dim, &Axes)| pieces(mesh, before.size, &before.axes, after);
                Pattern::Pieces(operand.dims.iter().zip(dims).map(pieces).product())
            }
            Collective::Shift { .. } => Pattern::Pieces(1),
            Collective::AllSlice { .. } | Collective::ToPartial { .. } => Pattern::Local,
        }
    }

    /// Traffic of the pattern among n ranks joined by a link, with the given bytes per rank before and after.
    ///
    /// Let the larger part have `b` bytes. `all_gather` and `reduce_scatter` receive (n-1)/n b in ceil(log2 n) messages
    /// by recursive doubling and halving. `all_reduce`, which runs one after the other, receives twice that (Thakur,
    /// Rabenseifner and Gropp 2005, section 4). `all_to_all` exchanges pairs in n - 1 messages of b/n, or passes on b/2
    /// in each of ceil(log2 n) messages (Bruck et al. 1997), whichever is faster. A permute is one message with the
    /// entire part, or one message per piece. `all_slice` and `to_partial` copy within the rank.
    pub fn traffic(self, link: &Link, n: u64, before: u64, after: u64) -> Traffic {
        let (larger, made, others) = (before.max(after) as f64, after as f64, n.saturating_sub(1) as f64);
        let round = Traffic { wire: others / n as f64 * larger, messages: rounds(n), memory: 0.0 };
        match self {
            Pattern::Round => round,
            Pattern::Sum => Traffic { wire: 2.0 * round.wire, messages: 2.0 * round.messages, ..round },
            Pattern::Exchange => {
                let pairs = Traffic { messages: others, ..round };
                let passed_on = Traffic { wire: rounds(n) * larger / 2.0, ..round };
                let seconds = |traffic: &Traffic| traffic.seconds_on(link, f64::INFINITY);
                if seconds(&passed_on) < seconds(&pairs) { passed_on } else { pairs }
            }
            Pattern::Pieces(_) if n == 1 => Traffic::default(),
            Pattern::Pieces(pieces) => Traffic { wire: made, messages: pieces as f64, memory: 0.0 },
            Pattern::Local => Traffic { memory: 2.0 * made, ..Traffic::default() },
        }
    }
}

/// Number of communication rounds after which each of n ranks has data from all.
fn rounds(n: u64) -> f64 {
    f64::from(n.max(1).next_power_of_two().ilog2())
}

/// Largest number of old shards that a new shard of a dim overlaps, if other axes shard the dim. Shards of both kinds
/// are in index order.
pub fn pieces(mesh: &Mesh, size: u64, before: &Axes, after: &Axes) -> u64 {
    let alike = mesh.size(before) == mesh.size(after);
    if before == after || (alike && mesh.is_even(size, before) && mesh.is_even(size, after)) {
        return 1;
    }
    let (old, end) = (mesh.extents(size, before), |shard: &Extent| shard.origin + shard.count);
    let (mut first, mut last, mut most) = (0, 0, 1);
    for new in mesh.extents(size, after) {
        first += old[first..].iter().take_while(|shard| end(shard) <= new.origin).count();
        last += old[last..].iter().take_while(|shard| shard.origin < end(&new)).count();
        most = most.max(last - first);
    }
    most as u64
}

/// Seconds of an `all_reduce` of equal tensors over n ranks joined by a link.
pub fn seconds_of_sum(link: &Link, bytes: u64, n: u64) -> f64 {
    let wire = 2.0 * n.saturating_sub(1) as f64 / n.max(1) as f64 * bytes as f64;
    wire / link.bandwidth + 2.0 * rounds(n) * link.latency
}

/// Seconds of a message from one rank to another.
pub fn seconds_of_message(link: &Link, bytes: u64) -> f64 {
    bytes as f64 / link.bandwidth + link.latency
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CPU;
    use ir::types::{DType, PartialKind};

    fn cluster() -> Cluster {
        Cluster { links: vec![Link { joins: 8, ..Link::plain(1e9, 1e-6) }], ..CPU.clone() }
    }

    fn sharded(size: u64, axes: &Axes) -> Type {
        let mut ty = Type::of(DType::F32, &[size]);
        ty.dims[0].axes = axes.clone();
        ty
    }

    fn seconds(mesh: &Mesh, change: &Collective, operand: &Type) -> f64 {
        let traffic = Traffic::of(&cluster(), mesh, change, operand, &change.result_type(operand).unwrap());
        traffic.seconds(&cluster(), mesh, change.over())
    }

    #[test]
    fn an_all_reduce_is_a_scatter_and_a_gather() {
        for size in [1, 4] {
            let mesh = Mesh::new("m", &[("x", size)]);
            let over = mesh.tensor_axes();
            let (cut, unreduced) = (sharded(1_000_000, &over), sharded(1_000_000, &Axes::none()));
            let gather = seconds(&mesh, &Collective::AllGather { dim: Some(0), over: over.clone() }, &cut);
            let reduce = Collective::AllReduce { over: over.clone() };
            let reduce = seconds(&mesh, &reduce, &unreduced.partial_over(PartialKind::Sum, &over));
            assert_eq!((gather, reduce), if size == 4 { (3e-3 + 2e-6, 6e-3 + 4e-6) } else { (0.0, 0.0) });
        }
    }

    #[test]
    fn a_small_all_to_all_passes_on_and_a_large_one_goes_in_pairs() {
        let mesh = Mesh::new("m", &[("x", 8)]);
        let over = mesh.tensor_axes();
        let change = Collective::AllToAll { from: 0, to: 1, over: over.clone(), ragged: None };
        let of = |size| {
            let mut ty = Type::of(DType::F32, &[size, size]);
            ty.dims[0].axes = over.clone();
            seconds(&mesh, &change, &ty)
        };
        assert_eq!(of(8), 3.0 * 16.0 / 1e9 + 3e-6);
        assert_eq!(of(1024), 7.0 / 8.0 * 524_288.0 / 1e9 + 7e-6);
    }

    #[test]
    fn a_permute_is_a_message_for_each_piece() {
        let mesh = Mesh::new("m", &[("x", 2), ("y", 4)]);
        let axes: Vec<Axes> = mesh.axes.keys().map(Axes::one).collect();
        let swapped = vec![axes[1].union(&axes[0])];
        let of = |size| {
            let ty = sharded(size, &mesh.tensor_axes());
            seconds(&mesh, &Collective::permute(&ty, swapped.clone()), &ty)
        };
        assert_eq!(of(16), 8.0 / 1e9 + 1e-6);
        // Over {x,y} shards of 17 begin at 0 3 6 9 | 9 12 15 17, over {y,x} at 0 3 | 5 8 | 10 13 | 15 17: 5..8 meets two.
        assert_eq!(of(17), 12.0 / 1e9 + 2e-6);
    }

    #[test]
    fn a_local_slice_takes_memory_only() {
        let mesh = Mesh::new("m", &[("x", 4)]);
        let whole = sharded(1000, &Axes::none());
        let shard = Collective::all_slice(Some(0), mesh.tensor_axes());
        assert_eq!(seconds(&mesh, &shard, &whole), 2000.0 / CPU.device.memory_bandwidth);
    }
}
