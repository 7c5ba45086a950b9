//! A slice of a sequence, for ops that depend on the position of an element in the entire sequence.

use crate::ops::{Attr, Attrs};

/// The rows of the operand as a range, from `origin` on, of a sequence of `whole` rows. The sequence is dim 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first row.
    pub origin: u64,
    /// The number of rows of the entire sequence.
    pub whole: u64,
}

impl Piece {
    /// `origin=64, whole=128`; empty if the operand is the entire sequence.
    pub(in crate::ops) fn attrs(piece: Option<Piece>) -> Vec<(&'static str, Attr)> {
        let attrs = |piece: Piece| [("origin", Attr::int(piece.origin)), ("whole", Attr::int(piece.whole))];
        piece.map_or_else(Vec::new, |piece| attrs(piece).to_vec())
    }

    /// Reads [`Piece::attrs`].
    pub(in crate::ops) fn parse(attrs: &mut Attrs) -> Result<Option<Piece>, String> {
        let Some(origin) = attrs.optional_int("origin")? else { return Ok(None) };
        Ok(Some(Piece { origin, whole: attrs.int("whole")? }))
    }

    /// The fault of rows that are not within the sequence.
    pub(in crate::ops) fn fault(piece: Option<Piece>, rows: u64) -> Option<String> {
        let Piece { origin, whole } = piece?;
        let is_within = origin.checked_add(rows).is_some_and(|end| end <= whole);
        (!is_within).then(|| format!("{rows} rows from {origin} are not within a sequence of {whole}"))
    }
}
