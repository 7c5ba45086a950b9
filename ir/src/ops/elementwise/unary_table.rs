//! The table of the functions of one operand: name, class and gradient of each.

use super::binary_table::BinaryKind;
use super::constant::Constant;
use super::unary::{Slope, UnaryClass};
use crate::ids::Value;
use crate::ops::{Attr, Attrs};
use crate::types::DType;

/// Makes [`UnaryKind`] from a table. A row is `Kind(attribute: type = some value) = "name": class, |slope| gradient`.
macro_rules! unary_functions {
    ($($(#[$doc:meta])*
       $kind:ident $(($constant:ident: $ty:ty = $some:expr))? = $name:literal: $class:expr, |$slope:ident| $gradient:expr;)*
    ) => {
        /// A function of one operand.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum UnaryKind { $($(#[$doc])* $kind $(($ty))?),* }

        impl UnaryKind {
            /// Every function, with some constant.
            pub const ALL: &'static [UnaryKind] = &[$(UnaryKind::$kind $(($some))?),*];

            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];

            /// The function of this name, if there is one, with its constant from `attrs`.
            pub(super) fn parse(name: &str, attrs: &mut Attrs) -> Result<UnaryKind, String> {
                match name {
                    $($name => Ok(UnaryKind::$kind $((<$ty>::read(stringify!($constant), attrs)?))?),)*
                    _ => Err(format!("there is no function `{name}`")),
                }
            }

            pub(super) fn name(self) -> &'static str {
                match self { $(UnaryKind::$kind { .. } => $name),* }
            }

            pub(super) fn attrs(self) -> Vec<(&'static str, Attr)> {
                match self {
                    $(UnaryKind::$kind $(($constant))? => vec![$((stringify!($constant), $constant.attr()))?]),*
                }
            }

            #[allow(unused_variables)] // Few classes depend on the constant.
            pub(super) fn class(self) -> UnaryClass {
                match self { $(UnaryKind::$kind $(($constant))? => $class),* }
            }

            /// Emits the cotangent of the operand.
            #[allow(unused_variables)] // Few gradients depend on the constant.
            pub(super) fn gradient(self, slope: &mut Slope<'_, '_>) -> Result<Value, String> {
                match self { $(UnaryKind::$kind $(($constant))? => { let $slope = slope; $gradient }),* }
            }
        }
    };
}

