//! Rounding error of sums of costs.

use crate::costs::StageCosts;
use crate::placement::Pipeline;

/// Returns the largest relative error of a sum of these costs along a route through a pipeline, or 0 if no sum is rounded.
///
/// A sum of n nonnegative numbers is off by at most n units in the last place. Sums are exact if all costs are multiples of one
/// power of two and their total over all actions is less than 2^53 times that power.
pub fn rounding(costs: &StageCosts, pipeline: &Pipeline) -> f64 {
    let units = f64::from(pipeline.microbatches) * f64::from(pipeline.slices);
    let all = times(costs).sum::<f64>() * 2.0 * (units + 1.0);
    let unit = times(costs).filter(|&time| time != 0.0).map(lowest_bit).fold(f64::INFINITY, f64::min);
    if all == 0.0 || all / unit < 2f64.powi(53) {
        return 0.0;
    }
    let summands = 8.0 * costs.f.len() as f64 + 6.0 * f64::from(pipeline.chunks) * units + 64.0;
    summands * f64::EPSILON
}

fn times(costs: &StageCosts) -> impl Iterator<Item = f64> {
    costs.f.iter().chain(&costs.i).chain(&costs.w).chain(&costs.comm).chain(&costs.fb).copied()
}

/// Returns whether a value equals a bound up to rounding.
pub fn meets(value: f64, bound: f64, costs: &StageCosts, pipeline: &Pipeline) -> bool {
    value <= bound * (1.0 + 4.0 * rounding(costs, pipeline).max(f64::EPSILON))
}

/// Returns the value of the lowest set bit of a number.
fn lowest_bit(number: f64) -> f64 {
    let mantissa = number.to_bits() & ((1 << 52) - 1);
    let exponent = ((number.to_bits() >> 52) & 0x7ff) as i32;
    let (mantissa, exponent) = if exponent == 0 { (mantissa, 1) } else { (mantissa | 1 << 52, exponent) };
    2f64.powi(exponent - 1075 + mantissa.trailing_zeros() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn sums_of_small_multiples_are_exact() {
        assert_eq!([1.0, 6.0, 0.75, 5e-324].map(lowest_bit), [1.0, 2.0, 0.25, 5e-324]);
        let pipeline = Pipeline::new(Placement::Chain, 4, 8);
        let round = |f| rounding(&StageCosts::uniform(4, f, 1.0, 0.5, 0.25), &pipeline);
        assert_eq!([round(1.0), round(3.25), round(1e9)], [0.0; 3]);
        assert!(round(0.1) > 0.0 && round(0.1) < 1e-13 && round(1e16) > 0.0);
    }
}
