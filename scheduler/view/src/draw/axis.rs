//! Round numbers for a time axis.

use scheduler::decimal::bounded;

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
pub(crate) fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// A multiple of a step, without the digits that rounding adds.
pub(crate) fn label(time: f64, step: f64) -> String {
    if step >= 1e15 {
        return format!("{time:e}");
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    format!("{time:.decimals$}")
}

/// A whole number as it is, any other to six digits.
pub(crate) fn figure(value: f64) -> String {
    bounded(if value.fract() == 0.0 { value } else { format!("{value:.5e}").parse().unwrap_or(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_not_below() {
        let least = [0.3, 1.0, 1.1, 3.0, 7.0, 400.0, 0.000_012];
        assert_eq!(least.map(|least| label(step(least), step(least))), ["0.5", "1", "2", "5", "10", "500", "0.00002"]);
        assert_eq!(
            (figure(2.0 / 3.0), figure(1456749.0), figure(0.0)),
            ("0.666667".into(), "1456749".into(), "0".into())
        );
        assert_eq!((label(2e15, 1e15), label(3e200, 1e199)), ("2e15".into(), "3e200".into()));
    }
}
