//! Elementary functions as branch-free polynomials, so that loops over them vectorise.

/// Adding and subtracting it rounds a float below 2^22 to the nearest integer, which then is in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// `e^x`, relative error below 2e-7. Reduction and polynomial of Cephes `expf`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Below the lower bound the result rounds to zero, above the upper one it overflows. NaN passes both.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    // ln 2 in two parts, the first short enough for the product to be exact.
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    // The polynomial in pairs, since a processor has many lanes but waits for each product.
    let square = r * r;
    let high = 1.987_569_2e-4 * r + 1.398_2e-3;
    let middle = 8.333_452e-3 * r + 4.166_579_6e-2;
    let low = 1.666_666_5e-1 * r + 0.5;
    let p = (high * square + middle) * square + low;
    let p = p * square + (r + 1.0);
    // 2^n in two factors, since n runs from -151 to 128 and one exponent field does not hold it.
    let n = rounded.to_bits() as i32 - ROUND.to_bits() as i32;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

/// `2^n` for `n` between -126 and 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm, relative error below 2e-7 away from 1. Reduction and polynomial of Cephes `logf`.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let tiny = x < f32::MIN_POSITIVE;
    let bits = (if tiny { x * 8_388_608.0 } else { x }).to_bits(); // 2^23 lifts subnormal numbers
    let shifted = bits.wrapping_sub(SQRT_HALF);
    let exponent = (shifted as i32 >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let r = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF)) - 1.0;
    let p = 7.037_683_6e-2;
    let p = p * r - 1.151_461e-1;
    let p = p * r + 1.167_699_9e-1;
    let p = p * r - 1.242_014_1e-1;
    let p = p * r + 1.424_932_3e-1;
    let p = p * r - 1.666_805_8e-1;
    let p = p * r + 2.000_071_5e-1;
    let p = p * r - 2.499_999_4e-1;
    let p = p * r + 3.333_333e-1;
    let square = r * r;
    let small = p * r * square - exponent * 2.121_944_4e-4 - 0.5 * square;
    let y = r + small + exponent * 0.693_359_4;
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The normal distribution function, `erfc(-x / sqrt 2) / 2`, by Numerical Recipes' `erfcc` (2nd edition, section 6.2),
/// which keeps its relative error in the tails.
#[inline(always)]
pub(crate) fn normal_cdf(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * z);
    let p = 0.170_872_77;
    let p = p * t - 0.822_152_23;
    let p = p * t + 1.488_515_9;
    let p = p * t - 1.135_204;
    let p = p * t + 0.278_868_07;
    let p = p * t - 0.186_288_06;
    let p = p * t + 0.096_784_18;
    let p = p * t + 0.374_091_96;
    let p = p * t + 1.000_023_7;
    let p = p * t - 1.265_512_2;
    let tail = 0.5 * t * exp(p - 0.5 * x * x);
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_over_its_range() {
        let mut x = -87.0f32;
        while x < 88.5 {
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 2e-7, "exp({x})");
            x += 0.0137;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(-100.0) > 0.0 && exp(f32::NAN).is_nan());
    }

    #[test]
    fn ln_is_close_over_its_range() {
        let mut x = 1e-40f32;
        while x < 1e38 {
            let exact = f64::from(x).ln();
            assert!((f64::from(ln(x)) - exact).abs() < 2e-7 * exact.abs().max(0.5), "ln({x})");
            x *= 1.01;
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert_eq!(ln(f32::INFINITY), f32::INFINITY);
        assert!(ln(-1.0).is_nan() && ln(f32::NAN).is_nan());
    }

    #[test]
    fn normal_cdf_is_close() {
        // Abramowitz and Stegun, table 26.1 and 26.2.
        for (x, exact) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.0, 0.158_655_254), (-4.0, 3.167_124_2e-5)] {
            let got = f64::from(normal_cdf(x as f32));
            assert!((got / exact - 1.0f64).abs() < 2e-6, "cdf({x}) = {got}");
        }
    }
}
