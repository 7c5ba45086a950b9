//! How rows and columns turn the queries and keys of patches: of the pairs of a head, the first half turns by the row of a patch, the
//! other half by its column.

use crate::models::rotation::STILL;
use crate::ops::{Rope, Scaling};
use serde::Serialize;

/// The frequencies `theta^(-2 n / head)` that rows and columns have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Frequencies {
    /// Rows those of even `n`, columns those of odd `n` (Pixtral).
    ByParity,
    /// Both those of even `n` (Qwen2-VL).
    Alike,
}

/// The turns of heads of `head` elements by rows, and by columns.
pub(super) fn turns(frequencies: Frequencies, theta: f64, head: u64) -> [Rope; 2] {
    [0, 1].map(|side| {
        let divisors: Vec<f64> = (0..head / 2).map(|pair| divisor(frequencies, theta, head, pair, side)).collect();
        let scaling = Some(Scaling::Pairs { divisors: divisors.into() });
        Rope { theta, scaling, turned: None, gain: 1.0, inverse: false }
    })
}

/// The divisor of the frequency of a pair, which is `theta^(-2 pair / head)`: of the pairs one half turns by each side.
fn divisor(frequencies: Frequencies, theta: f64, head: u64, pair: u64, side: u64) -> f64 {
    let half = head / 4;
    if (pair < half) != (side == 0) {
        return STILL;
    }
    let parity = if frequencies == Frequencies::ByParity { side } else { 0 };
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
        for (frequencies, parity) in [(Frequencies::ByParity, 1), (Frequencies::Alike, 0)] {
            let [rows, columns] = turns(frequencies, theta, head).map(|turn| turn.frequencies(head as usize));
            for pair in 0..4 {
                assert!((rows[pair] / own[2 * pair] - 1.0).abs() < 1e-12, "row {pair}");
                assert!((columns[4 + pair] / own[2 * pair + parity] - 1.0).abs() < 1e-12, "column {pair}");
                assert!(rows[4 + pair] < 1e-20 && columns[pair] < 1e-20);
            }
        }
    }
}
