//! The sorts of F and I of a rank: what they take, and what they are needed by.

use super::Order;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;

/// The F, or the I, of a stage.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub kind: Kind,
    pub chunk: u8,
    pub seconds: f64,
    /// By how much one changes what its rank holds.
    pub memory: f64,
    /// What must fit beside what the rank holds before one may start; the second is for an F of the next chunk.
    pub room: [f64; 2],
    /// What must fit as well: so much for each F of the first chunk without one of the second, this one included, and for
    /// the next one of the second.
    pub pairs: [f64; 2],
    /// Seconds and change in memory of the W that it leaves to do.
    pub weight: [f64; 2],
    /// What takes its result.
    pub next: Option<Next>,
}

/// Where a result goes.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub rank: usize,
    /// Which of the rank's sorts of work takes it.
    pub place: usize,
    /// Seconds until it has arrived.
    pub hop: f64,
}

/// What always fits.
const NOTHING: [f64; 2] = [0.0, f64::NEG_INFINITY];

/// The work of a rank in the order of preference: of F those of the last stage first, of I those of the first.
pub(super) fn of_rank<const N: usize>(costs: &StageCosts, pipeline: &Pipeline, order: Order, rank: u32) -> [Work; N] {
    let own: Vec<usize> = pipeline.stages_of(rank, 0).map(|stage| stage as usize).collect();
    std::array::from_fn(|place| {
        let (kind, chunk) = sort(place, N / 2, order);
        let stage = own[chunk];
        let (seconds, memory) = match kind {
            Kind::F => (costs.f[stage], costs.mem_f[stage]),
            _ => (costs.i[stage], -costs.mem_i[stage]),
        };
        let (room, pairs) = match (kind, chunk, &own[..]) {
            (Kind::F, 0, &[_, second]) if order.eager => ([memory, 0.0], [memory, costs.mem_f[second]]),
            (Kind::F, 0, &[_, second]) => ([memory, costs.mem_f[second]], NOTHING),
            (Kind::F, ..) => ([memory, 0.0], NOTHING),
            _ => (NOTHING, NOTHING),
        };
        let weight = [costs.w[stage], -costs.mem_w[stage]];
        let next = next(costs, pipeline, order, (kind, stage));
        Work { kind, chunk: chunk as u8, seconds, memory, room, pairs, weight, next }
    })
}

/// Kind and chunk of a place in the order of preference. Turned round, it gives places.
fn sort(place: usize, chunks: usize, order: Order) -> (Kind, usize) {
    let (before, after) = if order.forward { (Kind::F, Kind::I) } else { (Kind::I, Kind::F) };
    let (kind, nth) = if place < chunks { (before, place) } else { (after, place - chunks) };
    (kind, if kind == Kind::F { chunks - 1 - nth } else { nth })
}

fn next(costs: &StageCosts, pipeline: &Pipeline, order: Order, (kind, stage): (Kind, usize)) -> Option<Next> {
    let stages = pipeline.stages() as usize;
    let (kind, other) = match kind {
        Kind::F if stage + 1 < stages => (Kind::F, stage + 1),
        Kind::F => (Kind::I, stage),
        _ => (Kind::I, stage.checked_sub(1)?),
    };
    let [rank, from] = [other, stage].map(|stage| pipeline.rank(stage as u32, 0) as usize);
    let chunks = pipeline.chunks as usize;
    let place = (0..2 * chunks).find(|&place| sort(place, chunks, order) == (kind, other / pipeline.ranks as usize))?;
    let hop = if rank == from { 0.0 } else { costs.comm[stage.min(other)] };
    Some(Next { rank, place, hop })
}
