//! Conversion of real numbers to integers.

/// A unit in which numbers are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    /// Size of one unit.
    pub(super) size: f64,
    /// True if all numbers are multiples of the unit.
    pub(super) exact: bool,
}

/// Distance from a multiple of the unit, in units, up to which a number counts as that multiple.
const NEAR: f64 = 1e-6;

impl Unit {
    /// Returns the largest unit that divides all numbers, if it is a multiple of a power of ten and at least `least`. Otherwise
    /// returns `least`, or 1 if all numbers are 0.
    pub(super) fn of(numbers: &[f64], least: f64) -> Unit {
        let largest = numbers.iter().copied().fold(0.0, f64::max);
        if largest <= 0.0 {
            return Unit { size: 1.0, exact: true };
        }
        let start = largest.log10().floor() as i32;
        let decimal = (0..16).map(|down| 10_f64.powi(start - down)).take_while(|&size| size >= least);
        for size in decimal {
            let unit = Unit { size, exact: true };
            if numbers.iter().all(|&x| unit.measures(x)) {
                let common = numbers.iter().map(|&x| (x / size).round() as i64).fold(0, divisor);
                return Unit { size: size * common as f64, ..unit };
            }
        }
        Unit { size: least, exact: false }
    }

    fn measures(&self, x: f64) -> bool {
        let units = x / self.size;
        (units - units.round()).abs() <= NEAR.min(units.abs() * 1e-13)
    }

    /// Rounds a number down to whole units.
    pub(super) fn floor(&self, x: f64) -> i64 {
        (x / self.size + if self.exact { NEAR } else { 0.0 }).floor() as i64
    }

    /// Rounds a number up to whole units.
    pub(super) fn ceil(&self, x: f64) -> i64 {
        (x / self.size - if self.exact { NEAR } else { 0.0 }).ceil() as i64
    }
}

/// Returns the greatest common divisor.
fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_largest_that_measures_all() {
        assert_eq!(Unit::of(&[12.0, 8.0, 20.0], 1e-9).size, 4.0);
        assert!((Unit::of(&[0.3, 0.45], 1e-9).size - 0.15).abs() < 1e-12);
        assert_eq!(Unit::of(&[1.0, std::f64::consts::PI], 1e-3).size, 1e-3);
        assert_eq!(Unit::of(&[0.0], 0.0).size, 1.0);
        let unit = Unit { size: 0.25, exact: true };
        assert_eq!((unit.floor(0.6), unit.ceil(0.6), unit.floor(0.75), unit.ceil(0.75)), (2, 3, 3, 3));
    }
}
