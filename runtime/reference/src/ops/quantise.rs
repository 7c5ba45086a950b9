//! Quantisation: blocks of a tensor have a scale each. What is stored in 8 bits is rounded where results are.

use super::update::is_finite_step;
use crate::real::Real;
use crate::round::largest;
use crate::tensor::{Tensor, strides};
use ir::ops::DelayedScale;
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

/// The biased exponent of a number in f32: 0 below the normal numbers, 255 for what is not finite.
fn exponent<R: Real>(x: R) -> usize {
    let size = x.to_f64().abs();
    if !size.is_finite() {
        return 255;
    }
    let exponent = (size.to_bits() >> 52) as i64 - 1023;
    (exponent + 127).clamp(0, 255) as usize
}

/// The number of elements of each exponent.
pub(super) fn exponents<R: Real>(x: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
    let mut out = Tensor::zeros(dims);
    x.data.iter().for_each(|&x| out.data[exponent(x)] += R::one());
    out
}

/// The age 0 of what was seen, and one more of all else; all as it was if the step is skipped.
pub(super) fn ages<R: Real>(ages: &Tensor<R>, seen: &Tensor<R>, clip: &Tensor<R>) -> Tensor<R> {
    let counts = is_finite_step(clip.data[0]);
    Tensor::from_fn(&ages.dims, |exponent| match ages.data[exponent] {
        age if !counts => age,
        _ if seen.data[exponent] > R::zero() => R::zero(),
        age => age + R::one(),
    })
}

/// The least power of two by which numbers of the largest exponent of late are divided to be within the format.
pub(super) fn delayed_scale<R: Real>(ages: &Tensor<R>, op: &DelayedScale) -> Result<Tensor<R>, String> {
    let largest = largest(op.to).ok_or_else(|| format!("{} has no largest number", op.to.name()))?;
    let of_late = (0..255).rev().find(|&exponent| ages.data[exponent] < R::of(op.within as f64));
    let scale = of_late.map_or(1.0, |exponent| {
        // All of its numbers are below the next power of two.
        let beyond = 2f64.powi(exponent as i32 - 126);
        let mut scale = 2f64.powi(-126);
        while beyond > largest * scale {
            scale *= 2.0;
        }
        scale
    });
    Ok(Tensor::scalar(R::of(scale)))
}
