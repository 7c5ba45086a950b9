//! Chance of a value, from three percentiles of a quantity.

use crate::quantities::Interval;

/// Distribution of a quantity by its 10th, 50th and 90th percentile.
///
/// On either side of the median the logarithm of the chance falls linearly, at a pace of its own: a Laplace distribution with two
/// scales. Errors of predictions have such a peak and such tails: `tests/planning/accuracy.rs` compares the chances with published runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Percentiles {
    /// 10th percentile.
    pub low: f64,
    /// Median.
    pub middle: f64,
    /// 90th percentile.
    pub high: f64,
}

/// Chance of the median.
const HALF: f64 = 0.5;

/// Factor by which the chance of a value further out falls from the median to the 10th or the 90th percentile.
const FALL: f64 = 5.0;

impl Percentiles {
    /// From the 10th to the 90th percentile.
    pub fn interval(self) -> Interval {
        Interval { low: self.low, high: self.high }
    }

    /// Probability that the quantity lies below a value.
    pub fn chance_below(self, value: f64) -> f64 {
        if value < self.middle {
            tail(self.middle - value, self.middle - self.low)
        } else if value > self.middle {
            1.0 - tail(value - self.middle, self.high - self.middle)
        } else {
            HALF
        }
    }

    /// Value that the quantity lies below with a probability: the inverse of [`Percentiles::chance_below`].
    pub fn quantile(self, chance: f64) -> f64 {
        if chance < HALF {
            self.middle - distance(chance, self.middle - self.low)
        } else {
            self.middle + distance(1.0 - chance, self.high - self.middle)
        }
    }
}

/// Chance of a value further out than a distance from the median, whose percentile on that side lies `width` away.
fn tail(distance: f64, width: f64) -> f64 {
    HALF * (-FALL.ln() * distance / width).exp()
}

/// Distance from the median beyond which a value lies with a chance: the inverse of [`tail`].
fn distance(chance: f64, width: f64) -> f64 {
    (HALF / chance).ln() / FALL.ln() * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentiles_have_their_chances() {
        let errors = Percentiles { low: -0.1, middle: 0.0, high: 0.3 };
        for (value, chance) in [(-0.1, 0.1), (0.0, 0.5), (0.3, 0.9), (0.6, 0.98)] {
            assert!((errors.chance_below(value) - chance).abs() < 8.0 * f64::EPSILON, "{value}");
            assert!((errors.quantile(chance) - value).abs() < 8.0 * f64::EPSILON, "{chance}");
        }
        assert_eq!([-1e9, 1e9].map(|value| errors.chance_below(value)), [0.0, 1.0]);
    }

    #[test]
    fn a_known_quantity_is_below_or_not() {
        let known = Percentiles { low: 2.0, middle: 2.0, high: 2.0 };
        assert_eq!([1.9, 2.0, 2.1].map(|value| known.chance_below(value)), [0.0, 0.5, 1.0]);
    }
}
