//! The learning rate of each step.

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A linear warm-up, then half a cosine down to `floor` (Loshchilov, Hutter: SGDR, 2017, one cycle).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearningRate {
    /// The rate at step `warmup_steps`, where the cosine begins.
    pub peak: f64,
    /// Steps before the peak; none is full rate from the start.
    pub warmup_steps: u64,
    /// The step from which the rate is `floor`.
    pub total_steps: u64,
    /// The rate at the end, at most `peak`.
    pub floor: f64,
}

impl LearningRate {
    /// The rate of `step`, counted from 0; never 0 in warm-up, so that no step is wasted.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step as f64 + 1.0) / (self.warmup_steps as f64 + 1.0);
        }
        if step >= self.total_steps {
            return self.floor;
        }
        let done = (step - self.warmup_steps) as f64 / (self.total_steps - self.warmup_steps) as f64;
        self.floor + (self.peak - self.floor) * 0.5 * (1.0 + (PI * done).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: LearningRate = LearningRate { peak: 1.0, warmup_steps: 4, total_steps: 104, floor: 0.1 };

    fn assert_near(rate: f64, expected: f64) {
        assert!((rate - expected).abs() < 1e-12, "{rate} is not {expected}");
    }

    #[test]
    fn warms_up_in_equal_steps() {
        for (step, expected) in [0.2, 0.4, 0.6, 0.8, 1.0].into_iter().enumerate() {
            assert_near(RATE.at(step as u64), expected);
        }
    }

    #[test]
    fn falls_by_half_a_cosine() {
        assert_near(RATE.at(29), 0.1 + 0.45 * (1.0 + 0.5f64.sqrt()));
        assert_near(RATE.at(54), 0.55);
        assert!((4..104).all(|step| RATE.at(step + 1) < RATE.at(step)));
        assert_near(RATE.at(104), 0.1);
        assert_near(RATE.at(1_000_000), 0.1);
    }

    #[test]
    fn edges_are_finite() {
        let none = LearningRate { warmup_steps: 0, ..RATE };
        assert_near(none.at(0), 1.0);
        let all = LearningRate { warmup_steps: 9, total_steps: 5, ..RATE };
        assert_near(all.at(8), 0.9);
        assert_near(all.at(9), 0.1);
        let forever = LearningRate { warmup_steps: u64::MAX, ..RATE };
        assert!(forever.at(0) > 0.0 && forever.at(u64::MAX - 1) <= 1.0);
    }
}
