//! The results of a head.

use super::chunk::{self, Chunk, take};
use super::pairs::{product, scaled_rows};
use super::{Head, Inputs, Scan};
use crate::cpu::matrix::{Matrix, Target};

/// Elements of scratch memory that [`head`] needs.
pub(super) fn scratch(scan: &Scan) -> usize {
    chunk::size(scan, scan.c) + scan.k * scan.c + scan.rows() * scan.c
}

/// Writes the results of a head.
///
/// # Safety
/// `out` must have the sizes of the values, and nobody else may touch the rows of this head.
pub(super) unsafe fn head(scan: &Scan, x: &Inputs<'_>, head: Head, out: Target, scratch: &mut [f32]) {
    let (mut chunk, mut rest) = Chunk::carve(scan, scan.c, scratch);
    let (k, c) = (scan.k, scan.c);
    let (state, results) = (take(&mut rest, k * c), take(&mut rest, scan.rows() * c));
    scan.first(x, head, state);
    for from in (0..scan.s).step_by(scan.chunk) {
        chunk.load(x, head, from);
        chunk.add(state);
        let n = chunk.n;
        scaled_rows(&chunk.q[..n * k], &chunk.e[..n * scan.decays()], k, chunk.space);
        product([n, c, k], Matrix::rows(&*chunk.space, k), Matrix::rows(&*state, c), results, 1.0, false);
        product([n, c, n], Matrix::rows(&*chunk.p, n), Matrix::rows(&*chunk.x, c), results, 1.0, true);
        for (i, row) in results.chunks_exact(c).take(n).enumerate() {
            let to = out.0.wrapping_add(scan.of_values(head, from + i) * c);
            // SAFETY: the row is in the results, as the caller promises, and is this head's.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to, c) };
        }
        chunk.advance(state);
    }
}
