//! A pattern: the time of each class, modulo the period.

use super::shape::Shape;
use ir::schedule::Kind;

/// A repeating schedule: class c runs from `start[c] + n period` for the n-th micro-batch of its stream.
///
/// On a rank no two overlap modulo the period; starts lie any number of periods apart, which is the lag between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    /// Seconds from one micro-batch of a stream to the next.
    pub(super) period: f64,
    /// Per class of the [`Shape`].
    pub(super) start: Vec<f64>,
}

/// Part of a period by which starts may be off: the solvers' feasibility tolerance is 1e-7 of each row. Nothing is read
/// from a pattern but orders and whole periods.
pub(super) const ROUNDING: f64 = 1e-6;

impl Pattern {
    /// How many whole periods lie between the starts of two classes, rounded down.
    pub(super) fn periods(&self, from: usize, to: f64) -> f64 {
        ((to - self.start[from]) / self.period + ROUNDING).floor()
    }

    /// The most memory that a rank holds in the steady state. It is largest at the start of an F: what is held of a stage
    /// then follows from how many of its F have started, and how many of its I and W have ended.
    pub(super) fn memory(&self, shape: &Shape, rank: usize) -> f64 {
        let forwards = || shape.of_rank[rank].iter().copied().filter(|&class| shape.classes[class].kind == Kind::F);
        let ended = |class: usize, at: f64| self.periods(class, at - shape.classes[class].seconds);
        let held = |at: f64| {
            let of = |forward: usize| {
                let freeing = shape.freeing(forward).into_iter().flatten();
                let freed: f64 = freeing.map(|class| shape.classes[class].frees * ended(class, at)).sum();
                shape.classes[forward].takes * self.periods(forward, at) - freed
            };
            forwards().map(of).sum::<f64>()
        };
        forwards().map(|forward| held(self.start[forward])).fold(0.0, f64::max)
    }

    /// Whether no rank passes its limit in the steady state.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        (0..shape.ranks).all(|rank| {
            let limit = shape.limit[rank];
            limit.is_infinite() || self.memory(shape, rank) <= limit * (1.0 + ROUNDING)
        })
    }
}
