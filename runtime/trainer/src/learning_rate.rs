//! The learning rate of each step.

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A linear warm-up, then a decay down to `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearningRate {
    /// The rate at step `warmup_steps`, where the decay begins.
    pub peak: f64,
    /// Steps before the peak; none is full rate from the start.
    pub warmup_steps: u64,
    /// The step from which the rate is `floor`.
    pub total_steps: u64,
    /// The rate at the end, at most `peak`; a constant rate does not come there.
    pub floor: f64,
    /// The course from `peak` to `floor`.
    pub decay: Decay,
}

/// The course of a learning rate after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Half a cosine (Loshchilov, Hutter: SGDR, 2017, one cycle).
    Cosine,
    /// A line.
    Linear,
    /// The peak, and in the last steps a line: warm-up, stable, decay (Hu et al. 2024, MiniCPM, section 4).
    Stable {
        /// The steps of the line.
        last: u64,
    },
    /// The peak, without end.
    Constant,
}

impl LearningRate {
    /// The rate of `step`, counted from 0; never 0 in warm-up, so that no step is wasted.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step as f64 + 1.0) / (self.warmup_steps as f64 + 1.0);
        }
        let begin = match self.decay {
            Decay::Stable { last } => self.warmup_steps.max(self.total_steps.saturating_sub(last)),
            Decay::Cosine | Decay::Linear | Decay::Constant => self.warmup_steps,
        };
        if self.decay == Decay::Constant || step < begin {
            return self.peak;
        }
        if step >= self.total_steps {
            return self.floor;
        }
        let done = (step - begin) as f64 / (self.total_steps - begin) as f64;
        let left = if self.decay == Decay::Cosine { 0.5 * (1.0 + (PI * done).cos()) } else { 1.0 - done };
        self.floor + (self.peak - self.floor) * left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: LearningRate =
        LearningRate { peak: 1.0, warmup_steps: 4, total_steps: 104, floor: 0.1, decay: Decay::Cosine };

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
    fn falls_in_a_line() {
        let linear = LearningRate { decay: Decay::Linear, ..RATE };
        for (step, expected) in [(4, 1.0), (29, 0.775), (54, 0.55), (103, 0.109), (104, 0.1), (1_000_000, 0.1)] {
            assert_near(linear.at(step), expected);
        }
    }

    #[test]
    fn is_stable_and_then_falls_in_a_line() {
        let stable = LearningRate { decay: Decay::Stable { last: 20 }, ..RATE };
        for (step, expected) in [(0, 0.2), (4, 1.0), (50, 1.0), (84, 1.0), (94, 0.55), (103, 0.145), (104, 0.1)] {
            assert_near(stable.at(step), expected);
        }
        // A decay that is longer than the run begins where the warm-up ends.
        let late = LearningRate { decay: Decay::Stable { last: 1000 }, ..RATE };
        assert!((0..200).all(|step| late.at(step) == LearningRate { decay: Decay::Linear, ..RATE }.at(step)));
    }

    #[test]
    fn stays_after_the_warm_up() {
        let constant = LearningRate { decay: Decay::Constant, ..RATE };
        for (step, expected) in [(0, 0.2), (4, 1.0), (103, 1.0), (104, 1.0), (1_000_000, 1.0)] {
            assert_near(constant.at(step), expected);
        }
    }

    #[test]
    fn the_last_step_of_a_short_run_is_finite() {
        for decay in [Decay::Cosine, Decay::Linear, Decay::Stable { last: 1 }, Decay::Constant] {
            for (warmup_steps, total_steps) in [(0, 1), (1, 1), (0, 2), (5, 3)] {
                let rate = LearningRate { warmup_steps, total_steps, decay, ..RATE };
                assert!((0..=total_steps).all(|step| (0.1..=1.0).contains(&rate.at(step))), "{rate:?}");
            }
        }
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
