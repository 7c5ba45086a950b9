//! Chance of a value, from the 10th and the 90th percentile of a quantity.

use crate::quantities::Interval;

/// Odds of a value to lie below the 90th percentile.
const ODDS: f64 = 9.0;

impl Interval {
    /// Probability that a quantity lies below a value, if the interval's ends are its 10th and 90th percentile. The quantity has a
    /// logistic distribution, whose tails are heavier than a normal one's: errors of predictions have such tails.
    pub fn chance_below(self, value: f64) -> f64 {
        let scale = self.width() / (2.0 * ODDS.ln());
        let middle = f64::midpoint(self.low, self.high);
        if scale == 0.0 {
            return if value < middle { 0.0 } else { 1.0 };
        }
        1.0 / (1.0 + ((middle - value) / scale).exp())
    }

    /// Value that the quantity lies below with a probability: the inverse of [`Interval::chance_below`].
    pub fn quantile(self, chance: f64) -> f64 {
        let scale = self.width() / (2.0 * ODDS.ln());
        f64::midpoint(self.low, self.high) + scale * (chance / (1.0 - chance)).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_the_10th_and_the_90th_percentile() {
        let interval = Interval { low: -0.1, high: 0.3 };
        for (value, chance) in [(-0.1, 0.1), (0.1, 0.5), (0.3, 0.9)] {
            assert!((interval.chance_below(value) - chance).abs() < 8.0 * f64::EPSILON, "{value}");
            assert!((interval.quantile(chance) - value).abs() < 8.0 * f64::EPSILON, "{chance}");
        }
        assert_eq!([-1e9, 1e9].map(|value| interval.chance_below(value)), [0.0, 1.0]);
    }

    #[test]
    fn a_known_quantity_is_below_or_not() {
        let known = Interval { low: 2.0, high: 2.0 };
        assert_eq!([1.9, 2.0, 2.1].map(|value| known.chance_below(value)), [0.0, 1.0, 1.0]);
    }
}
