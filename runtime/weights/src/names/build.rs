//! Shapes that linear layers have in files: matrices with outputs in rows and inputs in columns.

use crate::layout::{Piece, Stride};

/// The outputs of a linear layer: sizes of the parameter's dims, the distance of their neighbours in rows, and whether
/// neighbours there are rotary pairs.
pub(super) struct Rows<'a> {
    /// The rows of the matrix.
    pub(super) total: u64,
    /// The row of the first output.
    pub(super) first: u64,
    /// The dims.
    pub(super) dims: &'a [(u64, u64)],
    /// The last dim has pairs.
    pub(super) is_paired: bool,
}

impl<'a> Rows<'a> {
    /// Rows without pairs.
    pub(super) fn new(total: u64, first: u64, dims: &'a [(u64, u64)]) -> Rows<'a> {
        Rows { total, first, dims, is_paired: false }
    }
}

/// The same elements in the same order, whatever the dims.
pub(super) fn plain(tensor: String, shape: &[u64], sizes: &[u64]) -> Piece {
    let steps = suffixes(sizes);
    let dims = sizes.iter().zip(steps).map(|(&size, step)| (size, Stride::Even(step as usize))).collect();
    Piece { tensor, shape: shape.to_vec(), first: 0, dims }
}

/// The same tensor.
pub(super) fn same(tensor: String, sizes: &[u64]) -> Piece {
    plain(tensor, sizes, sizes)
}

/// A linear layer of its own: `[inputs.., outputs..]` here, `[outputs, inputs]` there.
pub(super) fn linear(tensor: String, inputs: &[u64], outputs: &[u64]) -> Piece {
    let steps = suffixes(outputs);
    let dims: Vec<(u64, u64)> = outputs.iter().copied().zip(steps).collect();
    part(tensor, inputs, &Rows::new(outputs.iter().product(), 0, &dims))
}

/// Some rows of a linear layer.
pub(super) fn part(tensor: String, inputs: &[u64], rows: &Rows<'_>) -> Piece {
    let columns: u64 = inputs.iter().product();
    let even = |(&size, step): (&u64, u64)| (size, Stride::Even(step as usize));
    let mut dims: Vec<(u64, Stride)> = inputs.iter().zip(suffixes(inputs)).map(even).collect();
    for (at, &(size, step)) in rows.dims.iter().enumerate() {
        let step = (step * columns) as usize;
        let is_paired = rows.is_paired && at + 1 == rows.dims.len();
        dims.push((size, if is_paired { Stride::Paired(step) } else { Stride::Even(step) }));
    }
    Piece { tensor, shape: vec![rows.total, columns], first: (rows.first * columns) as usize, dims }
}

/// Elements with explicit steps.
pub(super) fn stepped(tensor: String, shape: &[u64], first: u64, dims: &[(u64, u64)]) -> Piece {
    let dims = dims.iter().map(|&(size, step)| (size, Stride::Even(step as usize))).collect();
    Piece { tensor, shape: shape.to_vec(), first: first as usize, dims }
}

/// The products of the sizes behind each.
fn suffixes(sizes: &[u64]) -> Vec<u64> {
    (0..sizes.len()).map(|at| sizes[at + 1..].iter().product()).collect()
}
