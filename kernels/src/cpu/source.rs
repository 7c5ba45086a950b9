//! Operands that may share memory with the result.

use std::ops::Range;

use super::par::{Rows, SplitRows};

/// An operand of an element-wise kernel. If the result takes the place of an operand, two slices would be the same
/// memory; so the operand is named instead.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The elements that the result holds before the call: each is read, then overwritten.
    Own,
    /// Elements elsewhere.
    Other(&'a [f32]),
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a T> for Source<'a> {
    fn from(elements: &'a T) -> Source<'a> {
        Source::Other(elements.as_ref())
    }
}

impl<'a> Source<'a> {
    /// True if the number of elements is that of the result.
    pub(crate) fn has(self, len: usize) -> bool {
        self.slice().is_none_or(|x| x.len() == len)
    }

    /// The elements at some places; of the result, those of the part at hand.
    pub(crate) fn part(self, range: Range<usize>) -> Source<'a> {
        self.slice().map_or(Source::Own, |x| Source::Other(&x[range]))
    }

    /// The elements elsewhere.
    pub(crate) fn slice(self) -> Option<&'a [f32]> {
        match self {
            Source::Own => None,
            Source::Other(x) => Some(x),
        }
    }
}

/// Cut as the result is.
impl SplitRows for Rows<Source<'_>> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = match self.0 {
            Source::Own => (Source::Own, Source::Own),
            Source::Other(x) => {
                let (a, b) = x.split_at(rows * self.1);
                (Source::Other(a), Source::Other(b))
            }
        };
        (Rows(a, self.1), Rows(b, self.1))
    }
}
