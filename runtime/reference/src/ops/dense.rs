//! Contractions, reductions and shape changes: each is a walk over a box with a stride per array.

use crate::real::Real;
use crate::tensor::{Array, Tensor, strides, walk};
use ir::ops::Equation;
use ir::types::PartialKind;

/// How far a tensor with these letters and dims moves along each letter of a box; 0 along those that it lacks.
pub(super) fn places(letters: &[String], of: &[String], dims: &[usize]) -> Vec<usize> {
    let strides = strides(dims);
    letters.iter().map(|letter| of.iter().position(|l| l == letter).map_or(0, |dim| strides[dim])).collect()
}

/// The letters of the result, then those that are summed, each with its size.
fn letters_of<T>(eq: &Equation, operands: &[&Tensor<T>], result: &[usize]) -> (Vec<String>, Vec<usize>) {
    let mut letters = eq.result.clone();
    let mut sizes = result.to_vec();
    for (operand, tensor) in eq.operands.iter().zip(operands) {
        for (letter, &size) in operand.iter().zip(&tensor.dims) {
            if !letters.contains(letter) {
                letters.push(letter.clone());
                sizes.push(size);
            }
        }
    }
    (letters, sizes)
}

/// The product of the operands, summed over the letters that the result lacks.
pub(super) fn einsum<R: Real>(eq: &Equation, operands: &[&Tensor<R>], dims: &[usize]) -> Tensor<R> {
    let (letters, sizes) = letters_of(eq, operands, dims);
    let mut out = Tensor::zeros(dims);
    let o = places(&letters, &eq.result, dims);
    let a = places(&letters, &eq.operands[0], &operands[0].dims);
    match operands {
        [x, y] => {
            let b = places(&letters, &eq.operands[1], &y.dims);
            // The last letter is a plain loop: it is where the time goes.
            let outer = sizes.len().saturating_sub(1);
            let inner = sizes.get(outer).copied().unwrap_or(1);
            let steps = [&a, &b, &o].map(|places| places.get(outer).copied().unwrap_or(0));
            walk(&sizes[..outer], [&a, &b, &o], [0; 3], &mut |at| {
                multiply_add(&x.data, &y.data, &mut out.data, inner, at, steps);
            });
        }
        _ => walk(&sizes, [&a, &o], [0; 2], &mut |[i, k]| out.data[k] += operands[0].data[i]),
    }
    out
}

/// `out += a b` along one letter of `size` indices, from places `at` in steps.
fn multiply_add<R: Real>(a: &[R], b: &[R], out: &mut [R], size: usize, at: [usize; 3], steps: [usize; 3]) {
    for n in 0..size {
        let [i, j, k] = [0, 1, 2].map(|t| at[t] + n * steps[t]);
        out[k] += a[i] * b[j];
    }
}

/// Element `i` along a dim at `i + by`, and from the end at the front.
pub(super) fn rolled<R: Real>(array: &Array<R>, dim: usize, by: usize) -> Array<R> {
    fn of<T: Copy>(x: &Tensor<T>, dim: usize, by: usize) -> Tensor<T> {
        let (size, stride) = (x.dims[dim], x.strides()[dim]);
        Tensor::from_fn(&x.dims, |at| {
            let place = at / stride % size;
            x.data[at - place * stride + (place + size - by % size) % size * stride]
        })
    }
    match array {
        Array::Real(x) => Array::Real(of(x, dim, by)),
        Array::Int(x) => Array::Int(of(x, dim, by)),
    }
}

/// The sum or the maximum over the letters that the result lacks.
pub(super) fn reduce<R: Real>(kind: PartialKind, eq: &Equation, x: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
    let (letters, sizes) = letters_of(eq, &[x], dims);
    let (from, to) = (places(&letters, &eq.operands[0], &x.dims), places(&letters, &eq.result, dims));
    let (start, join): (R, fn(R, R) -> R) = match kind {
        PartialKind::Sum => (R::zero(), |a, b| a + b),
        PartialKind::Max => (R::of(f64::NEG_INFINITY), R::max),
    };
    let mut out = Tensor::filled(dims, start);
    walk(&sizes, [&from, &to], [0; 2], &mut |[i, o]| out.data[o] = join(out.data[o], x.data[i]));
    out
}

/// Each element of the result is that of the operand at the same letters: a broadcast or a permutation.
pub(super) fn rearrange<T: Copy + Default>(eq: &Equation, x: &Tensor<T>, dims: &[usize]) -> Tensor<T> {
    let mut out = Tensor::filled(dims, T::default());
    let from = places(&eq.result, &eq.operands[0], &x.dims);
    walk(dims, [&from, &out.strides()], [0; 2], &mut |[i, o]| out.data[o] = x.data[i]);
    out
}

/// The same elements in the same order under other dims.
pub(super) fn reshape<T: Copy + Default>(x: &Tensor<T>, dims: &[usize]) -> Tensor<T> {
    Tensor { dims: dims.to_vec(), data: x.data.clone() }
}

/// The indices of a dim from `start` on, one per index of the result.
pub(super) fn slice<T: Copy + Default>(x: &Tensor<T>, dim: usize, start: usize, dims: &[usize]) -> Tensor<T> {
    let mut out = Tensor::filled(dims, T::default());
    let first = start * x.strides()[dim];
    walk(dims, [&x.strides(), &out.strides()], [first, 0], &mut |[i, o]| out.data[o] = x.data[i]);
    out
}

/// The operands one after the other along a dim.
pub(super) fn concat<T: Copy + Default>(operands: &[&Tensor<T>], dim: usize, dims: &[usize]) -> Tensor<T> {
    let mut out = Tensor::filled(dims, T::default());
    let mut start = 0;
    for x in operands {
        place(x, dim, start, &mut out);
        start += x.dims[dim];
    }
    out
}

/// The operand between zeros along a dim, `before` of them ahead.
pub(super) fn pad<T: Copy + Default>(x: &Tensor<T>, dim: usize, before: usize, dims: &[usize]) -> Tensor<T> {
    let mut out = Tensor::filled(dims, T::default());
    place(x, dim, before, &mut out);
    out
}

fn place<T: Copy + Default>(x: &Tensor<T>, dim: usize, start: usize, out: &mut Tensor<T>) {
    let steps = out.strides();
    walk(&x.dims, [&x.strides(), &steps], [0, start * steps[dim]], &mut |[i, o]| out.data[o] = x.data[i]);
}
