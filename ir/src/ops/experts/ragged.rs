//! All-to-alls that move only the filled rows of chunks, as between tokens and experts that drop none.
//!
//! `all_to_all(%x, %n, %m, from=0, to=2, over={ep}, rows=3, mean=8)`: each index of the dims of `%x` before dim 3 has a chunk of rows, of which
//! `%n` says how many are filled, from the first one on. `%m` says so of the result: it is `%n` after the same all-to-all. Rows that are not
//! filled do not move, and are zeros in the result; their places follow from the types alone. On average 8 are filled.

use crate::ops::{Attr, Attrs, Collective};
use crate::types::{DType, Type};

/// The rows of a ragged all-to-all, whose last two operands are the numbers of filled rows before and after.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ragged {
    /// The dim of the rows. The dims before it number the chunks.
    pub rows: usize,
    /// Rows of a chunk that are filled on average, rounded up.
    pub mean: u64,
}

impl Ragged {
    /// The operands that count rows.
    pub const COUNTS: usize = 2;

    pub(in crate::ops) fn parse(attrs: &mut Attrs) -> Result<Option<Ragged>, String> {
        match (attrs.optional_int("rows")?, attrs.optional_int("mean")?) {
            (None, None) => Ok(None),
            (Some(rows), Some(mean)) => Ok(Some(Ragged { rows: rows as usize, mean })),
            _ => Err("`rows` and `mean` belong together".to_string()),
        }
    }

    pub(in crate::ops) fn attrs(&self) -> [(&'static str, Attr); 2] {
        [("rows", Attr::int(self.rows as u64)), ("mean", Attr::int(self.mean))]
    }

    /// Bytes of the filled rows of a tensor of this many bytes, on average.
    pub fn mean_bytes(&self, ty: &Type, bytes: u64) -> u64 {
        let rows = ty.dims.get(self.rows).map_or(1, |dim| dim.size.max(1));
        (u128::from(bytes) * u128::from(self.mean.min(rows)) / u128::from(rows)) as u64
    }
}

impl Collective {
    /// The rows of a ragged all-to-all.
    pub fn ragged(&self) -> Option<Ragged> {
        if let Collective::AllToAll { ragged, .. } = self { *ragged } else { None }
    }

    /// Returns the collective that moves whole chunks.
    #[must_use]
    pub fn whole(self) -> Collective {
        match self {
            Collective::AllToAll { from, to, over, .. } => Collective::AllToAll { from, to, over, ragged: None },
            other => other,
        }
    }

    /// The operands that have a result: all but those that count rows.
    pub fn moved<'a, T>(&self, operands: &'a [T]) -> &'a [T] {
        let counts = if self.ragged().is_some() { Ragged::COUNTS } else { 0 };
        &operands[..operands.len().saturating_sub(counts)]
    }

    /// The numbers of filled rows, before and after, of a ragged all-to-all.
    pub fn counts<'a, T>(&self, operands: &'a [T]) -> Option<[&'a T; Ragged::COUNTS]> {
        match &operands[self.moved(operands).len()..] {
            [before, after] => Some([before, after]),
            _ => None,
        }
    }

    /// Checks the counts of a ragged all-to-all, and that each chunk is whole on a rank.
    ///
    /// # Errors
    /// There are none, or they are not those of the chunks.
    pub fn check_counts(&self, operands: &[&Type]) -> Result<(), String> {
        let (Collective::AllToAll { from, to, .. }, Some(Ragged { rows, mean })) = (self, self.ragged()) else {
            return Ok(());
        };
        let [before, after] = self.counts(operands).ok_or("the counts of rows before and after are missing")?;
        if self.moved(operands).is_empty() {
            return Err("it moves no tensor".to_string());
        }
        for ty in self.moved(operands) {
            let chunk =
                ty.dims.get(rows).ok_or_else(|| format!("there is no dim {rows}; the rank is {}", ty.rank()))?;
            if rows <= *from.max(to) || !chunk.axes.is_empty() || !ty.storage.is_empty() {
                return Err(format!("the rows of a chunk, dim {rows}, must be replicated, before and after"));
            }
            if !(1..=chunk.size).contains(&mean) {
                return Err(format!("`mean` is {mean}, where chunks have {} rows", chunk.size));
            }
            if *before != &Type::new(DType::I32, ty.dims[..rows].to_vec()) {
                return Err("the counts before have another type than one number for each chunk".to_string());
            }
        }
        match self.result_type(before)? == **after {
            true => Ok(()),
            false => Err("the counts after have another sharding than those before, exchanged".to_string()),
        }
    }
}
