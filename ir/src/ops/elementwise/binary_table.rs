//! The table of the functions of two operands: name, class and gradient of each.

use super::binary::{BinaryClass, Cotangent, Slopes};

/// Makes [`BinaryKind`] from a table. A row is `Kind = "name": class, |slopes| gradients`.
macro_rules! binary_functions {
    ($($(#[$doc:meta])* $kind:ident = $name:literal: $class:expr, |$slopes:ident| $gradients:expr;)*) => {
        /// A function of two operands.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum BinaryKind { $($(#[$doc])* $kind),* }

        impl BinaryKind {
            /// Every function.
            pub const ALL: &'static [BinaryKind] = &[$(BinaryKind::$kind),*];

            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];

            /// The function of this name, if there is one.
            pub(super) fn parse(name: &str) -> Result<BinaryKind, String> {
                match name {
                    $($name => Ok(BinaryKind::$kind),)*
                    _ => Err(format!("there is no function `{name}`")),
                }
            }

            pub(super) fn name(self) -> &'static str {
                match self { $(BinaryKind::$kind => $name),* }
            }

            pub(super) fn class(self) -> BinaryClass {
                match self { $(BinaryKind::$kind => $class),* }
            }

            /// Emits the cotangents of the operands that are needed, in the shape of the result.
            pub(super) fn gradients(self, slopes: &mut Slopes<'_, '_>) -> Result<[Cotangent; 2], String> {
                match self { $(BinaryKind::$kind => { let $slopes = slopes; $gradients }),* }
            }
        }
    };
}

binary_functions! {
    /// `a + b`
    Add = "add": BinaryClass::Sum, |s| s.sum(false);
    /// `a - b`
    Sub = "sub": BinaryClass::Sum, |s| s.sum(true);
    /// `a b`
    Mul = "mul": BinaryClass::Product, |s| s.product();
    /// `a / b`
    Div = "div": BinaryClass::Quotient, |s| s.quotient();
    /// `max(a, b)`
    Max = "max": BinaryClass::Extremum, |s| s.extremum(BinaryKind::Min);
    /// Cotangent of `silu` from (x, dy).
    SiluGrad = "silu_grad": BinaryClass::Slope, |s| s.none();
    /// Cotangent of `gelu` from (x, dy).
    GeluGrad = "gelu_grad": BinaryClass::Slope, |s| s.none();
    /// Cotangent of `gelu_erf` from (x, dy).
    GeluErfGrad = "gelu_erf_grad": BinaryClass::Slope, |s| s.none();
    /// Cotangent of `relu_squared` from (x, dy).
    ReluSquaredGrad = "relu_squared_grad": BinaryClass::Slope, |s| s.none();
    /// Cotangent of `sigmoid` from its result and dy.
    SigmoidGrad = "sigmoid_grad": BinaryClass::Slope, |s| s.none();
    /// `min(a, b)`
    Min = "min": BinaryClass::Extremum, |s| s.extremum(BinaryKind::Max);
}
