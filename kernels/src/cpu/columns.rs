//! Sums over rows, by column.

use super::par::{Par, Rows};
use super::reduce::add_rows;
use std::marker::PhantomData;
use std::ops::Range;

/// Rows that are summed one after the other. The sums of such chunks are then added in order, so that rows may be cut between chunks
/// without another result.
pub const CHUNK: usize = 16;

/// Columns that a thread sums at a time: their sums stay in the nearest cache.
const COLUMNS: usize = 1 << 10;

/// Stores or adds the sums over rows. `add` adds the columns of a row to the sums of its chunk. Threads share the columns.
pub(crate) fn sum_rows(
    rows: usize,
    work_per_column: usize,
    out: &mut [f32],
    accumulate: bool,
    par: Par,
    add: &(impl Fn(usize, Range<usize>, &mut [f32]) + Sync),
) {
    par.rows(out.len(), work_per_column, Rows(out, 1), &|columns, Rows(out, _)| {
        if !accumulate {
            out.fill(0.0);
        }
        let mut sums = [0.0; COLUMNS];
        for (at, out) in out.chunks_mut(COLUMNS).enumerate() {
            let first = columns.start + at * COLUMNS;
            let sums = &mut sums[..out.len()];
            for chunk in (0..rows).step_by(CHUNK) {
                sums.fill(0.0);
                for row in chunk..rows.min(chunk + CHUNK) {
                    add(row, first..first + out.len(), sums);
                }
                add_rows(sums, out);
            }
        }
    });
}

/// The sums over rows of a matrix of as many columns as `out`, stored or added.
///
/// # Panics
/// If `x` has no whole number of rows.
pub fn column_sums(x: &[f32], out: &mut [f32], accumulate: bool, par: Par) {
    let columns = out.len();
    let rows = x.len() / columns.max(1);
    assert_eq!(x.len(), rows * columns, "x is rows x columns");
    sum_rows(rows, rows, out, accumulate, par, &|row, range, sums| {
        add_rows(&x[row * columns..][range], sums);
    });
}

/// Adds the sums of chunks to `out`, which begins as 0 unless it accumulates. `partials` has a row per chunk, of a number of columns of
/// which `out` has those from `from` on.
///
/// # Panics
/// If `partials` has no whole number of rows, or `out` more columns.
pub fn add_chunks((partials, columns): (&[f32], usize), from: usize, out: &mut [f32], accumulate: bool) {
    assert!(partials.len().is_multiple_of(columns.max(1)), "partials have whole rows");
    if !accumulate {
        out.fill(0.0);
    }
    for partial in partials.chunks_exact(columns.max(1)) {
        add_rows(&partial[from..from + out.len()], out);
    }
}

/// Sums of chunks of rows that several threads make row by row.
pub struct Chunks<'a> {
    sums: *mut f32,
    len: usize,
    columns: usize,
    partials: PhantomData<&'a mut [f32]>,
}

// SAFETY: whoever adds sees to it that threads write to different elements.
unsafe impl Sync for Chunks<'_> {}

impl<'a> Chunks<'a> {
    /// Sums in `partials`, a row of `columns` elements per chunk. The first row of a chunk overwrites what its row holds.
    pub fn new(partials: &'a mut [f32], columns: usize) -> Chunks<'a> {
        Chunks { sums: partials.as_mut_ptr(), len: partials.len(), columns, partials: PhantomData }
    }

    /// Adds some columns of a row, from one on. The first row of a chunk begins its sums.
    ///
    /// # Panics
    /// If there is no such chunk, or it has fewer columns.
    ///
    /// # Safety
    /// Nobody else touches these columns of the chunk meanwhile.
    pub unsafe fn add(&self, row: usize, column: usize, run: &[f32]) {
        let first = row / CHUNK * self.columns + column;
        assert!(column + run.len() <= self.columns && first + run.len() <= self.len, "columns of a chunk");
        // SAFETY: they are among the sums, and as the caller promises.
        let sums = unsafe { std::slice::from_raw_parts_mut(self.sums.add(first), run.len()) };
        if row.is_multiple_of(CHUNK) {
            sums.fill(0.0);
        }
        add_rows(run, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, doubles, normals};
    use super::*;

    #[test]
    fn sums_are_close_and_depend_on_no_threads() {
        for (rows, columns) in [(0, 3), (1, 5), (16, 7), (50, 1500), (333, 2049)] {
            let x = normals(rows * columns, 3);
            let exact: Vec<f64> =
                (0..columns).map(|at| doubles(&x).iter().skip(at).step_by(columns).sum::<f64>() + 1.0).collect();
            let sums = |par| {
                let mut out = vec![1.0; columns];
                column_sums(&x, &mut out, true, par);
                out
            };
            assert_close(&sums(Par(1)), &exact, 1e-5);
            assert_eq!(sums(Par(1)), sums(Par(3)));
        }
    }

    #[test]
    fn chunks_apart_make_the_same_sum() {
        let (rows, columns) = (70, 33);
        let x = normals(rows * columns, 5);
        for accumulate in [false, true] {
            let [mut whole, mut parts] = [vec![0.5; columns], vec![0.5; columns]];
            column_sums(&x, &mut whole, accumulate, Par(1));
            // The sums are the last columns of wider rows.
            let mut partials = vec![0.0; rows.div_ceil(CHUNK) * (columns + 2)];
            for (chunk, partial) in x.chunks(CHUNK * columns).zip(partials.chunks_exact_mut(columns + 2)) {
                column_sums(chunk, &mut partial[2..], false, Par(1));
            }
            add_chunks((&partials, columns + 2), 2, &mut parts, accumulate);
            assert_eq!(whole, parts);
            // Row by row, in two parts each, over what was there.
            let (chunks, mut parts) = (Chunks::new(&mut partials, columns + 2), vec![0.5; columns]);
            for (row, line) in x.chunks(columns).enumerate() {
                // SAFETY: nobody else is here.
                unsafe { (chunks.add(row, 2, &line[..9]), chunks.add(row, 11, &line[9..])) };
            }
            add_chunks((&partials, columns + 2), 2, &mut parts, accumulate);
            assert_eq!(whole, parts);
        }
    }
}
