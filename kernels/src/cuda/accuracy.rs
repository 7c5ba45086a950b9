//! Error bounds of generated kernels relative to the CPU kernels, for each function.
//!
//! Both sides round sums, products, quotients and roots alike, so every function of these alone agrees to the bit. Other
//! functions differ by the errors of each side's `exp`, `log` and normal distribution. These are at most 2e-7 (1.7 units)
//! on the processor (`kernels::cpu`). On CUDA they are 1, 1 and 5 units (CUDA C++ Programming Guide, "Mathematical
//! Functions", maximum ulp error of `expf`, `logf`, `normcdff`), and at most 2 of `tanhf`, `erff`, `sinf` and `cosf`. Each later rounding adds half a unit on each side.
//! Derivatives cancel: `1 - sigmoid(x)` has an error of a unit of 1 and is multiplied by up to |x|, so bounds of
//! derivatives apply for |x| up to 8.

use crate::functions::{binary_functions, unary_functions};
use crate::scalar::{Binary, Element, Unary};

/// A unit in the last place of 1, to which a relative error is compared.
pub const UNIT: f32 = f32::EPSILON;

/// The largest error that is right.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// In units of [`UNIT`].
    pub units: u32,
    /// The value that an error is relative to, if the result is smaller.
    pub floor: Floor,
}

/// The value that an error is relative to, if the value is larger than the result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Floor {
    /// The result alone.
    Result,
    /// This number.
    Number(f32),
    /// The second operand.
    Second,
}

impl Bound {
    /// No difference at all.
    pub const EXACT: Bound = Bound { units: 0, floor: Floor::Result };

    /// A difference of this many units.
    const fn within(units: u32, floor: Floor) -> Bound {
        Bound { units, floor }
    }

    /// The bound as a relative error.
    pub fn relative(self) -> f32 {
        self.units as f32 * UNIT
    }

    /// The relative error of a result, given what is right and the second operand.
    pub fn error(self, got: f32, right: f32, second: f32) -> f32 {
        if got == right || (got.is_nan() && right.is_nan()) {
            return 0.0;
        }
        let floor = match self.floor {
            Floor::Result => 0.0,
            Floor::Number(floor) => floor,
            Floor::Second => second.abs(),
        };
        let error = (got - right).abs() / right.abs().max(floor);
        if error.is_nan() { f32::INFINITY } else { error }
    }

    /// The bound after both sides have rounded to an element type: where they differ at all, they may fall to different
    /// sides of a tie. The next bf16 is 2^-7 away, 2^16 units; the next f16 2^-10, and the next numbers of 8 bits 2^-3 and 2^-2.
    #[must_use]
    pub fn rounded_to(self, element: Element) -> Bound {
        match element {
            Element::Bf16 if self.units > 0 => Bound { units: self.units + (1 << 16), ..self },
            Element::F16 if self.units > 0 => Bound { units: self.units + (1 << 13), ..self },
            Element::F8E4M3 if self.units > 0 => Bound { units: self.units + (1 << 20), ..self },
            Element::F8E5M2 if self.units > 0 => Bound { units: self.units + (1 << 21), ..self },
            _ => self,
        }
    }
}

macro_rules! unary_bounds {
    ($($(#[$doc:meta])*
       $kind:ident $(($constant:ident: $ty:ty = $some:expr))? $name:literal: $run:tt, $body:literal, $bound:expr;)*
    ) => {
        /// The bound of a function of one number.
        pub fn unary(op: Unary) -> Bound {
            match op { $(Unary::$kind { .. } => $bound),* }
        }
    };
}
unary_functions!(unary_bounds);

macro_rules! binary_bounds {
    ($($(#[$doc:meta])* $kind:ident $name:literal: |$a:ident, $b:ident| $value:expr, $body:literal, $bound:expr;)*) => {
        /// The bound of a function of two numbers.
        pub fn binary(op: Binary) -> Bound {
            match op { $(Binary::$kind => $bound),* }
        }
    };
}
binary_functions!(binary_bounds);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_larger_of_result_and_floor() {
        let bound = Bound { units: 4, floor: Floor::Number(0.5) };
        assert_eq!(bound.error(1.0, 1.0, 0.0), 0.0);
        assert_eq!(bound.error(2.0, 1.0, 0.0), 1.0);
        assert_eq!(bound.error(0.25, 0.0, 0.0), 0.5);
        assert_eq!(Bound { floor: Floor::Second, ..bound }.error(1.0, 0.0, -4.0), 0.25);
        assert_eq!(Bound::EXACT.error(f32::NAN, f32::NAN, 0.0), 0.0);
        assert_eq!(Bound::EXACT.error(f32::NAN, 1.0, 0.0), f32::INFINITY);
        assert_eq!(Bound::EXACT.error(1.0, 0.0, 0.0), f32::INFINITY);
    }

    #[test]
    fn only_inexact_results_may_round_apart() {
        assert_eq!(unary(Unary::Neg).rounded_to(Element::Bf16), Bound::EXACT);
        assert!(unary(Unary::Exp).rounded_to(Element::Bf16).relative() > 1.0 / 128.0);
        assert_eq!(unary(Unary::Exp).rounded_to(Element::F32), unary(Unary::Exp));
    }
}
