//! Seconds of collectives, by the formulas of rings.

use crate::cluster::Link;
use ir::ops::Collective;

/// Seconds of a layout change among `n` ranks, where `bytes` are those of the larger of one rank's operand and result.
///
/// On a ring (Patarasuk and Yuan 2009) each rank passes on one n-th of the bytes in each of n - 1 hops, so
/// `all_gather` and `reduce_scatter` take `(n-1)/n bytes / bandwidth + (n-1) latency`, and `all_reduce`, which is one after
/// the other, twice that. `all_to_all` keeps one n-th and sends the rest, in n - 1 messages. `shard` and `owe` move nothing.
pub fn seconds_of_collective(link: &Link, collective: &Collective, bytes: u64, n: u64) -> f64 {
    let hops = n.saturating_sub(1) as f64;
    let round = hops / n.max(1) as f64 * bytes as f64 / link.bandwidth + hops * link.latency;
    match collective {
        Collective::AllGather { .. } | Collective::ReduceScatter { .. } | Collective::AllToAll { .. } => round,
        Collective::AllReduce { .. } => 2.0 * round,
        Collective::Shard { .. } | Collective::Owe { .. } => 0.0,
    }
}

/// Seconds of a message from one rank to another.
pub fn seconds_of_message(link: &Link, bytes: u64) -> f64 {
    bytes as f64 / link.bandwidth + link.latency
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::mesh::Axes;

    #[test]
    fn an_all_reduce_is_a_scatter_and_a_gather() {
        let link = Link { joins: 8, bandwidth: 1e9, latency: 1e-6 };
        let seconds = |collective, n| seconds_of_collective(&link, &collective, 4_000_000, n);
        let over = Axes::none;
        assert_eq!(seconds(Collective::AllGather { dim: Some(0), over: over() }, 4), 3e-3 + 3e-6);
        assert_eq!(seconds(Collective::AllReduce { over: over() }, 4), 6e-3 + 6e-6);
        assert_eq!(seconds(Collective::AllReduce { over: over() }, 1), 0.0);
        assert_eq!(seconds(Collective::Shard { dim: None, over: over() }, 4), 0.0);
    }
}
