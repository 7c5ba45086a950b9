//! Shape of a period: the streams of micro-batches that pass through it, and the work of each stream.

use crate::optimal::Instance;
use crate::placement::{Pipeline, Placement};
use ir::schedule::Kind;

/// The content of one period. A stream is every `unroll`-th micro-batch of a direction; all streams have the same classes.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Number u of micro-batches of each direction in a period.
    pub(super) unroll: usize,
    /// Number of directions, 1 or 2.
    pub(super) directions: usize,
    /// Number of micro-batches that enter at rank 0; the others enter at the last rank.
    down: usize,
    /// Number of classes of a stream: F, I, W or F, B of every stage.
    pub(super) per_stream: usize,
    /// Number of classes on the path from F of stage 0 to I (or B) of stage 0; each needs the one before it. The W follow them,
    /// each `stages` after its I.
    pub(super) path: usize,
    /// Number S of stages.
    pub(super) stages: usize,
    /// Number of pipeline ranks.
    pub(super) ranks: usize,
    /// All classes, stream by stream.
    pub(super) classes: Vec<Class>,
    /// Classes of each rank.
    pub(super) of_rank: Vec<Vec<usize>>,
    /// Memory limit of each rank; infinite without a limit.
    pub(super) limit: Vec<f64>,
}

/// An operation of every micro-batch of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) kind: Kind,
    pub(super) stage: usize,
    pub(super) rank: usize,
    pub(super) seconds: f64,
    /// Seconds from the end of the previous class on the path to the arrival of its result.
    pub(super) hop: f64,
    pub(super) takes: f64,
    pub(super) frees: f64,
}

impl Shape {
    /// Builds the period of a pipeline with `unroll` micro-batches of each direction. Returns `None` if there are too few for
    /// two periods.
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

    /// Returns the number of streams of a period.
    pub(super) fn streams(&self) -> usize {
        self.unroll * self.directions
    }

    /// Returns the stream of a micro-batch, and the index of its period, from 0.
    pub(super) fn place(&self, microbatch: usize) -> (usize, usize) {
        let (direction, index) = if microbatch < self.down { (0, microbatch) } else { (1, microbatch - self.down) };
        (direction * self.unroll + index % self.unroll, index / self.unroll)
    }

    /// Returns the seconds of work of the busiest rank in a period, a lower bound on the period.
    pub(super) fn load(&self) -> f64 {
        let seconds = self.of_rank.iter().map(|classes| classes.iter().map(|&class| self.classes[class].seconds));
        seconds.map(Iterator::sum).fold(0.0, f64::max)
    }

    /// Returns the seconds of a period for each of its micro-batches of a direction.
    pub(super) fn per_microbatch(&self, period: f64) -> f64 {
        period / self.unroll as f64
    }

    /// Returns the F of a rank.
    pub(super) fn forwards(&self, rank: usize) -> impl Iterator<Item = usize> {
        self.of_rank[rank].iter().copied().filter(|&class| self.classes[class].kind == Kind::F)
    }

    /// Returns the seconds of a micro-batch through all stages and back, without waiting.
    pub(super) fn round_trip(&self) -> f64 {
        self.classes[..self.path].iter().map(|class| class.hop + class.seconds).sum()
    }

    /// Returns whether a class is on the path; the others are W.
    pub(super) fn on_path(&self, class: usize) -> bool {
        class % self.per_stream < self.path
    }

    /// Returns the classes that free the memory of an F: its I or B, and its W if there is one.
    pub(super) fn freeing(&self, forward: usize) -> [Option<usize>; 2] {
        let (stream, stage) = (forward / self.per_stream * self.per_stream, forward % self.per_stream);
        let backward = stream + self.path - 1 - stage;
        [Some(backward), (self.per_stream > self.path).then_some(backward + self.stages)]
    }
}
