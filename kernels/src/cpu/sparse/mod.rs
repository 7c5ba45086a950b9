//! Attention to chosen keys, and the indexer that chooses them. A choice is a row of places of keys; other numbers name none.
//!
//! A unit of work is a query, whose keys are gathered into scratch memory and multiplied there. Gradients of keys are sums over
//! queries, whose unit of work is a block of keys. It computes the scores of its own keys again: no two threads add to one row, and
//! no order of sums depends on their number.

mod attention;
mod indexer;
mod loss;
mod select;

pub use attention::{ChosenAttention, Gradients, Inputs, Saved};
pub use indexer::{Cotangents, Indexer, IndexerInputs};
pub use loss::{index_loss, index_loss_grad};
pub use select::{Places, select};

use super::matrix::{Matrix, Target};
use super::par::{FLOPS, Par, Rows};
use std::ops::Range;

/// Keys of a block whose gradients one thread sums.
const BLOCK: usize = 256;

/// Elements of a target.
///
/// # Safety
/// They are in the slice of the target, and nobody else touches them while the part is in use.
unsafe fn part<'a>(to: Target, start: usize, len: usize) -> &'a mut [f32] {
    // SAFETY: by the caller's contract.
    unsafe { std::slice::from_raw_parts_mut(to.0.add(start), len) }
}

/// Units of work, the floating-point operations of one, and the elements of scratch memory that it needs.
#[derive(Clone, Copy)]
struct Load {
    units: usize,
    flops: usize,
    scratch: usize,
}

/// Gives each thread every n-th unit of work (n threads), and scratch memory of its own.
fn share(load: Load, par: Par, scratch: &mut Vec<f32>, work: &(impl Fn(usize, &mut [f32]) + Sync)) {
    let Load { units, flops, scratch: size } = load;
    let (threads, size) = (par.threads(units.saturating_mul(flops) / FLOPS).min(units.max(1)), size.max(1));
    if scratch.len() < threads * size {
        scratch.resize(threads * size, 0.0);
    }
    let scratch = Rows(&mut scratch[..threads * size], size);
    Par(threads).rows(threads, usize::MAX, scratch, &|range, scratch| {
        for (thread, scratch) in range.zip(scratch.0.chunks_exact_mut(size)) {
            (thread..units).step_by(threads).for_each(|unit| work(unit, scratch));
        }
    });
}

/// Areas of these sizes at the start of scratch memory.
fn carve<const N: usize>(mut scratch: &mut [f32], sizes: [usize; N]) -> [&mut [f32]; N] {
    sizes.map(|size| scratch.split_off_mut(..size).unwrap_or_default())
}

/// The places of a row of choices whose keys are in a range, and these keys.
fn picks(row: &[i32], keys: Range<usize>) -> impl Iterator<Item = Pick> {
    let picks =
        row.iter().enumerate().map(|(place, &key)| Pick { place, key: usize::try_from(key).unwrap_or(usize::MAX) });
    picks.filter(move |pick| keys.contains(&pick.key))
}

/// A chosen key.
#[derive(Clone, Copy)]
struct Pick {
    /// Its place in the row of choices.
    place: usize,
    /// Its place among the keys.
    key: usize,
}

/// Rows of the same width in a larger tensor.
#[derive(Clone, Copy)]
struct Table<'a> {
    data: &'a [f32],
    width: usize,
    /// From one row to the next.
    stride: usize,
    /// The first row.
    start: usize,
}

impl Table<'_> {
    /// Copies the rows of keys behind each other, and gives their number.
    fn gather(&self, picks: impl Iterator<Item = Pick>, to: &mut [f32]) -> usize {
        let mut count = 0;
        for Pick { key, .. } in picks {
            let from = self.start + key * self.stride;
            to[count * self.width..][..self.width].copy_from_slice(&self.data[from..][..self.width]);
            count += 1;
        }
        count
    }

    /// Adds rows to those of keys.
    ///
    /// # Safety
    /// `to` has the size of the tensor, and nobody else touches these rows now.
    unsafe fn scatter_add(&self, picks: impl Iterator<Item = Pick>, from: &[f32], to: Target) {
        for (Pick { key, .. }, row) in picks.zip(from.chunks_exact(self.width.max(1))) {
            // SAFETY: the row is in the tensor, and this thread's.
            let to = unsafe { part(to, self.start + key * self.stride, self.width) };
            to.iter_mut().zip(row).for_each(|(to, from)| *to += from);
        }
    }
}

/// `out = scale a b` for matrices of contiguous rows, `a` or `b` perhaps transposed.
fn product(size: [usize; 3], a: Matrix<&[f32]>, b: Matrix<&[f32]>, out: &mut [f32], scale: f32) {
    let [m, n, _] = size;
    assert!(out.len() >= m * n, "the product fits");
    // SAFETY: `out` has the rows, and is borrowed for writing.
    unsafe { super::gemm::multiply(size, a, b, Matrix::rows(out.as_mut_ptr(), n), scale, false, 1) };
}
