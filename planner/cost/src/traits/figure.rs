//! Figures of a stack's traits with their ranges: those of any software on any hardware.

use crate::preset_error::out_of_range;

/// Figure of a stack's traits.
pub(crate) struct Figure {
    /// Path of the figure in the table `[traits]`.
    path: &'static str,
    /// Value.
    value: f64,
    /// Range that the value must be in.
    range: Range,
}

/// Range of a figure.
#[derive(Clone, Copy)]
pub(super) struct Range {
    least: f64,
    most: f64,
    /// Thing that the figure counts, as text for messages.
    unit: &'static str,
}

impl Range {
    /// Bytes on a device.
    pub(super) const BYTES: Range = Range::new(0.0, 1e12, "bytes");

    /// Bytes that are saved for an element.
    pub(super) const SAVED: Range = Range::new(0.0, 64.0, "bytes of an element");

    pub(super) const fn new(least: f64, most: f64, unit: &'static str) -> Range {
        Range { least, most, unit }
    }

    /// Figure at a path of the table, with this range.
    pub(super) const fn of(self, path: &'static str, value: f64) -> Figure {
        Figure { path, value, range: self }
    }
}

impl Figure {
    /// Message about a value that is out of its range.
    pub(crate) fn complaint(&self) -> Option<String> {
        let Range { least, most, unit } = self.range;
        out_of_range(&format!("traits.{}", self.path), self.value, least, most, unit)
    }
}
