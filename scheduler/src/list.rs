//! List scheduling of a chain or a V under a memory limit: at each moment each free rank runs something that has arrived and
//! fits.
//!
//! In a V an F of the first chunk runs only if an F of the second fits beside those that have none yet. So no rank fills up
//! with forwards that cannot come back: once the older ones are through, the oldest micro-batch left can always go on, and
//! every limit that holds one forward of each stage will do.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

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

/// Each rank's actions: kind and stage, in the order of their micro-batches; and the longest time that a rank takes from
/// its first start to its last end.
pub(crate) fn list(
    costs: &StageCosts,
    pipeline: &Pipeline,
    limit: &[f64],
    order: Order,
) -> (f64, Vec<Vec<(Kind, usize)>>) {
    let stages = pipeline.stages() as usize;
    let rank = |rank| Rank { stages: pipeline.stages_of(rank, 0).map(|s| s as usize).collect(), ..Rank::default() };
    let mut list = List {
        costs,
        limit,
        order,
        microbatches: pipeline.microbatches as usize,
        rank_of: (0..pipeline.stages()).map(|stage| pipeline.rank(stage, 0) as usize).collect(),
        forwards: vec![Vec::new(); stages],
        backwards: vec![Vec::new(); stages],
        ranks: (0..pipeline.ranks).map(rank).collect(),
        wakes: BinaryHeap::new(),
    };
    (0..list.ranks.len()).for_each(|rank| list.wake(0.0, rank));
    while let Some(Reverse((bits, rank))) = list.wakes.pop() {
        list.look(rank, f64::from_bits(bits));
    }
    let span = list.ranks.iter().map(|rank| rank.now - rank.first).fold(0.0, f64::max);
    (span, list.ranks.into_iter().map(|rank| rank.row).collect())
}

#[derive(Default)]
struct Rank {
    stages: Vec<usize>,
    row: Vec<(Kind, usize)>,
    first: f64,
    now: f64,
    held: f64,
    /// Stages whose W can run, in the order of their I.
    weights: VecDeque<usize>,
}

struct List<'a> {
    costs: &'a StageCosts,
    limit: &'a [f64],
    order: Order,
    microbatches: usize,
    rank_of: Vec<usize>,
    /// Ends of the F and I of each stage.
    forwards: Vec<Vec<f64>>,
    backwards: Vec<Vec<f64>>,
    ranks: Vec<Rank>,
    /// When a rank may find work. Times are not negative, so their bits sort as they do.
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
}

impl List<'_> {
    fn wake(&mut self, time: f64, rank: usize) {
        self.wakes.push(Reverse((time.to_bits(), rank)));
    }

    /// Starts something on a rank, if it is free and there is something.
    fn look(&mut self, rank: usize, time: f64) {
        if self.ranks[rank].now > time {
            return;
        }
        let fitting = || self.preferred(rank).filter(|&(kind, stage)| self.fits(rank, kind, stage));
        let arrived_by =
            |time: f64| fitting().find(|&(kind, stage)| self.arrival(kind, stage).is_some_and(|at| at <= time));
        let weight = self.ranks[rank].weights.front().copied();
        let next = arrived_by(time).or_else(|| {
            let weight = weight?;
            let held_up = self.order.patient && arrived_by((time + self.costs.w[weight]).next_down()).is_some();
            (!held_up).then_some((Kind::W, weight))
        });
        if let Some((kind, stage)) = next {
            self.start(rank, kind, stage, time);
        }
    }

    /// A rank's F and I in the order of preference: of F those of the last stage first, of I those of the first.
    fn preferred(&self, rank: usize) -> impl Iterator<Item = (Kind, usize)> {
        let stages = &self.ranks[rank].stages;
        let forwards = || stages.iter().rev().map(|&stage| (Kind::F, stage));
        let backwards = stages.iter().map(|&stage| (Kind::I, stage));
        let (before, after) = if self.order.forward { (Some(forwards()), None) } else { (None, Some(forwards())) };
        before.into_iter().flatten().chain(backwards).chain(after.into_iter().flatten())
    }

    /// When a stage's next F or I has all that it needs; `None` if that has not begun, or there is no next one.
    fn arrival(&self, kind: Kind, stage: usize) -> Option<f64> {
        if kind == Kind::F {
            let nth = self.forwards[stage].len();
            return match stage.checked_sub(1) {
                None => (nth < self.microbatches).then_some(0.0),
                Some(before) => Some(self.forwards[before].get(nth)? + self.hop(before)),
            };
        }
        let nth = self.backwards[stage].len();
        let own = *self.forwards[stage].get(nth)?;
        match self.backwards.get(stage + 1) {
            None => Some(own),
            Some(after) => Some(own.max(after.get(nth)? + self.hop(stage))),
        }
    }

    /// Seconds between a stage and the next.
    fn hop(&self, stage: usize) -> f64 {
        if self.rank_of[stage] == self.rank_of[stage + 1] { 0.0 } else { self.costs.comm[stage] }
    }

    fn fits(&self, rank: usize, kind: Kind, stage: usize) -> bool {
        let (Rank { held, stages, .. }, f) = (&self.ranks[rank], &self.costs.mem_f);
        let within = |held: f64| held <= self.limit[rank] * (1.0 + ROUNDING);
        match stages[..] {
            _ if kind != Kind::F => true,
            [first, second] if stage == first && self.order.eager => {
                let alone = (self.forwards[first].len() - self.forwards[second].len()) as f64;
                within(held + f[first]) && within((alone + 1.0) * f[first] + f[second])
            }
            [first, second] if stage == first => within(held + f[first] + f[second]),
            _ => within(held + f[stage]),
        }
    }

    fn start(&mut self, rank: usize, kind: Kind, stage: usize, time: f64) {
        let here = &mut self.ranks[rank];
        if here.row.is_empty() {
            here.first = time;
        }
        here.row.push((kind, stage));
        let costs = self.costs;
        let (seconds, memory, next) = match kind {
            Kind::F => (costs.f[stage], costs.mem_f[stage], Some(stage + 1).filter(|&next| next < self.rank_of.len())),
            Kind::I => (costs.i[stage], -costs.mem_i[stage], stage.checked_sub(1)),
            _ => (costs.w[stage], -costs.mem_w[stage], None),
        };
        here.held += memory;
        here.now = time + seconds;
        let end = here.now;
        match kind {
            Kind::F => self.forwards[stage].push(end),
            Kind::I => {
                here.weights.push_back(stage);
                self.backwards[stage].push(end);
            }
            _ => {
                here.weights.pop_front();
            }
        }
        self.wake(end, rank);
        if let Some(next) = next {
            self.wake(end + self.hop(stage.min(next)), self.rank_of[next]);
        }
    }
}

/// Figures nearer to each other than this, of the larger, are the same.
const ROUNDING: f64 = 1e-9;