unary_functions! {
    /// `-x`
    Neg = "neg": UnaryClass::Linear, |s| s.unary(UnaryKind::Neg, s.dy);
    /// `e^x`
    Exp = "exp": UnaryClass::Other, |s| s.binary(BinaryKind::Mul, s.dy, s.y);
    /// `ln x`
    Log = "log": UnaryClass::Other, |s| s.binary(BinaryKind::Div, s.dy, s.x);
    /// Square root. Its gradient is `dy / (2 y)`.
    Sqrt = "sqrt": UnaryClass::KeepsZeros, |s| {
        let half = s.unary(UnaryKind::Scale(0.5), s.dy)?;
        s.binary(BinaryKind::Div, half, s.y)
    };
    /// `1 / sqrt x`. Its gradient is `-dy y / (2 x)`.
    Rsqrt = "rsqrt": UnaryClass::Other, |s| {
        let half = s.unary(UnaryKind::Scale(-0.5), s.dy)?;
        let ratio = s.binary(BinaryKind::Div, s.y, s.x)?;
        s.binary(BinaryKind::Mul, half, ratio)
    };
    /// `1 / x`. Its gradient is `-dy y y`, in this order, since a square alone may overflow.
    Recip = "recip": UnaryClass::Other, |s| {
        let negative = s.unary(UnaryKind::Neg, s.dy)?;
        let once = s.binary(BinaryKind::Mul, negative, s.y)?;
        s.binary(BinaryKind::Mul, once, s.y)
    };
    /// `x x`
    Square = "square": UnaryClass::KeepsZeros, |s| {
        let double = s.unary(UnaryKind::Scale(2.0), s.dy)?;
        s.binary(BinaryKind::Mul, double, s.x)
    };
    /// `x / (1 + e^-x)`
    Silu = "silu": UnaryClass::KeepsZeros, |s| s.binary(BinaryKind::SiluGrad, s.x, s.dy);
    /// GELU, tanh form (Hendrycks and Gimpel 2016, the form of GPT-2).
    Gelu = "gelu": UnaryClass::KeepsZeros, |s| s.binary(BinaryKind::GeluGrad, s.x, s.dy);
    /// GELU, exact form with the error function.
    GeluErf = "gelu_erf": UnaryClass::KeepsZeros, |s| s.binary(BinaryKind::GeluErfGrad, s.x, s.dy);
    /// `c x`
    Scale(by: f64 = 0.7) = "scale": UnaryClass::Linear, |s| s.unary(UnaryKind::Scale(by), s.dy);
    /// `x + c`
    Shift(by: f64 = 0.5) = "shift": UnaryClass::Other, |s| Ok(s.dy);
    /// `min(x, c)`; what is not a number stays so.
    AtMost(max: f64 = 0.3) = "at_most": if max >= 0.0 { UnaryClass::KeepsZeros } else { UnaryClass::Other }, |s| s.where_kept();
    /// To another float type, also from integers.
    Cast(to: DType = DType::F32) = "cast": UnaryClass::Cast, |s| {
        let from = s.b.ty(s.x).dtype;
        s.unary(UnaryKind::Cast(from), s.dy)
    };
    /// `max(x, 0)^2` (So et al. 2021, Primer; Nemotron-4).
    ReluSquared = "relu_squared": UnaryClass::KeepsZeros, |s| s.binary(BinaryKind::ReluSquaredGrad, s.x, s.dy);
    /// `1 / (1 + e^-x)`
    Sigmoid = "sigmoid": UnaryClass::Other, |s| s.binary(BinaryKind::SigmoidGrad, s.y, s.dy);
    /// Hyperbolic tangent. Its gradient is `dy (1 - y^2)`, without a difference of 1 and a number near it.
    Tanh = "tanh": UnaryClass::KeepsZeros, |s| {
        let once = s.binary(BinaryKind::Mul, s.dy, s.y)?;
        let twice = s.binary(BinaryKind::Mul, once, s.y)?;
        s.binary(BinaryKind::Sub, s.dy, twice)
    };
    /// The error function. Its gradient is `dy 2 / sqrt(pi) e^(-x^2)`.
    Erf = "erf": UnaryClass::KeepsZeros, |s| {
        let square = s.unary(UnaryKind::Square, s.x)?;
        let negative = s.unary(UnaryKind::Neg, square)?;
        let bell = s.unary(UnaryKind::Exp, negative)?;
        let scaled = s.unary(UnaryKind::Scale(std::f64::consts::FRAC_2_SQRT_PI), bell)?;
        s.binary(BinaryKind::Mul, s.dy, scaled)
    };
    /// Sine, of radians.
    Sin = "sin": UnaryClass::KeepsZeros, |s| {
        let slope = s.unary(UnaryKind::Cos, s.x)?;
        s.binary(BinaryKind::Mul, s.dy, slope)
    };
    /// Cosine, of radians.
    Cos = "cos": UnaryClass::Other, |s| {
        let sine = s.unary(UnaryKind::Sin, s.x)?;
        let slope = s.unary(UnaryKind::Neg, sine)?;
        s.binary(BinaryKind::Mul, s.dy, slope)
    };
    /// `max(x, c)`; what is not a number stays so.
    AtLeast(min: f64 = 0.3) = "at_least": if min <= 0.0 { UnaryClass::KeepsZeros } else { UnaryClass::Other }, |s| s.where_kept();
    /// `ln(1 + e^x)`. Its gradient is that of the sigmoid's integral.
    Softplus = "softplus": UnaryClass::Other, |s| {
        let slope = s.unary(UnaryKind::Sigmoid, s.x)?;
        s.binary(BinaryKind::Mul, s.dy, slope)
    };
    /// The largest integer that is not above x.
    Floor = "floor": UnaryClass::KeepsZeros, |s| s.unary(UnaryKind::Scale(0.0), s.dy);
    /// `x`, as a constant: nothing flows back.
    Stop = "stop": UnaryClass::Constant, |_s| Err("nothing flows back through `stop`".to_string());
}
