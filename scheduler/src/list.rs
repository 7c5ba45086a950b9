//! List scheduling of a chain or a V under a memory limit: at each moment each free rank runs something that has arrived and
//! fits.
//!
//! In a V an F of the first chunk runs only if an F of the second fits beside those that have none yet. So no rank fills up
//! with forwards that cannot come back: once the older ones are through, the oldest micro-batch left can always go on, and
//! every limit that holds one forward of each stage will do.

mod wakes;
mod work;

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;
use wakes::Wakes;
use work::{Next, Work};

/// What a rank prefers.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    /// No W that would hold up an F or I that is on its way.
    pub patient: bool,
    /// F before I.
    pub forward: bool,
    /// In a V, an F of the first chunk also where the room for one of the second has yet to be freed.
    pub eager: bool,
}

impl Order {
    /// All that make a difference in a pipeline.
    pub(crate) fn all(pipeline: &Pipeline) -> impl Iterator<Item = Order> + use<> {
        let both = [true, false];
        let eager = if pipeline.chunks > 1 { &[true, false][..] } else { &[false] };
        let pairs = both.into_iter().flat_map(move |patient| both.map(|forward| (patient, forward)));
        pairs.flat_map(|(patient, forward)| eager.iter().map(move |&eager| Order { patient, forward, eager }))
    }
}

/// What a rank does: kinds and chunks, in the order of their micro-batches.
pub(crate) type Row = Vec<(Kind, u8)>;

/// The longest time that a rank takes from its first start to its last end, and the rows; `None` once that time is known to
/// be no less than `below`.
///
/// The pipeline is a chain or a V of two chunks.
pub(crate) fn list(
    costs: &StageCosts,
    pipeline: &Pipeline,
    limit: &[f64],
    order: Order,
    below: f64,
) -> Option<(f64, Vec<Row>)> {
    match pipeline.chunks {
        1 => List::<2>::new(costs, pipeline, limit, order).run(below),
        _ => List::<4>::new(costs, pipeline, limit, order).run(below),
    }
}

/// A rank with its `N` sorts of F and I.
struct Rank<const N: usize> {
    /// In the order of preference: of F those of the last stage first, of I those of the first.
    work: [Work; N],
    /// When the next of each arrives; infinite if what it needs has not begun, or there is no next one.
    arrives: [f64; N],
    started: [usize; N],
    row: Row,
    first: f64,
    now: f64,
    held: f64,
    most: f64,
    /// F of the first chunk without one of the second.
    alone: f64,
    /// Seconds of its work and of its gaps.
    least: f64,
    /// I in their order, and how many of their W have run.
    backwards: Vec<u8>,
    weights: usize,
}

struct List<const N: usize> {
    microbatches: usize,
    patient: bool,
    ranks: Vec<Rank<N>>,
    /// Arrivals of the `microbatches` of each sort of work of each rank that are known, and how many are.
    arrivals: Vec<f64>,
    known: Vec<[usize; N]>,
    wakes: Wakes,
}

impl<const N: usize> List<N> {
    fn new(costs: &StageCosts, pipeline: &Pipeline, limit: &[f64], order: Order) -> List<N> {
        let (ranks, microbatches) = (pipeline.ranks, pipeline.microbatches as usize);
        let rank = |rank: u32| {
            let stages = pipeline.stages_of(rank, 0).map(|stage| stage as usize);
            let seconds: f64 = stages.map(|stage| costs.f[stage] + costs.i[stage] + costs.w[stage]).sum();
            Rank {
                work: work::of_rank(costs, pipeline, order, rank),
                arrives: [f64::INFINITY; N],
                started: [0; N],
                row: Vec::with_capacity(3 * N / 2 * microbatches),
                first: 0.0,
                now: 0.0,
                held: 0.0,
                most: limit[rank as usize] * (1.0 + ROUNDING),
                alone: 0.0,
                least: microbatches as f64 * seconds,
                backwards: Vec::with_capacity(N / 2 * microbatches),
                weights: 0,
            }
        };
        let mut list = List {
            microbatches,
            patient: order.patient,
            ranks: (0..ranks).map(rank).collect(),
            arrivals: vec![0.0; ranks as usize * N * microbatches],
            known: vec![[0; N]; ranks as usize],
            wakes: Wakes::new(ranks as usize),
        };
        let source = list.ranks[0].work.iter().position(|work| work.kind == Kind::F && work.chunk == 0);
        if let Some(place) = source {
            list.known[0][place] = microbatches;
            list.ranks[0].arrives[place] = 0.0;
        }
        list
    }

