//! State of one rank: the work that it can start, and the work that it has run.

use super::{PriorityRule, ROUNDING, Row};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;

/// A rank with its `N` sorts of work, the F and the I of each of its stages, in the order of preference. F of the last stage
/// and I of the first stage come first.
pub(super) struct Rank<const N: usize> {
    /// Arrival time of the next input of each sort; infinite if its producer has not started or no unit is left.
    pub arrives: [f64; N],
    /// Number of started units of each sort.
    pub started: [usize; N],
    /// Sorts that fit in the memory that is left, one bit each.
    fit: u32,
    pub now: f64,
    first: f64,
    /// Total seconds of the rank's work, plus its gaps up to now.
    pub least: f64,
    held: f64,
    limit: f64,
    /// Number of F of the first chunk without an F of the second.
    alone: f64,
    /// Sorts of the I that have run, and the number of their W that have run.
    backwards: Vec<u8>,
    weights: usize,
    /// Actions that have run: their sorts, plus `N` for the W of an I.
    row: Vec<u8>,
    /// Kind and chunk of each sort.
    sorts: [(Kind, usize); N],
    seconds: [f64; N],
    /// Change in used memory by each sort.
    memory: [f64; N],
    /// Memory that must be free for each sort to start: its own.
    own: [f64; N],
    /// In addition, before an F that is not eager: memory of an F of the next chunk.
    next_chunk: [f64; N],
    /// Second memory condition: memory of each F without a second-chunk F, this one included.
    unpaired: [f64; N],
    /// In addition: memory of one F of the second chunk.
    second: [f64; N],
    /// Change in the number of F without a second-chunk F, by sort.
    lonely: [f64; N],
    /// The W that belongs to each sort.
    weight: [Work; N],
}

/// Seconds of an action, and the change in used memory by it.
#[derive(Clone, Copy)]
struct Work {
    seconds: f64,
    memory: f64,
}

impl<const N: usize> Rank<N> {
    pub(super) fn new(costs: &StageCosts, pipeline: &Pipeline, limit: f64, order: PriorityRule, rank: u32) -> Rank<N> {
        let own: Vec<usize> = pipeline.stages_of(rank, 0).map(|stage| stage as usize).collect();
        let microbatches = pipeline.microbatches as usize;
        let sorts = sorts::<N>(order);
        let (mut next_chunk, mut unpaired, mut second) = ([0.0; N], [0.0; N], [f64::NEG_INFINITY; N]);
        // Of two chunks, an F of the first has a condition on the F of the second.
        if let [first, last] = own[..]
            && let Some(sort) = sorts.iter().position(|sort| *sort == (Kind::F, 0))
        {
            if order.eager {
                (unpaired[sort], second[sort]) = (costs.mem_f[first], costs.mem_f[last]);
            } else {
                next_chunk[sort] = costs.mem_f[last];
            }
        }
        let seconds = own.iter().map(|&stage| costs.f[stage] + costs.i[stage] + costs.w[stage]).sum::<f64>();
        let mut rank = Rank {
            arrives: [f64::INFINITY; N],
            started: [0; N],
            fit: 0,
            now: 0.0,
            first: 0.0,
            least: microbatches as f64 * seconds,
            held: 0.0,
            limit: limit * (1.0 + ROUNDING),
            alone: 0.0,
            backwards: Vec::with_capacity(N / 2 * microbatches),
            weights: 0,
            row: Vec::with_capacity(3 * N / 2 * microbatches),
            sorts,
            seconds: by_kind(&sorts, |chunk| costs.f[own[chunk]], |chunk| costs.i[own[chunk]]),
            memory: by_kind(&sorts, |chunk| costs.mem_f[own[chunk]], |chunk| -costs.mem_i[own[chunk]]),
            own: by_kind(&sorts, |chunk| costs.mem_f[own[chunk]], |_| f64::NEG_INFINITY),
            next_chunk,
            unpaired,
            second,
            lonely: by_kind(&sorts, |chunk| if chunk == 0 { 1.0 } else { -1.0 }, |_| 0.0),
            weight: sorts.map(|(_, chunk)| Work { seconds: costs.w[own[chunk]], memory: -costs.mem_w[own[chunk]] }),
        };
        rank.fit = rank.fitting();
        rank
    }

