//! Quantisation: blocks of a tensor have a scale each. What is stored in 8 bits is rounded where results are.

use crate::reference::real::Real;
use crate::reference::round::largest;
use crate::reference::tensor::{Tensor, strides};
use ir::types::DType;

/// The place of the scale of each element: the scales along a dim stand for equally many indices.
fn places(dims: &[usize], scales: &[usize]) -> impl Fn(usize) -> usize {
    let (dims, counts, strides) = (dims.to_vec(), scales.to_vec(), strides(scales));
    move |mut element| {
        let mut place = 0;
        for dim in (0..dims.len()).rev() {
            place += element % dims[dim] * counts[dim] / dims[dim] * strides[dim];
            element /= dims[dim];
        }
        place
    }
}

/// The largest size of an element of each block.
pub(super) fn absmax<R: Real>(x: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
    let (mut out, place) = (Tensor::zeros(dims), places(&x.dims, dims));
    for (element, &x) in x.data.iter().enumerate() {
        let place = place(element);
        out.data[place] = R::max(out.data[place], R::max(x, -x));
    }
    out
}

/// The least power of two, from 2^-126 on, by which sizes are divided to be within a format.
pub(super) fn scale_for<R: Real>(max: &Tensor<R>, to: DType) -> Result<Tensor<R>, String> {
    let largest = largest(to).ok_or_else(|| format!("{} has no largest number", to.name()))?;
    Ok(max.map(|max| {
        let mut scale = 2f64.powi(-126);
        while max.to_f64().is_finite() && max.to_f64() > largest * scale {
            scale *= 2.0;
        }
        if max.to_f64().is_finite() { R::of(scale) } else { max }
    }))
}

/// Each element over the scale of its block, and at most the largest number of the format.
pub(super) fn quotients<R: Real>(x: &Tensor<R>, scale: &Tensor<R>, to: DType) -> Result<Tensor<R>, String> {
    let largest = R::of(largest(to).ok_or_else(|| format!("{} has no largest number", to.name()))?);
    let place = places(&x.dims, &scale.dims);
    Ok(Tensor::from_fn(&x.dims, |element| {
        let quotient = x.data[element] / scale.data[place(element)];
        if quotient.to_f64().is_nan() { quotient } else { quotient.min(largest).max(-largest) }
    }))
}

/// Each element times the scale of its block.
pub(super) fn times<R: Real>(x: &Tensor<R>, scale: &Tensor<R>) -> Tensor<R> {
    let place = places(&x.dims, &scale.dims);
    Tensor::from_fn(&x.dims, |element| x.data[element] * scale.data[place(element)])
}