    fn run(mut self, below: f64) -> Option<(f64, Vec<Row>)> {
        let enough = below * (1.0 + ROUNDING);
        if self.ranks.iter().any(|rank| rank.least > enough) {
            return None;
        }
        while let Some((time, rank)) = self.wakes.first() {
            self.look(rank, time);
            if self.ranks[rank].least > enough {
                return None;
            }
        }
        let span = self.ranks.iter().map(|rank| rank.now - rank.first).fold(0.0, f64::max);
        Some((span, self.ranks.into_iter().map(|rank| rank.row).collect()))
    }

    /// Starts something on a free rank, or has it wait until something arrives.
    fn look(&mut self, rank: usize, time: f64) {
        let here = &self.ranks[rank];
        if let Some(place) = here.arrived_by(time) {
            return self.start(rank, place, time);
        }
        let weight = here.backwards.get(here.weights).map(|&place| here.work[place as usize].weight[0]);
        match weight {
            Some(seconds) if !(self.patient && here.arrived_by((time + seconds).next_down()).is_some()) => {
                self.weight(rank, time);
            }
            _ => {
                let fitting = (0..N).filter(|&place| here.fits(place));
                self.wakes.set(rank, fitting.map(|place| here.arrives[place]).fold(f64::INFINITY, f64::min));
            }
        }
    }

    fn start(&mut self, rank: usize, place: usize, time: f64) {
        let microbatches = self.microbatches;
        let here = &mut self.ranks[rank];
        let work = here.work[place];
        let end = here.run(work.kind, work.chunk, time, work.seconds, work.memory);
        if work.kind == Kind::I {
            here.backwards.push(place as u8);
        } else {
            here.alone += if work.chunk == 0 { 1.0 } else { -1.0 };
        }
        here.started[place] += 1;
        let nth = here.started[place];
        here.arrives[place] = if nth < self.known[rank][place] {
            self.arrivals[(rank * N + place) * microbatches + nth]
        } else {
            f64::INFINITY
        };
        self.wakes.set(rank, end);
        if let Some(Next { rank: other, place, hop }) = work.next {
            let arrival = end + hop;
            let nth = self.known[other][place];
            self.known[other][place] += 1;
            self.arrivals[(other * N + place) * microbatches + nth] = arrival;
            let there = &mut self.ranks[other];
            if there.started[place] == nth {
                there.arrives[place] = arrival;
                if other != rank && self.wakes.of(other) > arrival && there.now <= time {
                    self.wakes.set(other, arrival);
                }
            }
        }
    }

    fn weight(&mut self, rank: usize, time: f64) {
        let here = &mut self.ranks[rank];
        let work = here.work[here.backwards[here.weights] as usize];
        here.weights += 1;
        let [seconds, memory] = work.weight;
        let end = here.run(Kind::W, work.chunk, time, seconds, memory);
        self.wakes.set(rank, end);
    }
}

impl<const N: usize> Rank<N> {
    /// The F or I preferred of those that fit and have arrived by a time.
    #[inline]
    fn arrived_by(&self, time: f64) -> Option<usize> {
        (0..N).find(|&place| self.arrives[place] <= time && self.fits(place))
    }

    #[inline]
    fn fits(&self, place: usize) -> bool {
        let work = &self.work[place];
        let ([room, beside], [first, second]) = (work.room, work.pairs);
        self.held + room + beside <= self.most && (self.alone + 1.0) * first + second <= self.most
    }

    /// Runs something; gives its end.
    #[inline]
    fn run(&mut self, kind: Kind, chunk: u8, time: f64, seconds: f64, memory: f64) -> f64 {
        if self.row.is_empty() {
            self.first = time;
        } else {
            self.least += time - self.now;
        }
        self.row.push((kind, chunk));
        self.held += memory;
        self.now = time + seconds;
        self.now
    }
}

/// Figures nearer to each other than this, of the larger, are the same.
const ROUNDING: f64 = 1e-9;