    /// Returns the sorts of work that fit, one bit each.
    #[inline]
    fn fitting(&self) -> u32 {
        (0..N).map(|sort| u32::from(self.fits(sort)) << sort).sum()
    }

    #[inline]
    fn fits(&self, sort: usize) -> bool {
        let held = self.held + self.own[sort] + self.next_chunk[sort];
        let pairs = (self.alone + 1.0) * self.unpaired[sort] + self.second[sort];
        (held <= self.limit) & (pairs <= self.limit)
    }

    /// Returns the preferred sort among those that fit and have arrived at `time`.
    #[inline]
    pub(super) fn arrived_by(&self, time: f64) -> Option<usize> {
        let arrived: u32 = (0..N).map(|sort| u32::from(self.arrives[sort] <= time) << sort).sum();
        let ready = arrived & self.fit;
        (ready != 0).then_some(ready.trailing_zeros() as usize)
    }

    /// Returns the arrival of the next sort that fits, in seconds.
    pub(super) fn next_arrival(&self) -> f64 {
        let fitting = (0..N).filter(|sort| self.fit >> sort & 1 == 1).map(|sort| self.arrives[sort]);
        fitting.fold(f64::INFINITY, f64::min)
    }

    /// Returns the seconds of the next W, if one can run.
    #[inline]
    pub(super) fn next_weight(&self) -> Option<f64> {
        self.backwards.get(self.weights).map(|&sort| self.weight[sort as usize].seconds)
    }

    /// Runs an F or I.
    #[inline]
    pub(super) fn start(&mut self, sort: usize, time: f64) {
        if self.sorts[sort].0 == Kind::I {
            self.backwards.push(sort as u8);
        }
        self.alone += self.lonely[sort];
        self.started[sort] += 1;
        self.run(sort, time, Work { seconds: self.seconds[sort], memory: self.memory[sort] });
    }

    /// Runs the next W.
    #[inline]
    pub(super) fn start_weight(&mut self, time: f64) {
        let sort = self.backwards[self.weights] as usize;
        self.weights += 1;
        self.run(N + sort, time, self.weight[sort]);
    }

    #[inline]
    fn run(&mut self, what: usize, time: f64, work: Work) {
        if self.row.is_empty() {
            self.first = time;
            self.now = time;
        }
        self.least += time - self.now;
        self.row.push(what as u8);
        self.held += work.memory;
        self.now = time + work.seconds;
        self.fit = self.fitting();
    }

    /// Returns the seconds from the first start to the last end.
    pub(super) fn span(&self) -> f64 {
        self.now - self.first
    }

    /// Returns the actions that have run.
    pub(super) fn row(&self) -> Row {
        let actions = self.row.iter().map(|&what| {
            let (kind, chunk) = self.sorts[what as usize % N];
            (if (what as usize) < N { kind } else { Kind::W }, chunk as u8)
        });
        actions.collect()
    }
}

/// Returns a number of each sort of work, which for an F and for an I depends on the chunk.
fn by_kind<const N: usize>(
    sorts: &[(Kind, usize); N],
    forward: impl Fn(usize) -> f64,
    backward: impl Fn(usize) -> f64,
) -> [f64; N] {
    sorts.map(|(kind, chunk)| if kind == Kind::F { forward(chunk) } else { backward(chunk) })
}

/// Returns the kind and chunk of each sort of work.
pub(super) fn sorts<const N: usize>(order: PriorityRule) -> [(Kind, usize); N] {
    let chunks = N / 2;
    std::array::from_fn(|sort| match (order.forward, sort < chunks) {
        (true, true) => (Kind::F, chunks - 1 - sort),
        (true, false) => (Kind::I, sort - chunks),
        (false, true) => (Kind::I, sort),
        (false, false) => (Kind::F, N - 1 - sort),
    })
}
