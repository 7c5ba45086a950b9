//! A pattern: the time of each class, modulo the period.

use super::shape::Shape;

/// A repeating schedule: class c runs from `start[c] + n period` for the n-th micro-batch of its stream.
///
/// On a rank no two classes overlap modulo the period. The starts of two classes may be any number of periods apart: their lag.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    /// Seconds from one micro-batch of a stream to the next.
    pub(super) period: f64,
    /// Start of each class of the [`Shape`], in seconds.
    pub(super) start: Vec<f64>,
}

/// Fraction of a period by which starts may be off, since the solvers' feasibility tolerance is 1e-7 of each row. Only orders
/// and whole periods are read from a pattern.
pub(super) const ROUNDING: f64 = 1e-6;

impl Pattern {
    /// Returns the number of whole periods from the start of a class to time `to`, rounded down.
    pub(super) fn periods(&self, from: usize, to: f64) -> f64 {
        ((to - self.start[from]) / self.period + ROUNDING).floor()
    }

    /// Returns the peak memory of a rank in the steady state. The peak is at the start of an F. The memory of a stage then
    /// follows from the number of its F that have started, and of its I and W that have ended.
    pub(super) fn memory(&self, shape: &Shape, rank: usize) -> f64 {
        shape.forwards(rank).map(|forward| self.memory_at(shape, rank, self.start[forward])).fold(0.0, f64::max)
    }

    fn memory_at(&self, shape: &Shape, rank: usize, at: f64) -> f64 {
        let of_stages = shape.forwards(rank).map(|forward| {
            let freeing = shape.freeing(forward).into_iter().flatten();
            let freed = freeing.map(|class| {
                let of = &shape.classes[class];
                of.frees * self.periods(class, at - of.seconds)
            });
            shape.classes[forward].takes * self.periods(forward, at) - freed.sum::<f64>()
        });
        of_stages.sum()
    }

    /// Returns whether all ranks are within their limits in the steady state.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        (0..shape.ranks).all(|rank| {
            let limit = shape.limit[rank];
            limit.is_infinite() || self.memory(shape, rank) <= limit * (1.0 + ROUNDING)
        })
    }
}
