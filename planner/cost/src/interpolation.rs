//! Interpolated tables of measured values.

use crate::quantities::array_form;
use serde::{Deserialize, Serialize};

/// Points by increasing size. Values are interpolated over the logarithm of the size and are constant beyond the ends. An
/// empty table is 1 everywhere.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table(pub Vec<TablePoint>);

/// Measured value at a size; in files `[size, value]`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct TablePoint {
    /// The size, in the unit of the table's argument.
    pub size: f64,
    /// The value at this size.
    pub value: f64,
}

array_form!(TablePoint { size, value });

impl Table {
    /// Value at a size.
    pub fn at(&self, size: f64) -> f64 {
        let after = self.0.partition_point(|point| point.size <= size);
        match (after.checked_sub(1).map(|before| self.0[before]), self.0.get(after)) {
            (None, None) => 1.0,
            (Some(end), None) => end.value,
            (None, Some(end)) => end.value,
            (Some(low), Some(high)) => {
                low.value + (high.value - low.value) * (size / low.size).ln() / (high.size / low.size).ln()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_lie_between_their_neighbours() {
        let table = Table(vec![[10.0, 0.2].into(), [1000.0, 0.6].into()]);
        assert_eq!([1.0, 10.0, 1000.0, 1e6].map(|size| table.at(size)), [0.2, 0.2, 0.6, 0.6]);
        assert!((table.at(100.0) - 0.4).abs() < 1e-12);
        assert_eq!(Table::default().at(7.0), 1.0);
    }
}
