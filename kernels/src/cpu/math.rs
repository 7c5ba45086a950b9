//! Elementary functions as branch-free polynomials, so that loops over them vectorise.

/// `a b + c`, rounded once if the instruction set fuses the two.
#[inline(always)]
pub(crate) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The polynomial of `x` with these coefficients, that of the highest power first.
#[inline(always)]
fn polynomial<const FMA: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients
        .into_iter()
        .reduce(
            #[inline(always)]
            |sum, next| mul_add::<FMA>(sum, x, next),
        )
        .unwrap_or(0.0)
}

/// `e^x`, relative error below 2e-7; 0 where that is below 1.7e-38.
///
/// `x` is `n ln 2 + r`. The polynomial of `2 e^r` is that of least relative error, 3e-9, whose first two coefficients are 2.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // 1.5 * 2^23, to which a float is added as the nearest integer: the low bits are then that, plus 126.
    const ROUND: f32 = 12_582_912.0 + 126.0;
    // Below the lower bound the result rounds to zero, above the upper one it overflows. NaN passes both.
    let x = if x < -87.5 { -87.5 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let rounded = mul_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    // ln 2 in two parts, the first short enough for the product to be exact.
    let r = mul_add::<FMA>(n, 2.121_944_4e-4, mul_add::<FMA>(n, -0.693_359_4, x));
    // The polynomial in pairs, since a processor has many lanes but waits for each product.
    let square = r * r;
    let high = mul_add::<FMA>(1.673_743_4e-2, r, 8.333_678e-2);
    let middle = mul_add::<FMA>(3.333_304e-1, r, 9.999_999e-1);
    let low = mul_add::<FMA>(2.0, r, 2.0);
    let p = mul_add::<FMA>(2.762_919e-3, square, high);
    let p = mul_add::<FMA>(mul_add::<FMA>(p, square, middle), square, low);
    // 2^(n - 1), whose exponent field is n + 126; all other bits are shifted out.
    p * f32::from_bits(rounded.to_bits() << 23)
}

