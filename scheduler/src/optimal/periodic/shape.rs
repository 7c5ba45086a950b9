//! Shape of a period: the streams of micro-batches that pass through it, and the work of each stream.

use crate::optimal::Instance;
use crate::placement::{Pipeline, Placement};
use ir::schedule::Kind;

/// What one period holds. A stream is every `unroll`-th micro-batch of a direction; all streams do the same classes.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Micro-batches of each direction in a period, u.
    pub(super) unroll: usize,
    /// Directions, 1 or 2.
    pub(super) directions: usize,
    /// Micro-batches that go down; the others go up.
    down: usize,
    /// Classes of a stream: F, I, W or F, B of every stage.
    pub(super) per_stream: usize,
    /// The first of them that form a path from F of stage 0 to I (or B) of stage 0: each needs the one before it. Behind
    /// them come the W, each `stages` behind its I.
    pub(super) path: usize,
    /// Stages, S.
    pub(super) stages: usize,
    /// Pipeline ranks.
    pub(super) ranks: usize,
    /// All classes, stream by stream.
    pub(super) classes: Vec<Class>,
    /// The classes of each rank.
    pub(super) of_rank: Vec<Vec<usize>>,
    /// Most memory of each rank; infinite without a limit.
    pub(super) limit: Vec<f64>,
}

/// An operation of every micro-batch of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) kind: Kind,
    pub(super) stage: usize,
    pub(super) rank: usize,
    pub(super) seconds: f64,
    /// Seconds that the result of the class before it on the path is on its way.
    pub(super) hop: f64,
    pub(super) takes: f64,
    pub(super) frees: f64,
}

impl Shape {
    /// The period of a pipeline with so many micro-batches of each direction; `None` if there are not enough for two.
    pub(super) fn new(instance: &Instance, pipeline: &Pipeline, unroll: usize) -> Option<Shape> {
        let microbatches = pipeline.microbatches as usize;
        let two = pipeline.placement == Placement::Bidirectional && microbatches > 1;
        let (directions, down) = if two { (2, microbatches.div_ceil(2)) } else { (1, microbatches) };
        if microbatches - down < if two { 2 * unroll } else { 0 } || down < 2 * unroll {
            return None;
        }
        let per_stream = instance.operations.len() / microbatches;
        let stages = pipeline.stages() as usize;
        let (path, ranks) = (2 * stages, pipeline.ranks as usize);
        let mut classes = Vec::with_capacity(directions * unroll * per_stream);
        let mut of_rank = vec![Vec::new(); ranks];
        for first in (0..directions).flat_map(|direction| std::iter::repeat_n(direction * down, unroll)) {
            for place in 0..per_stream {
                let operation = &instance.operations[first * per_stream + place];
                let before = operation.after.iter().find(|&&(from, _)| from + 1 == first * per_stream + place);
                of_rank[operation.rank].push(classes.len());
                classes.push(Class {
                    kind: operation.kind,
                    stage: operation.stage,
                    rank: operation.rank,
                    seconds: operation.seconds,
                    hop: before.map_or(0.0, |&(_, hop)| hop),
                    takes: operation.takes,
                    frees: operation.frees,
                });
            }
        }
        let limit = instance.limit.clone();
        Some(Shape { unroll, directions, down, per_stream, path, stages, ranks, classes, of_rank, limit })
    }

    /// Streams of a period.
    pub(super) fn streams(&self) -> usize {
        self.unroll * self.directions
    }

    /// The stream of a micro-batch, and the period in which it comes, from 0.
    pub(super) fn place(&self, microbatch: usize) -> (usize, usize) {
        let (direction, index) = if microbatch < self.down { (0, microbatch) } else { (1, microbatch - self.down) };
        (direction * self.unroll + index % self.unroll, index / self.unroll)
    }

    /// Seconds of work of the busiest rank in a period: no period is shorter.
    pub(super) fn load(&self) -> f64 {
        let load = |classes: &Vec<usize>| classes.iter().map(|&class| self.classes[class].seconds).sum::<f64>();
        self.of_rank.iter().map(load).fold(0.0, f64::max)
    }

    /// Seconds of the way of a micro-batch through all stages and back, without waiting.
    pub(super) fn round_trip(&self) -> f64 {
        self.classes[..self.path].iter().map(|class| class.hop + class.seconds).sum()
    }

    /// Whether a class is on the path; the others are W.
    pub(super) fn on_path(&self, class: usize) -> bool {
        class % self.per_stream < self.path
    }

    /// The class that frees what F of a class's stage and stream took: its I or B, and its W if there is one.
    pub(super) fn freeing(&self, forward: usize) -> [Option<usize>; 2] {
        let (stream, stage) = (forward / self.per_stream * self.per_stream, forward % self.per_stream);
        let backward = stream + self.path - 1 - stage;
        [Some(backward), (self.per_stream > self.path).then_some(backward + self.stages)]
    }
}
