//! Messages between ranks: arrival times of the inputs of each sort of work.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;

/// Arrival times of the inputs of each of the `N` sorts of work of each rank, by micro-batch.
pub(super) struct Messages<const N: usize> {
    /// Arrivals by rank, sort and micro-batch; infinite if not known, and at the end.
    arrivals: Vec<f64>,
    /// One more than the number of micro-batches.
    length: usize,
    /// Receiver of the results of each rank and sort.
    channels: Vec<[Option<Channel>; N]>,
}

/// Channel from a result to the work that needs it.
#[derive(Clone, Copy)]
struct Channel {
    rank: usize,
    sort: usize,
    /// Seconds until the result arrives.
    hop: f64,
}

impl<const N: usize> Messages<N> {
    /// Creates channels with no message sent. All inputs of the first stage's F are there. `sorts` are pairs of kind and chunk.
    pub(super) fn new(costs: &StageCosts, pipeline: &Pipeline, sorts: &[(Kind, usize); N]) -> Messages<N> {
        let (stages, ranks) = (pipeline.stages() as usize, pipeline.ranks as usize);
        let rank_of: Vec<usize> = (0..pipeline.stages()).map(|stage| pipeline.rank(stage, 0) as usize).collect();

        let mut channels = vec![[None; N]; ranks];
        for stage in 0..stages {
            for (sort, &(kind, _)) in sorts.iter().enumerate().filter(|(_, sort)| sort.1 == stage / ranks) {
                let channel = taker(kind, stage, stages).and_then(|(kind, other)| {
                    let (rank, chunk) = (rank_of[other], other / ranks);
                    let hop = if rank == rank_of[stage] { 0.0 } else { costs.comm[stage.min(other)] };
                    Some(Channel { rank, sort: sorts.iter().position(|sort| *sort == (kind, chunk))?, hop })
                });
                channels[rank_of[stage]][sort] = channel;
            }
        }
        let length = pipeline.microbatches as usize + 1;
        let mut arrivals = vec![f64::INFINITY; ranks * N * length];
        if let Some(source) = sorts.iter().position(|sort| *sort == (Kind::F, 0)) {
            arrivals[source * length..][..length - 1].fill(0.0);
        }
        Messages { arrivals, length, channels }
    }

    /// Returns the arrivals of the inputs of the first micro-batch, by sort.
    pub(super) fn first(&self, rank: usize) -> [f64; N] {
        std::array::from_fn(|sort| self.arrival(rank, sort, 0))
    }

    /// Returns the arrival of the input of the `nth` micro-batch; infinite if not known or out of range.
    #[inline]
    pub(super) fn arrival(&self, rank: usize, sort: usize, nth: usize) -> f64 {
        self.arrivals[(rank * N + sort) * self.length + nth]
    }

    /// Sends a result of work that ends at `end`. Returns the receiving rank and sort, and the arrival time.
    #[inline]
    pub(super) fn send(&mut self, rank: usize, sort: usize, nth: usize, end: f64) -> Option<(usize, usize, f64)> {
        let Channel { rank, sort, hop } = self.channels[rank][sort]?;
        self.arrivals[(rank * N + sort) * self.length + nth] = end + hop;
        Some((rank, sort, end + hop))
    }
}

/// Returns the kind and stage of the work that a result is sent to. An I needs its own F too, but the message of the next stage
/// depends on that F already.
fn taker(kind: Kind, stage: usize, stages: usize) -> Option<(Kind, usize)> {
    match kind {
        Kind::F if stage + 1 < stages => Some((Kind::F, stage + 1)),
        Kind::F => Some((Kind::I, stage)),
        _ => Some((Kind::I, stage.checked_sub(1)?)),
    }
}
