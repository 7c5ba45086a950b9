//! Number of threads a kernel may use, and the division of work among them.

use std::ops::Range;

use super::team;

/// Work below which a second thread costs more than it saves: waking one that sleeps takes some 10 microseconds. A unit of
/// work is an element touched, or [`FLOPS`] of a product.
const MIN_WORK: usize = 1 << 16;

/// Floating-point operations of a product that take about as long as touching an element: one vector of multiply-adds.
pub(crate) const FLOPS: usize = 32;

/// The number of threads a kernel may use. `Par(1)` is the calling thread alone; more come from helper threads of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Par(pub usize);

impl Par {
    /// The number of threads that `work` is worth.
    pub(crate) fn threads(self, work: usize) -> usize {
        self.0.min(work / MIN_WORK).max(1)
    }

    /// Calls `f` on contiguous ranges of `rows` that cover all of them, each with its part of `data`, which has a number of elements in a
    /// row; on several threads if `work_per_row` elements are worth it.
    pub fn ranges(
        self,
        rows: usize,
        work_per_row: usize,
        (data, width): (&mut [f32], usize),
        f: &(impl Fn(Range<usize>, &mut [f32]) + Sync),
    ) {
        self.rows(rows, work_per_row, Rows(data, width), &|range, Rows(data, _)| f(range, data));
    }

    /// Calls `f` on contiguous ranges of `rows` that cover all of them, each with its part of `parts`.
    pub(crate) fn rows<S, F>(self, rows: usize, work_per_row: usize, parts: S, f: &F)
    where
        S: SplitRows,
        F: Fn(Range<usize>, S) + Sync,
    {
        let threads = self.threads(rows.saturating_mul(work_per_row)).min(rows.max(1));
        split(threads, 0..rows, parts, f);
    }
}

fn split<S, F>(threads: usize, rows: Range<usize>, parts: S, f: &F)
where
    S: SplitRows,
    F: Fn(Range<usize>, S) + Sync,
{
    if threads <= 1 {
        return f(rows, parts);
    }
    let left = threads / 2;
    let count = rows.len() * left / threads;
    let middle = rows.start + count;
    let (a, b) = parts.split_rows(count);
    team::join(|| split(left, rows.start..middle, a, f), || split(threads - left, middle..rows.end, b, f));
}

/// Data that can be cut in two between rows.
pub(crate) trait SplitRows: Sized + Send {
    /// The first `rows` rows, and the rest.
    fn split_rows(self, rows: usize) -> (Self, Self);
}

/// A slice seen as rows of the given width.
pub(crate) struct Rows<S>(pub(crate) S, pub(crate) usize);

impl<T: Sync> SplitRows for Rows<&[T]> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = self.0.split_at(rows * self.1);
        (Rows(a, self.1), Rows(b, self.1))
    }
}

impl<T: Send> SplitRows for Rows<&mut [T]> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = self.0.split_at_mut(rows * self.1);
        (Rows(a, self.1), Rows(b, self.1))
    }
}

impl SplitRows for () {
    fn split_rows(self, _: usize) -> (Self, Self) {
        ((), ())
    }
}

impl<S: SplitRows> SplitRows for Option<S> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        match self.map(|s| s.split_rows(rows)) {
            Some((a, b)) => (Some(a), Some(b)),
            None => (None, None),
        }
    }
}

macro_rules! split_tuple {
    ($($part:ident),*) => {
        impl<$($part: SplitRows),*> SplitRows for ($($part,)*) {
            #[allow(non_snake_case, reason = "the type parameters name the values too")]
            fn split_rows(self, rows: usize) -> (Self, Self) {
                let ($($part,)*) = self;
                $(let $part = $part.split_rows(rows);)*
                (($($part.0,)*), ($($part.1,)*))
            }
        }
    };
}

split_tuple!(A, B);
split_tuple!(A, B, C);
split_tuple!(A, B, C, D);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_covered_once() {
        for rows in [0, 1, 2, 7, 64] {
            for threads in [1, 2, 3, 5] {
                let mut out = vec![0usize; rows * 3];
                Par(threads).rows(rows, MIN_WORK, Rows(&mut out[..], 3), &|range, out| {
                    assert_eq!(out.0.len(), range.len() * 3);
                    for (row, out) in range.zip(out.0.chunks_exact_mut(3)) {
                        out.iter_mut().for_each(|o| *o += row + 1);
                    }
                });
                assert!(out.iter().enumerate().all(|(i, &o)| o == i / 3 + 1));
            }
        }
    }

    #[test]
    fn small_work_stays_on_one_thread() {
        assert_eq!(Par(8).threads(MIN_WORK - 1), 1);
        assert_eq!(Par(8).threads(3 * MIN_WORK), 3);
        assert_eq!(Par(0).threads(usize::MAX), 1);
    }
}
