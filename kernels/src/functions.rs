//! The tables of elementwise functions: of each its name, its computation on the processor, its body in CUDA C, and how far the two
//! may be apart.
//!
//! A user of a table passes the name of a macro, which takes all rows and makes of them what it needs: [`crate::cpu::elementwise`] loops,
//! [`crate::cuda`] texts and bounds.

/// The functions of one number. A row is `Kind(constant: type = some value) "name": { computation }, "body", bound`.
///
/// The computation is a function of the element, or `angles(f, slow)` of [`crate::cpu::elementwise`].
macro_rules! unary_functions {
    ($make:ident) => {
        $make! {
            /// `-x`
            Neg "neg": { |x| -x }, "return -x;", Bound::EXACT;
            /// `e^x`
            // The processor's result is 0 below 1.7e-38: an error of three units of this.
            Exp "exp": { |x| exp::<FMA>(x) }, "return expf(x);", Bound::within(3, Floor::Number(5e-32));
            /// The natural logarithm.
            // Near 1 it cancels.
            Log "log": { |x| ln::<FMA>(x) }, "return logf(x);", Bound::within(3, Floor::Number(0.5));
            /// The square root.
            Sqrt "sqrt": { |x| x.sqrt() }, "return sqrtf(x);", Bound::EXACT;
            /// `1 / sqrt x`
            Rsqrt "rsqrt": { |x| 1.0 / x.sqrt() }, "return 1.0f / sqrtf(x);", Bound::EXACT;
            /// `1 / x`
            Recip "recip": { |x| 1.0 / x }, "return 1.0f / x;", Bound::EXACT;
            /// `x^2`
            Square "square": { |x| x * x }, "return x * x;", Bound::EXACT;
            /// The hyperbolic tangent.
            Tanh "tanh": { |x| tanh::<FMA>(x) }, "return tanhf(x);", Bound::within(6, Floor::Result);
            /// The error function.
            Erf "erf": { |x| erf::<FMA>(x) }, "return erff(x);", Bound::within(6, Floor::Result);
            /// The sine, of radians.
            // Both sides reduce the angle: an error of a unit of the largest result, not of a small one.
            Sin "sin": { angles(sin, f64::sin) }, "return sinf(x);", Bound::within(4, Floor::Number(1.0));
            /// The cosine, of radians.
            Cos "cos": { angles(cos, f64::cos) }, "return cosf(x);", Bound::within(4, Floor::Number(1.0));
            /// The largest integer that is not above `x`.
            Floor "floor": { |x| x.floor() }, "return floorf(x);", Bound::EXACT;
            /// `1 / (1 + e^-x)`
            Sigmoid "sigmoid": { |x| sigmoid::<FMA>(x) }, "return sigmoid(x);", Bound::within(6, Floor::Result);
            /// `ln(1 + e^x)`
            Softplus "softplus": { |x| softplus::<FMA>(x) }, "return softplus(x);", Bound::within(12, Floor::Number(5e-32));
            /// `x sigmoid(x)`
            Silu "silu": { |x| x * sigmoid::<FMA>(x) }, "return x * sigmoid(x);", Bound::within(6, Floor::Result);
            /// GELU in its tanh form, GPT-2's `gelu_new`: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
            Gelu "gelu": { |x| x * sigmoid::<FMA>(gelu_argument(x)) }, "return x * sigmoid(gelu_argument(x));",
                Bound::within(6, Floor::Result);
            /// GELU in its exact form, Hugging Face's `gelu`: `x/2 (1 + erf(x / sqrt 2))`
            // The processor's distribution function holds 2e-6, 17 units.
            GeluErf "gelu_erf": { |x| x * normal_cdf::<FMA>(x) }, "return x * normcdff(x);",
                Bound::within(23, Floor::Number(1.0));
            /// `max(x, 0)^2`
            ReluSquared "relu_squared": { |x| relu(x) * relu(x) }, "return relu(x) * relu(x);", Bound::EXACT;
            /// `c x`
            Scale(by: f32 = 0.7) "scale": { |x| by * x }, "return by * x;", Bound::EXACT;
            /// `x + c`
            Shift(by: f32 = -3.5) "shift": { |x| x + by }, "return x + by;", Bound::EXACT;
            /// The smaller one of `x` and `c`; `x` if it is not a number.
            AtMost(max: f32 = 0.5) "at_most": { |x| if x > max { max } else { x } }, "return x > max ? max : x;", Bound::EXACT;
            /// The larger one of `x` and `c`; `x` if it is not a number.
            AtLeast(min: f32 = 0.5) "at_least": { |x| if x < min { min } else { x } }, "return x < min ? min : x;", Bound::EXACT;
        }
    };
}
pub(crate) use unary_functions;

