//! What the rows of a sequence do to the state of a head, and to the gradient by it, without the results of rows.

use super::chunk::{self, Chunk, take};
use super::pairs::{multiply_by, substitute_back};
use super::{Head, Inputs, Recurrence, Scan};
use crate::cpu::matrix::Target;

/// Elements of scratch memory that [`head`] needs.
pub(super) fn scratch(scan: &Scan) -> usize {
    let c = columns(scan);
    chunk::size(scan, c) + scan.k * c + scan.decays()
}

/// Columns of a state, and behind them those of its transition where that is a matrix: what the rows make of an identity.
fn columns(scan: &Scan) -> usize {
    scan.c + if scan.kind == Recurrence::Delta { scan.k } else { 0 }
}

/// Writes the state behind the rows of a head from a zero state, and the transition of states.
///
/// # Safety
/// `end` and `through` must have the sizes of states and transitions, and nobody else may touch those of this head.
pub(super) unsafe fn head(scan: &Scan, x: &Inputs<'_>, head: Head, to: [Target; 2], scratch: &mut [f32]) {
    let all = columns(scan);
    let (mut chunk, mut rest) = Chunk::carve(scan, all, scratch);
    let (state, through) = (take(&mut rest, scan.k * all), take(&mut rest, scan.decays()));
    state.fill(0.0);
    through.fill(1.0);
    for (i, row) in state.chunks_exact_mut(all).enumerate() {
        row[scan.c..].iter_mut().skip(i).take(1).for_each(|x| *x = 1.0);
    }
    for from in (0..scan.s).step_by(scan.chunk) {
        chunk.read(x, head, from);
        chunk.pair_keys();
        chunk.add(state);
        chunk.advance(state);
        multiply_by(through, chunk.through());
    }
    let number = scan.number(head);
    // SAFETY: the state and its transition are in the results, as the caller promises, and are this head's.
    unsafe {
        let end = std::slice::from_raw_parts_mut(to[0].0.add(number * scan.k * scan.c), scan.k * scan.c);
        let size = scan.transitions();
        let of_head = std::slice::from_raw_parts_mut(to[1].0.add(number * size), size);
        if scan.kind != Recurrence::Delta {
            of_head.copy_from_slice(through);
        }
        for (i, row) in state.chunks_exact(all).enumerate() {
            end[i * scan.c..][..scan.c].copy_from_slice(&row[..scan.c]);
            if scan.kind == Recurrence::Delta {
                of_head[i * scan.k..][..scan.k].copy_from_slice(&row[scan.c..]);
            }
        }
    }
}

/// Elements of scratch memory that [`back`] needs.
pub(super) fn scratch_back(scan: &Scan) -> usize {
    chunk::size(scan, scan.c) + 2 * scan.rows() * scan.c + scan.rows()
}

/// Writes the gradient by the state before the rows of a head, of that by their results alone.
///
/// # Safety
/// `to` must have the sizes of states, and nobody else may touch that of this head.
pub(super) unsafe fn back(scan: &Scan, x: &Inputs<'_>, head: Head, dout: &[f32], to: Target, scratch: &mut [f32]) {
    let (mut chunk, mut rest) = Chunk::carve(scan, scan.c, scratch);
    let (n, c, is_delta) = (scan.rows(), scan.c, scan.kind == Recurrence::Delta);
    let (out, added, beta) = (take(&mut rest, n * c), take(&mut rest, n * c), take(&mut rest, n));
    // SAFETY: the state is in the results, as the caller promises, and is this head's.
    let state = unsafe { std::slice::from_raw_parts_mut(to.0.add(scan.number(head) * scan.k * c), scan.k * c) };
    state.fill(0.0);
    for from in (0..scan.s).step_by(scan.chunk).rev() {
        chunk.read(x, head, from);
        for (i, row) in out.chunks_exact_mut(c).take(chunk.n).enumerate() {
            row.copy_from_slice(&dout[scan.of_values(head, from + i) * c..][..c]);
        }
        if is_delta {
            chunk.pair_queries();
            chunk.pair_keys();
            chunk.by_added(out, state, added);
            let n = chunk.n;
            // Nothing reads the gradient by beta, for which alone the values would be needed.
            substitute_back(&chunk.m[..n * n], &chunk.beta[..n], c, &chunk.rest[..n * c], &mut added[..n * c], beta);
        }
        chunk.step_back(out, added, state);
    }
}
