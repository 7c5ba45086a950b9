//! Convolutions and zeros around a value.

use super::call::Call;
use super::tensor::{ElementKind, Tensor};
use crate::refusal::{Refusal, contradiction};

/// The sum over channels and elements of a kernel: `[batch, channels, ..]`, `[output, channels / groups, ..]`.
pub(super) fn convolution(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, kernel, bias) = (call.tensor("input")?, call.tensor("weight")?, call.optional_tensor("bias")?);
    let dims = kernel.sizes.len().saturating_sub(2);
    let each = |name: &str, default: i64| -> Result<Vec<usize>, Refusal> {
        let given = if call.node.arg(name).is_some() { call.ints(name)? } else { vec![default] };
        let given = if given.len() == 1 { vec![given[0]; dims] } else { given };
        if given.len() != dims || given.iter().any(|&number| number < 0) {
            return Err(Refusal::argument(name, "has another number of dims"));
        }
        Ok(given.into_iter().map(|number| number as usize).collect())
    };
    let (strides, pads) = (each("stride", 1)?, each("padding", 0)?);
    let groups = call.int_or("groups", 1)?.max(1) as usize;
    let is_plain = !call.flag("transposed") && each("dilation", 1)?.iter().all(|&by| by == 1);
    if kernel.sizes.len() < 3 || bias.as_ref().is_some_and(|bias| bias.data.len() != kernel.sizes[0]) {
        return Err(contradiction("a kernel and its bias do not go together"));
    }
    let fits = x.sizes.len() == dims + 2
        && Some(x.sizes[1]) == kernel.sizes[1].checked_mul(groups)
        && kernel.sizes[0].is_multiple_of(groups);
    if !is_plain || !fits || strides.contains(&0) {
        return Err("a convolution that is transposed, dilated or of other sizes".into());
    }
    let mut sizes = vec![x.sizes[0], kernel.sizes[0]];
    for dim in 0..dims {
        let room = x.sizes[2 + dim].saturating_add(pads[dim].saturating_mul(2));
        let left =
            room.checked_sub(kernel.sizes[2 + dim]).ok_or(contradiction("a kernel is larger than what it reads"))?;
        sizes.push(left / strides[dim] + 1);
    }
    let inner = &kernel.sizes[1..];
    let per_group = kernel.sizes[0] / groups;
    Tensor::from_fn(ElementKind::Float, &sizes, |at| {
        let mut sum = bias.as_ref().map_or(0.0, |bias| bias.data[at[1]]);
        for place in 0..inner.iter().product::<usize>() {
            let mut rest = place;
            let mut index = vec![0; inner.len()];
            for d in (0..inner.len()).rev() {
                (index[d], rest) = (rest % inner[d], rest / inner[d]);
            }
            let channel = at[1] / per_group * inner[0] + index[0];
            let mut source = vec![at[0], channel];
            let inside = (0..dims).all(|d| {
                let from = (at[2 + d] * strides[d]).saturating_add(index[1 + d]);
                source.push(from.wrapping_sub(pads[d]));
                from >= pads[d] && from - pads[d] < x.sizes[2 + d]
            });
            if inside {
                sum += x.at(&source) * kernel.at(&[&[at[1]], index.as_slice()].concat());
            }
        }
        sum
    })
}

/// Zeros before and behind the last dims.
pub(super) fn pad(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, pads) = (call.tensor("self")?, call.ints("pad")?);
    if pads.iter().any(|&pad| pad < 0) || pads.len() % 2 == 1 || pads.len() / 2 > x.sizes.len() {
        return Err(contradiction("a value is padded by other numbers of elements"));
    }
    let value = call.number_or("value", 0.0)?;
    let mut sizes = x.sizes.clone();
    let mut before = vec![0; sizes.len()];
    for (at, pair) in pads.chunks(2).enumerate() {
        let dim = sizes.len() - 1 - at;
        before[dim] = pair[0] as usize;
        sizes[dim] = sizes[dim].saturating_add(pair[0] as usize).saturating_add(pair[1] as usize);
    }
    Tensor::from_fn(x.kind, &sizes, |at| {
        let source: Vec<usize> = at.iter().zip(&before).map(|(&at, &before)| at.wrapping_sub(before)).collect();
        if source.iter().zip(&x.sizes).all(|(at, size)| at < size) { x.at(&source) } else { value }
    })
}