/// The functions of two numbers. A row is `Kind "name": computation, "body", bound`.
macro_rules! binary_functions {
    ($make:ident) => {
        $make! {
            /// `a + b`
            Add "add": |a, b| a + b, "return a + b;", Bound::EXACT;
            /// `a - b`
            Sub "sub": |a, b| a - b, "return a - b;", Bound::EXACT;
            /// `a b`
            Mul "mul": |a, b| a * b, "return a * b;", Bound::EXACT;
            /// `a / b`
            Div "div": |a, b| a / b, "return a / b;", Bound::EXACT;
            /// The larger one.
            Max "max": |a, b| if a > b || a.is_nan() { a } else { b }, "return a > b || a != a ? a : b;", Bound::EXACT;
            /// The smaller one.
            Min "min": |a, b| if a < b || a.is_nan() { a } else { b }, "return a < b || a != a ? a : b;", Bound::EXACT;
            /// `dy` times the derivative of [`Unary::Sigmoid`] where its result is `y`.
            SigmoidGrad "sigmoid_grad": |y, dy| dy * (y * (1.0 - y)), "return dy * (y * (1.0f - y));", Bound::EXACT;
            /// `dy` times the derivative of [`Unary::Silu`] at `x`.
            SiluGrad "silu_grad": |x, dy| {
                let s = sigmoid::<FMA>(x);
                dy * (s * (1.0 + x * (1.0 - s)))
            }, "float s = sigmoid(x); return dy * (s * (1.0f + x * (1.0f - s)));", Bound::within(32, Floor::Second);
            /// `dy` times the derivative of [`Unary::Gelu`] at `x`.
            // Beyond 32 it is 0 or 1 to the last bit, and the square of a large argument would overflow.
            GeluGrad "gelu_grad": |x, dy| {
                let x = if x < -32.0 { -32.0 } else { x };
                let x = if x > 32.0 { 32.0 } else { x };
                let s = sigmoid::<FMA>(gelu_argument(x));
                dy * (s + x * s * (1.0 - s) * TWO_SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044_715 * x * x))
            }, "
    x = x < -32.0f ? -32.0f : x;
    x = x > 32.0f ? 32.0f : x;
    float s = sigmoid(gelu_argument(x));
    return dy * (s + x * s * (1.0f - s) * 1.5957692f * (1.0f + 3.0f * 0.044715f * x * x));
", Bound::within(64, Floor::Second);
            /// `dy` times the derivative of [`Unary::GeluErf`] at `x`.
            // The factor of the density is 1 / sqrt(2 pi).
            GeluErfGrad "gelu_erf_grad": |x, dy| {
                dy * (normal_cdf::<FMA>(x) + x * 0.398_942_3 * exp::<FMA>(-0.5 * x * x))
            }, "return dy * (normcdff(x) + x * 0.3989423f * expf(-0.5f * x * x));", Bound::within(32, Floor::Second);
            /// `dy` times the derivative of [`Unary::ReluSquared`] at `x`.
            ReluSquaredGrad "relu_squared_grad": |x, dy| 2.0 * (dy * relu(x)), "return 2.0f * (dy * relu(x));", Bound::EXACT;
        }
    };
}
pub(crate) use binary_functions;

macro_rules! unary_kinds {
    ($($(#[$doc:meta])*
       $kind:ident $(($constant:ident: $ty:ty = $some:expr))? $name:literal: $run:tt, $body:literal, $bound:expr;)*
    ) => {
        /// A function of one number.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Unary { $($(#[$doc])* $kind $(($ty))?),* }

        impl Unary {
            /// Every function, with some constant.
            pub const ALL: [Unary; [$($name),*].len()] = [$(Unary::$kind $(($some))?),*];
        }
    };
}
unary_functions!(unary_kinds);

macro_rules! binary_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal: |$a:ident, $b:ident| $value:expr, $body:literal, $bound:expr;)*) => {
        /// A function of two numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Binary { $($(#[$doc])* $kind),* }

        impl Binary {
            /// Every function.
            pub const ALL: [Binary; [$($name),*].len()] = [$(Binary::$kind),*];
        }
    };
}
binary_functions!(binary_kinds);
