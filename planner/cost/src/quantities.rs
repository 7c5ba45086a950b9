//! Small records of quantities that belong together. The field that holds a record states the unit.

use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::{Add, Div, Mul};

/// Conversions between a record of two numbers and the array that files have for it.
macro_rules! array_form {
    ($record:ident { $first:ident, $second:ident }) => {
        impl From<[f64; 2]> for $record {
            fn from([$first, $second]: [f64; 2]) -> $record {
                $record { $first, $second }
            }
        }

        impl From<$record> for [f64; 2] {
            fn from($record { $first, $second }: $record) -> [f64; 2] {
                [$first, $second]
            }
        }
    };
}
pub(crate) use array_form;

/// A quantity of the forward pass and of the backward pass; in files and JSON `[forward, backward]`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Passes {
    /// Quantity of the forward.
    pub forward: f64,
    /// Quantity of the backward.
    pub backward: f64,
}

impl Passes {
    /// Sum of both passes.
    pub fn total(self) -> f64 {
        self.forward + self.backward
    }

    /// Applies a function to both passes.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Passes {
        Passes { forward: change(self.forward), backward: change(self.backward) }
    }
}

impl Add for Passes {
    type Output = Passes;

    fn add(self, other: Passes) -> Passes {
        Passes { forward: self.forward + other.forward, backward: self.backward + other.backward }
    }
}

array_form!(Passes { forward, backward });

/// Lower and upper end of a range; in files and JSON `[low, high]`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Distance between the ends.
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Returns whether a value is in the interval, ends included.
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Applies a function to both ends.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Interval {
        Interval { low: change(self.low), high: change(self.high) }
    }
}

array_form!(Interval { low, high });

/// A quantity of the dense parameters and of the experts. The dense parameters are replicated on all data-parallel ranks,
/// the experts only on ranks outside ep.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SplitByExperts<T = f64> {
    /// Quantity of the dense parameters.
    pub dense: T,
    /// Quantity of the experts.
    pub experts: T,
}

impl<T> SplitByExperts<T> {
    /// Applies a function to both parts.
    pub fn map<U>(self, change: impl Fn(T) -> U) -> SplitByExperts<U> {
        SplitByExperts { dense: change(self.dense), experts: change(self.experts) }
    }
}

impl SplitByExperts {
    /// One value for both parts.
    pub fn uniform(value: f64) -> SplitByExperts {
        SplitByExperts { dense: value, experts: value }
    }

    /// Sum of both parts.
    pub fn total(self) -> f64 {
        self.dense + self.experts
    }
}

impl Add for SplitByExperts {
    type Output = SplitByExperts;

    fn add(self, other: SplitByExperts) -> SplitByExperts {
        SplitByExperts { dense: self.dense + other.dense, experts: self.experts + other.experts }
    }
}

impl Sum for SplitByExperts {
    fn sum<I: Iterator<Item = SplitByExperts>>(all: I) -> SplitByExperts {
        all.fold(SplitByExperts::default(), Add::add)
    }
}

impl Mul<f64> for SplitByExperts {
    type Output = SplitByExperts;

    fn mul(self, times: f64) -> SplitByExperts {
        self.map(|part| part * times)
    }
}

impl Div<f64> for SplitByExperts {
    type Output = SplitByExperts;

    fn div(self, parts: f64) -> SplitByExperts {
        self.map(|part| part / parts)
    }
}

impl Div for SplitByExperts {
    type Output = SplitByExperts;

    fn div(self, parts: SplitByExperts) -> SplitByExperts {
        SplitByExperts { dense: self.dense / parts.dense, experts: self.experts / parts.experts }
    }
}

/// Parameter elements: all of them, and those that the optimizer updates.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Elements {
    /// Trained and frozen ones.
    pub all: SplitByExperts,
    /// Trained ones, which have gradients and optimizer states.
    pub trained: SplitByExperts,
}

impl Elements {
    /// Elements of which all are trained.
    pub fn all_trained(elements: SplitByExperts) -> Elements {
        Elements { all: elements, trained: elements }
    }

    /// Applies a function to both.
    #[must_use]
    pub fn map(self, change: impl Fn(SplitByExperts) -> SplitByExperts) -> Elements {
        Elements { all: change(self.all), trained: change(self.trained) }
    }

    /// Elements that are not trained.
    pub fn frozen(self) -> SplitByExperts {
        SplitByExperts { dense: self.all.dense - self.trained.dense, experts: self.all.experts - self.trained.experts }
    }
}

impl Add for Elements {
    type Output = Elements;

    fn add(self, other: Elements) -> Elements {
        Elements { all: self.all + other.all, trained: self.trained + other.trained }
    }
}

impl Sum for Elements {
    fn sum<I: Iterator<Item = Elements>>(all: I) -> Elements {
        all.fold(Elements::default(), Add::add)
    }
}

impl Mul<f64> for Elements {
    type Output = Elements;

    fn mul(self, times: f64) -> Elements {
        self.map(|part| part * times)
    }
}

impl Div<f64> for Elements {
    type Output = Elements;

    fn div(self, parts: f64) -> Elements {
        self.map(|part| part / parts)
    }
}

/// Cost of a choice of saved activations.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RecomputeCost {
    /// Saved activations in bytes.
    pub bytes: f64,
    /// Recomputation time in seconds.
    pub seconds: f64,
}

impl Add for RecomputeCost {
    type Output = RecomputeCost;

    fn add(self, other: RecomputeCost) -> RecomputeCost {
        RecomputeCost { bytes: self.bytes + other.bytes, seconds: self.seconds + other.seconds }
    }
}

impl Mul<RecomputeCost> for f64 {
    type Output = RecomputeCost;

    fn mul(self, cost: RecomputeCost) -> RecomputeCost {
        RecomputeCost { bytes: self * cost.bytes, seconds: self * cost.seconds }
    }
}
