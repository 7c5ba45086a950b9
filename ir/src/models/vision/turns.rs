//! How rows and columns turn the queries and keys of patches: of the pairs of a head, the first half turns by the row of a patch, the
//! other half by its column.

use crate::ops::{Rope, Scaling};

/// The divisor of a frequency by which nothing turns: of no place that an integer counts the angle is more than a rounding error.
const STILL: f64 = 1e30;

/// The turns of heads of `head` elements by rows, and by columns. Of the frequencies `theta^(-2 n / head)` rows have those of even `n`, and
/// columns those of odd `n`.
pub(super) fn turns(theta: f64, head: u64) -> [Rope; 2] {
    [0, 1].map(|parity| {
        let divisors: Vec<f64> = (0..head / 2).map(|pair| divisor(theta, head, pair, parity)).collect();
        let scaling = Some(Scaling::Pairs { divisors: divisors.into() });
        Rope { theta, scaling, turned: None, gain: 1.0, inverse: false }
    })
}

/// The divisor of the frequency of a pair, which is `theta^(-2 pair / head)`: its own half of the pairs has the numbers of one parity.
fn divisor(theta: f64, head: u64, pair: u64, parity: u64) -> f64 {
    let half = head / 4;
    if (pair < half) != (parity == 0) {
        return STILL;
    }
    let number = 2 * (pair % half) + parity;
    theta.powf(2.0 * (number as f64 - pair as f64) / head as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_take_turns_among_the_frequencies() {
        let (theta, head) = (10_000.0_f64, 16);
        let own: Vec<f64> = (0..head / 2).map(|n| theta.powf(-2.0 * n as f64 / head as f64)).collect();
        let [rows, columns] = turns(theta, head).map(|turn| turn.frequencies(head as usize));
        for pair in 0..4 {
            assert!((rows[pair] / own[2 * pair] - 1.0).abs() < 1e-12, "row {pair}");
            assert!((columns[4 + pair] / own[2 * pair + 1] - 1.0).abs() < 1e-12, "column {pair}");
            assert!(rows[4 + pair] < 1e-20 && columns[pair] < 1e-20);
        }
    }
}
