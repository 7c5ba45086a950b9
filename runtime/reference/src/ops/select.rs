//! Selection ops: order, windows, indices, masks. Each element of a result is found by its indices in all dims.

use crate::real::Real;
use crate::tensor::{Array, Tensor};
use ir::ops::{CompareKind, Frame, Selected};

/// The indices in all dims of an element of a tensor.
fn indices(mut place: usize, dims: &[usize]) -> Vec<usize> {
    let mut indices = vec![0; dims.len()];
    for dim in (0..dims.len()).rev() {
        indices[dim] = place % dims[dim];
        place /= dims[dim];
    }
    indices
}

/// The place of the element with these indices.
fn place(indices: &[usize], dims: &[usize]) -> usize {
    indices.iter().zip(dims).fold(0, |place, (index, size)| place * size + index)
}

/// Element i of the dim is `x[n - 1 - i]`.
pub(super) fn reverse<R: Real>(x: &Tensor<R>, dim: usize) -> Tensor<R> {
    Tensor::from_fn(&x.dims, |at| {
        let mut at = indices(at, &x.dims);
        at[dim] = x.dims[dim] - 1 - at[dim];
        x.data[place(&at, &x.dims)]
    })
}

/// The place in the whole of an element of a window.
fn of_window(frame: Frame, mut at: Vec<usize>, whole: &[usize]) -> usize {
    let within = at.remove(frame.dim + 1) * frame.dilation as usize;
    at[frame.dim] = at[frame.dim] * frame.stride as usize + within;
    place(&at, whole)
}

/// Element `(o, k)` is that at `o stride + k dilation`.
pub(super) fn windows<R: Real>(x: &Tensor<R>, frame: Frame, dims: &[usize]) -> Tensor<R> {
    Tensor::from_fn(dims, |at| x.data[of_window(frame, indices(at, dims), &x.dims)])
}

/// The sum over the windows that have an element.
pub(super) fn fold<R: Real>(y: &Tensor<R>, frame: Frame, dims: &[usize]) -> Tensor<R> {
    let mut out = Tensor::zeros(dims);
    for (at, &element) in y.data.iter().enumerate() {
        out.data[of_window(frame, indices(at, &y.dims), dims)] += element;
    }
    out
}

/// The place in the whole of a selected element, if its index is within.
fn of_index(at: Selected, index: &Tensor<i32>, selected: &[usize], whole: &[usize]) -> Option<usize> {
    let end = at.dim + index.dims.len() - at.batch;
    let picks = [&selected[..at.batch], &selected[at.dim..end]].concat();
    let entry = usize::try_from(index.data[place(&picks, &index.dims)]).ok().filter(|&entry| entry < whole[at.dim])?;
    Some(place(&[&selected[..at.dim], &[entry], &selected[end..]].concat(), whole))
}

/// The entries at the indices; 0 where there is none.
pub(super) fn take<R: Real>(x: &Tensor<R>, index: &Tensor<i32>, at: Selected, dims: &[usize]) -> Tensor<R> {
    Tensor::from_fn(dims, |element| {
        of_index(at, index, &indices(element, dims), &x.dims).map_or(R::zero(), |place| x.data[place])
    })
}

/// At each entry the sum of what has its index.
pub(super) fn scatter_add<R: Real>(y: &Tensor<R>, index: &Tensor<i32>, at: Selected, dims: &[usize]) -> Tensor<R> {
    let mut out = Tensor::zeros(dims);
    for (element, &y_at) in y.data.iter().enumerate() {
        if let Some(place) = of_index(at, index, &indices(element, &y.dims), dims) {
            out.data[place] += y_at;
        }
    }
    out
}

/// Start of a range of `length` in a dim of `size`: the given one, or the nearest at which the range fits.
pub(super) fn begin(start: i32, length: usize, size: usize) -> usize {
    usize::try_from(start).unwrap_or(0).min(size - length)
}

/// Each element is its index along a dim.
pub(super) fn iota(dim: usize, dims: &[usize]) -> Tensor<i32> {
    Tensor::from_fn(dims, |at| indices(at, dims)[dim] as i32)
}

/// 1 where the comparison holds, else 0.
pub(super) fn compare<R: Real>(kind: CompareKind, a: &Array<R>, b: &Array<R>) -> Result<Tensor<i32>, String> {
    fn holds<T: PartialOrd + Copy>(kind: CompareKind, a: &Tensor<T>, b: &Tensor<T>) -> Tensor<i32> {
        Tensor::from_fn(&a.dims, |at| {
            let (a, b) = (a.data[at], b.data[at]);
            i32::from(match kind {
                CompareKind::Less => a < b,
                CompareKind::LessEqual => a <= b,
                CompareKind::Equal => a == b,
            })
        })
    }
    match (a, b) {
        (Array::Int(a), Array::Int(b)) => Ok(holds(kind, a, b)),
        _ => Ok(holds(kind, a.real()?, b.real()?)),
    }
}

/// a where the mask is not 0 (is 0, with `not`), else b or 0.
pub(super) fn select<R: Real>(mask: &Tensor<i32>, not: bool, a: &Tensor<R>, b: Option<&Tensor<R>>) -> Tensor<R> {
    Tensor::from_fn(&a.dims, |at| match (mask.data[at] != 0) != not {
        true => a.data[at],
        false => b.map_or(R::zero(), |b| b.data[at]),
    })
}
