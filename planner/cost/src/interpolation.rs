//! Interpolated tables of measured values.

use serde::{Deserialize, Serialize};

/// Pairs of size and value, by increasing size. Values are interpolated over the logarithm of the size and are constant
/// beyond the ends. An empty table is 1 everywhere.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table(pub Vec<[f64; 2]>);

impl Table {
    /// Value at a size.
    pub fn at(&self, size: f64) -> f64 {
        let after = self.0.partition_point(|&[at, _]| at <= size);
        match (after.checked_sub(1).map(|before| self.0[before]), self.0.get(after)) {
            (None, None) => 1.0,
            (Some([_, figure]), None) | (None, Some(&[_, figure])) => figure,
            (Some([low, a]), Some(&[high, b])) => a + (b - a) * (size / low).ln() / (high / low).ln(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_lie_between_their_neighbours() {
        let table = Table(vec![[10.0, 0.2], [1000.0, 0.6]]);
        assert_eq!([1.0, 10.0, 1000.0, 1e6].map(|size| table.at(size)), [0.2, 0.2, 0.6, 0.6]);
        assert!((table.at(100.0) - 0.4).abs() < 1e-12);
        assert_eq!(Table::default().at(7.0), 1.0);
    }
}
