//! Small records of quantities that belong together. The field that holds a record states the unit.

use smallvec::SmallVec;
use std::iter::Sum;
use std::ops::{Add, Div, Mul};

/// A quantity of each of the sections F, I and W.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct PerSection {
    /// Quantity of the forward.
    pub(super) f: f64,
    /// Quantity of the input gradient.
    pub(super) i: f64,
    /// Quantity of the weight gradient.
    pub(super) w: f64,
}

impl PerSection {
    /// One value for all sections.
    pub(super) fn uniform(value: f64) -> PerSection {
        PerSection { f: value, i: value, w: value }
    }

    /// Sum over the sections.
    pub(super) fn total(self) -> f64 {
        self.f + self.i + self.w
    }

    /// Combines the quantities of each section.
    pub(super) fn zip(self, other: PerSection, join: impl Fn(f64, f64) -> f64) -> PerSection {
        PerSection { f: join(self.f, other.f), i: join(self.i, other.i), w: join(self.w, other.w) }
    }
}

impl Add for PerSection {
    type Output = PerSection;

    fn add(self, other: PerSection) -> PerSection {
        self.zip(other, |a, b| a + b)
    }
}

impl Mul for PerSection {
    type Output = PerSection;

    fn mul(self, other: PerSection) -> PerSection {
        self.zip(other, |a, b| a * b)
    }
}

impl Mul<f64> for PerSection {
    type Output = PerSection;

    fn mul(self, times: f64) -> PerSection {
        self * PerSection::uniform(times)
    }
}

impl Div<f64> for PerSection {
    type Output = PerSection;

    fn div(self, parts: f64) -> PerSection {
        self.zip(PerSection::uniform(parts), |a, b| a / b)
    }
}

impl Sum for PerSection {
    fn sum<I: Iterator<Item = PerSection>>(all: I) -> PerSection {
        all.fold(PerSection::default(), Add::add)
    }
}

/// A stage, and the number of times that a rank runs its sections in a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct StageRuns {
    pub(super) stage: usize,
    pub(super) runs: PerSection,
}

/// Micro-batches of a stage whose forward is done.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct OpenMicrobatches {
    /// Number of those that have not run backward.
    pub(super) for_i: f64,
    /// Number of those whose I is done, and W is not.
    pub(super) for_w: f64,
}

/// The stages of a rank: most ranks have one or two.
pub(super) type RankStages = SmallVec<[StageRuns; 2]>;

/// Peaks over the blocks of one kind: layers, or the ends of the model.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct BlockPeak {
    /// Bytes of temporary values.
    pub(super) transient: f64,
    /// Bytes of temporary values under a split backward, whose saved activations have what I leaves for W beyond those of the forward.
    pub(super) beyond_left: f64,
    /// Bytes of temporary values while weight gradients are computed.
    pub(super) in_w: f64,
    /// Bytes of temporary values in a W apart from I, without those that I made for it.
    pub(super) in_w_apart: f64,
    /// Elements of a block's parameters.
    pub(super) elements: f64,
    /// Those that are trained.
    pub(super) trained: f64,
}

impl BlockPeak {
    /// The larger one of each.
    pub(super) fn max(self, other: BlockPeak) -> BlockPeak {
        BlockPeak {
            transient: self.transient.max(other.transient),
            beyond_left: self.beyond_left.max(other.beyond_left),
            in_w: self.in_w.max(other.in_w),
            in_w_apart: self.in_w_apart.max(other.in_w_apart),
            elements: self.elements.max(other.elements),
            trained: self.trained.max(other.trained),
        }
    }
}

/// Reductions over tp in the forward of a stage's layers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct TpReductions {
    /// Number of reductions.
    pub(super) count: f64,
    /// Bytes of the largest input.
    pub(super) largest_input: f64,
}