/// The natural logarithm, relative error below 2e-7 away from 1. Reduction and polynomial of Cephes `logf`.
#[inline(always)]
pub(crate) fn ln<const FMA: bool>(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let tiny = x < f32::MIN_POSITIVE;
    let bits = (if tiny { x * 8_388_608.0 } else { x }).to_bits(); // 2^23 lifts subnormal numbers
    let shifted = bits.wrapping_sub(SQRT_HALF);
    let exponent = (shifted as i32 >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let r = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF)) - 1.0;
    let p = polynomial::<FMA, 9>(
        r,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    let square = r * r;
    let small = p * r * square - exponent * 2.121_944_4e-4 - 0.5 * square;
    let y = r + small + exponent * 0.693_359_4;
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// `ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)`. The logarithm is exact to the last bits also where `1 + e^-|x|` is near 1 (Goldberg 1991,
/// theorem 4).
#[inline(always)]
pub(crate) fn softplus<const FMA: bool>(x: f32) -> f32 {
    let power = exp::<FMA>(-x.abs());
    let next = 1.0 + power;
    let log = if next == 1.0 { power } else { ln::<FMA>(next) * (power / (next - 1.0)) };
    (if x < 0.0 { 0.0 } else { x }) + log
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// The normal distribution function, `erfc(-x / sqrt 2) / 2`, by Numerical Recipes' `erfcc` (2nd edition, section 6.2),
/// which keeps its relative error in the tails.
#[inline(always)]
pub(crate) fn normal_cdf<const FMA: bool>(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * z);
    let p = polynomial::<FMA, 10>(
        t,
        [
            0.170_872_77,
            -0.822_152_23,
            1.488_515_9,
            -1.135_204,
            0.278_868_07,
            -0.186_288_06,
            0.096_784_18,
            0.374_091_96,
            1.000_023_7,
            -1.265_512_2,
        ],
    );
    let tail = 0.5 * t * exp::<FMA>(p - 0.5 * x * x);
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// The hyperbolic tangent, relative error below 3e-7. Polynomial of Cephes `tanhf` near 0, where the other form cancels.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    let size = x.abs();
    let square = x * x;
    let p =
        polynomial::<FMA, 5>(square, [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let near = p * square * x + x;
    let far = (1.0 - 2.0 / (exp::<FMA>(2.0 * size) + 1.0)).copysign(x);
    if size < 0.625 { near } else { far }
}

/// The error function, relative error below 3e-7. Minimax polynomials of Juffa's `erff`: of `erf(x) / x` near 0, and of
/// `ln(1 - erf x)` elsewhere.
#[inline(always)]
pub(crate) fn erf<const FMA: bool>(x: f32) -> f32 {
    let size = x.abs();
    let square = x * x;
    let p = polynomial::<FMA, 6>(
        square,
        [-5.967_61e-4, 4.991_194e-3, -2.676_813_5e-2, 1.128_199_3e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let near = p * x + x;
    // From 4 on the result is 1 to the last bit.
    let t = if size > 4.0 { 4.0 } else { size };
    let p = polynomial::<FMA, 7>(
        t,
        [
            -1.728_534_7e-5,
            3.831_974_4e-4,
            -3.883_963_6e-3,
            2.425_462_2e-2,
            -1.067_778_8e-1,
            -6.348_467e-1,
            -1.287_175_1e-1,
        ],
    );
    let far = (1.0 - exp::<FMA>(p * t - t)).copysign(x);
    if size > 0.927_734_4 || x.is_nan() { far } else { near }
}

/// The largest angle of [`sin`] and [`cos`], in radians.
pub(crate) const ANGLES: f32 = 1e6;

/// The sine of an angle up to [`ANGLES`], error below 2e-7 of the larger of it and 1e-7 of the angle.
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    sine_from(f64::from(x), 0)
}

/// The cosine, with the error of [`sin`].
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    sine_from(f64::from(x), 1)
}

/// Sine of an angle after this number of quarter turns. The angle is reduced in f64, whose rounding is 2^29 times finer; the
/// polynomials are those of Cephes `sinf` and `cosf`.
#[inline(always)]
fn sine_from(x: f64, quarters: u64) -> f32 {
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    let rounded = x * std::f64::consts::FRAC_2_PI + ROUND;
    let n = rounded - ROUND;
    // pi / 2 in two parts, the first of 33 bits: its product with n, which has 20, is exact.
    let r = (x - n * 1.570_796_326_734_125_6) - n * 6.077_100_506_506_192e-11;
    let square = r * r;
    let sine = ((-1.951_529_589_1e-4 * square + 8.332_160_873_6e-3) * square - 1.666_665_461_1e-1) * square * r + r;
    let cosine = (2.443_315_711_809_948e-5 * square - 1.388_731_625_493_765e-3) * square + 4.166_664_568_298_827e-2;
    let cosine = cosine * square * square - 0.5 * square + 1.0;
    let quarters = rounded.to_bits().wrapping_add(quarters);
    let y = if quarters & 1 == 0 { sine } else { cosine };
    (if quarters & 2 == 0 { y } else { -y }) as f32
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn functions_are_close_with_fused_multiply_adds() {
        tanh_and_erf_are_close_over_their_ranges::<true>();
        exp_is_close_over_its_range::<true>();
        ln_is_close_over_its_range::<true>();
        normal_cdf_is_close::<true>();
    }

    #[test]
    fn functions_are_close_without_fused_multiply_adds() {
        tanh_and_erf_are_close_over_their_ranges::<false>();
        exp_is_close_over_its_range::<false>();
        ln_is_close_over_its_range::<false>();
        normal_cdf_is_close::<false>();
    }

    fn tanh_and_erf_are_close_over_their_ranges<const FMA: bool>() {
        let mut x = 1e-30f32;
        while x < 1e30 {
            for x in [x, -x] {
                let exact = f64::from(x).tanh();
                assert!((f64::from(tanh::<FMA>(x)) / exact - 1.0).abs() < 3e-7, "tanh({x}) = {}", tanh::<FMA>(x));
                let exact = testing::erf(f64::from(x));
                assert!((f64::from(erf::<FMA>(x)) / exact - 1.0).abs() < 3e-7, "erf({x}) = {}", erf::<FMA>(x));
            }
            x *= 1.003;
        }
        for f in [tanh::<true>, erf::<true>] {
            assert_eq!([f(0.0), f(f32::INFINITY), f(f32::NEG_INFINITY)], [0.0, 1.0, -1.0]);
            assert!(f(f32::NAN).is_nan());
        }
    }

    #[test]
    fn sine_and_cosine_are_close() {
        let mut x = 1e-30f32;
        while x < ANGLES {
            for x in [x, -x] {
                let exact = f64::from(x);
                for (got, right) in [(sin(x), exact.sin()), (cos(x), exact.cos())] {
                    let error = (f64::from(got) - right).abs();
                    assert!(error < 2e-7 * right.abs().max(1e-7 * exact.abs()), "{x}: {got} for {right}");
                }
            }
            x *= 1.0003;
        }
        assert!(cos(f32::NAN).is_nan());
    }

    fn exp_is_close_over_its_range<const FMA: bool>() {
        let mut x = -86.9f32;
        while x < 88.5 {
            let exact = f64::from(x).exp();
            assert!((f64::from(exp::<FMA>(x)) / exact - 1.0).abs() < 2e-7, "exp({x})");
            x += 0.0137;
        }
        assert_eq!(exp::<FMA>(0.0), 1.0);
        assert_eq!(exp::<FMA>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp::<FMA>(-200.0), 0.0);
        assert_eq!(exp::<FMA>(f32::INFINITY), f32::INFINITY);
        assert!(exp::<FMA>(f32::NAN).is_nan());
        // To the last finite result, and the least one that is not 0.
        assert!(exp::<FMA>(88.72) > 3.3e38 && exp::<FMA>(-87.0) < 2e-38);
    }

    fn ln_is_close_over_its_range<const FMA: bool>() {
        let mut x = 1e-40f32;
        while x < 1e38 {
            let exact = f64::from(x).ln();
            assert!((f64::from(ln::<FMA>(x)) - exact).abs() < 2e-7 * exact.abs().max(0.5), "ln({x})");
            x *= 1.01;
        }
        assert_eq!(ln::<FMA>(1.0), 0.0);
        assert_eq!(ln::<FMA>(0.0), f32::NEG_INFINITY);
        assert_eq!(ln::<FMA>(f32::INFINITY), f32::INFINITY);
        assert!(ln::<FMA>(-1.0).is_nan() && ln::<FMA>(f32::NAN).is_nan());
    }

    fn normal_cdf_is_close<const FMA: bool>() {
        // Abramowitz and Stegun, table 26.1 and 26.2.
        for (x, exact) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.0, 0.158_655_254), (-4.0, 3.167_124_2e-5)] {
            let got = f64::from(normal_cdf::<FMA>(x as f32));
            assert!((got / exact - 1.0f64).abs() < 2e-6, "cdf({x}) = {got}");
        }
    }
}
