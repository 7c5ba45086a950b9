//! Dynamic loss scaling: the largest power of two with which gradients of f16 tensors do not overflow.
//!
//! Small gradients vanish in f16, whose least number is 6e-8, so the loss is multiplied before differentiation and gradients are divided
//! after it (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2). The constants are the defaults of
//! `torch.amp.GradScaler`.

use ir::types::DType;
use serde::{Deserialize, Serialize};

/// The logarithm of the first scale, 65536.
const FIRST: u32 = 16;

/// Steps without overflow after which the scale doubles.
const INTERVAL: u64 = 2000;

/// The logarithm of the largest scale: with a few tokens, twice of it could be infinite.
const LARGEST: u32 = 103;

/// The scale of a run, and its history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossScale {
    /// The binary logarithm of the factor of the loss.
    pub log2: u32,
    /// Steps without overflow since it changed.
    pub steps: u64,
    /// Steps whose update was skipped because gradients overflowed by the scale.
    pub overflows: u64,
}

impl LossScale {
    /// The scale at the first step of a run in this precision; none where gradients do not vanish.
    pub fn first(precision: DType) -> Option<LossScale> {
        (precision == DType::F16).then_some(LossScale { log2: FIRST, steps: 0, overflows: 0 })
    }

    /// The factor of the loss.
    pub fn factor(self) -> f32 {
        (self.log2 as f32).exp2()
    }

    /// Notes a step: after one whose gradients overflowed, the scale halves. Gives whether the scale may be why they did: one of 1
    /// is not.
    pub fn note(&mut self, overflowed: bool) -> bool {
        match (overflowed, self.log2) {
            (true, 0) => false,
            (true, log2) => {
                *self = LossScale { log2: log2 - 1, steps: 0, overflows: self.overflows + 1 };
                true
            }
            (false, log2) => {
                self.steps += 1;
                if self.steps >= INTERVAL && log2 < LARGEST {
                    (self.log2, self.steps) = (log2 + 1, 0);
                }
                false
            }
        }
    }

    /// True if a run with this number of skipped steps can have it.
    pub fn is_sound(self, skipped: u64) -> bool {
        self.log2 <= LARGEST && self.overflows <= skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_at_overflow_and_doubles_after_many_steps() {
        assert_eq!(LossScale::first(DType::BF16), None);
        let mut scale = LossScale::first(DType::F16).unwrap();
        assert!(scale.note(true) && scale.note(true));
        assert_eq!((scale.factor(), scale.overflows), (16384.0, 2));
        assert!((0..INTERVAL).all(|_| !scale.note(false)));
        assert_eq!(scale, LossScale { log2: 15, steps: 0, overflows: 2 });
        assert!((0..15).all(|_| scale.note(true)), "down to 1");
        assert!(!scale.note(true), "it is not the scale");
        assert_eq!((scale.factor(), scale.overflows), (1.0, 17));
        assert!(scale.is_sound(17) && !scale.is_sound(16) && !LossScale { log2: 104, ..scale }.is_sound(17));
    }
}
