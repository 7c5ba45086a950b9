//! Numbers in messages and reports, without the digits that rounding adds.

/// Formats a number with 12 significant digits, the precision of a schedule's sums.
pub fn precise(value: f64) -> String {
    bounded(format!("{value:.11e}").parse().unwrap_or(value))
}

/// Formats a number in decimal digits, or with a power of ten if it is very large or small.
pub fn bounded(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e15).contains(&size) { value.to_string() } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_digits_hide_rounding() {
        assert_eq!([0.1 + 0.2, 33.0, 1e200, 2.5e-9].map(precise), ["0.3", "33", "1e200", "2.5e-9"]);
    }
}
