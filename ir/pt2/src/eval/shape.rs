//! Ops that move elements.

use super::call::{Call, wrap};
use super::tensor::{ElementKind, Item, Tensor};
use crate::refusal::{Refusal, contradiction};

type Results = Result<Vec<Item>, Refusal>;

/// The results of an op that moves elements; none for another op.
pub(super) fn evaluate(call: &Call<'_>) -> Option<Results> {
    let one = |tensor: Result<Tensor, Refusal>| Some(tensor.map(|tensor| vec![tensor.into()]));
    match call.node.family() {
        "aten.view" | "aten.reshape" | "aten._unsafe_view" => one(reshape(call)),
        "aten.flatten" => one(flatten(call)),
        "aten.unflatten" => one(unflatten(call)),
        "aten.unsqueeze" => one(unsqueeze(call)),
        "aten.squeeze" => one(squeeze(call)),
        "aten.expand" => one(expand(call)),
        "aten.transpose" | "aten.t" | "aten.numpy_T" | "aten.permute" => one(permute(call)),
        "aten.slice" => one(slice(call)),
        "aten.select" => one(select(call)),
        "aten.split" | "aten.split_with_sizes" | "aten.chunk" => Some(split(call)),
        "aten.unbind" => Some(unbind(call)),
        "aten.cat" | "aten.concat" => one(cat(call)),
        "aten.stack" => one(stack(call)),
        "aten.index" => one(index(call)),
        "aten.tril" | "aten.triu" => one(triangle(call)),
        "aten.repeat" => one(repeat(call)),
        _ => None,
    }
}

/// Sizes of a view of `count` elements, one of which may be -1.
pub(crate) fn viewed(sizes: &[i64], count: usize) -> Result<Vec<usize>, Refusal> {
    let known = sizes.iter().filter(|&&size| size != -1).fold(1, |all: i64, &size| all.saturating_mul(size));
    let rest = if known > 0 { count as i64 / known } else { 0 };
    let sizes: Vec<usize> = sizes.iter().map(|&size| if size == -1 { rest } else { size }.max(0) as usize).collect();
    let fits = sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size)) == Some(count);
    if fits { Ok(sizes) } else { Err(contradiction(format!("{count} elements are no view of sizes {sizes:?}"))) }
}

fn reshape(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let name = if call.node.arg("size").is_some() { "size" } else { "shape" };
    Ok(Tensor::new(x.kind, viewed(&call.ints(name)?, x.data.len())?, x.data.clone()))
}

fn flatten(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let rank = x.sizes.len();
    let (from, to) = (call.dim("start_dim", 0, rank)?, call.dim("end_dim", -1, rank)?);
    let mut sizes = x.sizes.clone();
    if from < to {
        let product = sizes[from..=to].iter().product();
        sizes.splice(from..=to, [product]);
    }
    Ok(Tensor::new(x.kind, sizes, x.data.clone()))
}

fn unflatten(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let inner = viewed(&call.ints("sizes")?, *x.sizes.get(dim).ok_or(contradiction("a scalar is split"))?)?;
    let mut sizes = x.sizes.clone();
    sizes.splice(dim..=dim, inner);
    Ok(Tensor::new(x.kind, sizes, x.data.clone()))
}

fn unsqueeze(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let mut sizes = x.sizes.clone();
    sizes.insert(call.dim("dim", 0, sizes.len() + 1)?, 1);
    Ok(Tensor::new(x.kind, sizes, x.data.clone()))
}

/// The dim of an op that takes one, or a list of one.
pub(crate) fn only_dim(call: &Call<'_>, rank: usize) -> Result<usize, Refusal> {
    match call.ints("dim")?.as_slice() {
        &[dim] => wrap(dim, rank),
        dims => Err(format!("`{}` of the dims {dims:?} is not supported", call.node.family()).into()),
    }
}

fn squeeze(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let mut sizes = x.sizes.clone();
    if call.node.arg("dim").is_none() {
        sizes.retain(|&size| size != 1);
    } else {
        let dim = only_dim(call, sizes.len())?;
        if sizes.get(dim) == Some(&1) {
            sizes.remove(dim);
        }
    }
    Ok(Tensor::new(x.kind, sizes, x.data.clone()))
}

fn expand(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, sizes) = (call.tensor("self")?, call.ints("size")?);
    let skipped =
        sizes.len().checked_sub(x.sizes.len()).ok_or(contradiction("an expansion has fewer dims than its operand"))?;
    let sizes = sizes
        .iter()
        .enumerate()
        .map(|(d, &size): (usize, &i64)| match size {
            -1 if d >= skipped => Ok(x.sizes[d - skipped]),
            size if size >= 0 && (d < skipped || [1, size as usize].contains(&x.sizes[d - skipped])) => {
                Ok(size as usize)
            }
            size => Err(contradiction(format!("a dim cannot be expanded to {size}"))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    Tensor::from_fn(x.kind, &sizes, |index| x.spread(index))
}

/// The order of the operand's dims in the result of a permutation.
pub(crate) fn order(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, Refusal> {
    if call.node.family() == "aten.permute" {
        let order = call.ints("dims")?.into_iter().map(|dim| wrap(dim, rank)).collect::<Result<Vec<_>, _>>()?;
        let is_order = order.len() == rank && (0..rank).all(|dim| order.contains(&dim));
        return if is_order { Ok(order) } else { Err("`dims` is no permutation".into()) };
    }
    let mut order: Vec<usize> = (0..rank).collect();
    if rank > 1 {
        let (a, b) = match call.node.family() {
            "aten.t" | "aten.numpy_T" => (0, 1),
            _ => (call.dim("dim0", 0, rank)?, call.dim("dim1", 0, rank)?),
        };
        order.swap(a, b);
    }
    Ok(order)
}

fn permute(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let order = order(call, x.sizes.len())?;
    let sizes: Vec<usize> = order.iter().map(|&dim| x.sizes[dim]).collect();
    let mut source = vec![0; sizes.len()];
    Tensor::from_fn(x.kind, &sizes, |index| {
        order.iter().zip(index).for_each(|(&dim, &i)| source[dim] = i);
        x.at(&source)
    })
}

/// Start, length and step of a slice of `size` elements.
pub(crate) fn bounds(call: &Call<'_>, size: usize) -> Result<(usize, usize, usize), Refusal> {
    let step = usize::try_from(call.int_or("step", 1)?).ok().filter(|step| *step > 0);
    let step = step.ok_or("a slice with a step below 1")?;
    let place = |at: i64| (if at < 0 { at.saturating_add(size as i64) } else { at }).clamp(0, size as i64) as usize;
    let (start, end) = (place(call.int_or("start", 0)?), place(call.int_or("end", i64::MAX)?));
    Ok((start, end.saturating_sub(start).div_ceil(step), step))
}

fn part(x: &Tensor, dim: usize, start: usize, length: usize) -> Result<Tensor, Refusal> {
    stepped(x, dim, start, length, 1)
}

fn stepped(x: &Tensor, dim: usize, start: usize, length: usize, step: usize) -> Result<Tensor, Refusal> {
    let mut sizes = x.sizes.clone();
    sizes[dim] = length;
    let mut source = vec![0; sizes.len()];
    Tensor::from_fn(x.kind, &sizes, |index| {
        source.copy_from_slice(index);
        source[dim] = start + source[dim] * step;
        x.at(&source)
    })
}

fn slice(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let (start, length, step) = bounds(call, *x.sizes.get(dim).ok_or(contradiction("a slice of a scalar"))?)?;
    stepped(&x, dim, start, length, step)
}

/// The operand of a slice, with a tensor in the place of the slice.
pub(super) fn filled(call: &Call<'_>, part: &Tensor) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let (start, length, step) = bounds(call, *x.sizes.get(dim).ok_or(contradiction("a slice of a scalar"))?)?;
    let mut sizes = x.sizes.clone();
    sizes[dim] = length;
    if step != 1
        || part.sizes.len() > sizes.len()
        || !(0..sizes.len()).all(|d: usize| {
            d.checked_sub(sizes.len() - part.sizes.len()).is_none_or(|own| [1, sizes[d]].contains(&part.sizes[own]))
        })
    {
        return Err(contradiction("a value of other sizes is copied to a slice"));
    }
    let mut source = vec![0; sizes.len()];
    Tensor::from_fn(x.kind, &x.sizes, |at| {
        if !(start..start + length).contains(&at[dim]) {
            return x.at(at);
        }
        source.copy_from_slice(at);
        source[dim] -= start;
        part.spread(&source)
    })
}

fn select(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let size = *x.sizes.get(dim).ok_or(contradiction("an element of a scalar"))?;
    let mut one = part(&x, dim, wrap(call.int("index")?, size)?, 1)?;
    one.sizes.remove(dim);
    Ok(one)
}

/// The lengths of the parts of a dim of `size` elements.
pub(crate) fn lengths(call: &Call<'_>, size: usize) -> Result<Vec<usize>, Refusal> {
    let node = call.node;
    let even = |length: usize| {
        let length = length.max(1);
        (0..size.div_ceil(length).max(1)).map(|at| length.min(size - at * length)).collect::<Vec<_>>()
    };
    let lengths = if node.family() == "aten.chunk" {
        even(size.div_ceil(call.int("chunks")?.max(1) as usize))
    } else if let Some(name) = ["split_sizes", "split_size"].into_iter().find(|name| node.arg(name).is_some()) {
        match call.int(name) {
            Ok(length) => even(length.max(1) as usize),
            Err(_) => call.sizes(name)?,
        }
    } else {
        return Err(contradiction("a split has no sizes"));
    };
    let fits = lengths.iter().sum::<usize>() == size && lengths.len() >= node.outputs.len();
    if fits { Ok(lengths) } else { Err(contradiction(format!("parts of {lengths:?} are not {size} elements"))) }
}

fn split(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let mut start = 0;
    let mut parts = Vec::new();
    for length in lengths(call, *x.sizes.get(dim).ok_or(contradiction("a part of a scalar"))?)? {
        parts.push(part(&x, dim, start, length)?.into());
        start += length;
    }
    Ok(parts)
}

fn unbind(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    (0..*x.sizes.get(dim).ok_or(contradiction("a scalar has no members"))?)
        .map(|at| {
            let mut one = part(&x, dim, at, 1)?;
            one.sizes.remove(dim);
            Ok(one.into())
        })
        .collect()
}

fn cat(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let tensors: Vec<_> = call.tensors("tensors")?.into_iter().flatten().collect();
    let first = tensors.first().ok_or(contradiction("nothing is joined"))?;
    let dim = call.dim("dim", 0, first.sizes.len())?;
    let mut sizes = first.sizes.clone();
    let is_alike = |sizes: &[usize]| {
        sizes.len() == first.sizes.len() && (0..sizes.len()).all(|d| d == dim || sizes[d] == first.sizes[d])
    };
    if sizes.is_empty() || !tensors.iter().all(|tensor| is_alike(&tensor.sizes)) {
        return Err(contradiction("tensors of other sizes are joined"));
    }
    sizes[dim] = tensors.iter().map(|tensor| tensor.sizes[dim]).sum();
    let mut source = vec![0; sizes.len()];
    Tensor::from_fn(first.kind, &sizes, |index| {
        source.copy_from_slice(index);
        for tensor in &tensors {
            if source[dim] < tensor.sizes[dim] {
                return tensor.at(&source);
            }
            source[dim] -= tensor.sizes[dim];
        }
        0.0
    })
}

fn stack(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let tensors: Vec<_> = call.tensors("tensors")?.into_iter().flatten().collect();
    let first = tensors.first().ok_or(contradiction("nothing is stacked"))?;
    let dim = call.dim("dim", 0, first.sizes.len() + 1)?;
    if tensors.iter().any(|tensor| tensor.sizes != first.sizes) {
        return Err(contradiction("tensors of other sizes are stacked"));
    }
    let mut sizes = first.sizes.clone();
    sizes.insert(dim, tensors.len());
    Tensor::from_fn(first.kind, &sizes, |index| {
        let mut source = index.to_vec();
        let which = source.remove(dim);
        tensors[which].at(&source)
    })
}

/// Elements of a dim, by a vector of their places.
fn members(x: &Tensor, dim: usize, places: &Tensor) -> Result<Tensor, Refusal> {
    let size = *x.sizes.get(dim).ok_or(contradiction("a scalar is indexed"))? as f64;
    if places.sizes.len() != 1 || places.data.iter().any(|&at| at < -size || at >= size) {
        return Err(contradiction("an index is out of range, or no vector"));
    }
    let mut sizes = x.sizes.clone();
    sizes[dim] = places.data.len();
    let mut source = vec![0; sizes.len()];
    Tensor::from_fn(x.kind, &sizes, |at| {
        source.copy_from_slice(at);
        let place = places.data[at[dim]];
        source[dim] = (if place < 0.0 { place + size } else { place }) as usize;
        x.at(&source)
    })
}

/// Elements at integer indices, which are broadcast together. Dims without indices must be behind the others.
fn index(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, indices) = (call.tensor("self")?, call.tensors("indices")?);
    if let Some(dim) = indices.iter().position(Option::is_some).filter(|dim| *dim > 0)
        && let [Some(place)] = &indices[dim..]
    {
        return members(&x, dim, place);
    }
    let places: Option<Vec<_>> = indices.into_iter().collect();
    let places = places.filter(|places| places.iter().all(|place| place.kind == ElementKind::Int));
    let places = places.ok_or("only integer indices of the first dims are supported")?;
    let rank = places.iter().map(|place| place.sizes.len()).max().unwrap_or(0);
    let mut sizes = vec![1; rank];
    for place in &places {
        let skipped = rank - place.sizes.len();
        for (d, &size) in place.sizes.iter().enumerate() {
            sizes[skipped + d] = sizes[skipped + d].max(size);
        }
    }
    if places.len() > x.sizes.len()
        || !places.iter().all(|place: &std::rc::Rc<Tensor>| {
            let skipped = rank - place.sizes.len();
            place.sizes.iter().enumerate().all(|(d, &size)| size == 1 || size == sizes[skipped + d])
        })
    {
        return Err(contradiction("indices do not go together"));
    }
    let limits = places.iter().zip(&x.sizes);
    if limits.clone().any(|(place, &size)| place.data.iter().any(|&at| at < -(size as f64) || at >= size as f64)) {
        return Err(contradiction("an index is out of range"));
    }
    sizes.extend(&x.sizes[places.len()..]);
    let mut source = vec![0; x.sizes.len()];
    Tensor::from_fn(x.kind, &sizes, |index| {
        for (d, place) in places.iter().enumerate() {
            let at = place.spread(&index[..rank]);
            source[d] = (if at < 0.0 { at + x.sizes[d] as f64 } else { at }) as usize;
        }
        source[places.len()..].copy_from_slice(&index[rank..]);
        x.at(&source)
    })
}

fn triangle(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, diagonal) = (call.tensor("self")?, call.int_or("diagonal", 0)?);
    let rank = x.sizes.len();
    if rank < 2 {
        return Err(contradiction("a triangle of a tensor of fewer than two dims"));
    }
    let is_lower = call.node.family() == "aten.tril";
    Tensor::from_fn(x.kind, &x.sizes, |index| {
        let ahead = index[rank - 1] as i64 - index[rank - 2] as i64;
        if (ahead <= diagonal) == is_lower || ahead == diagonal { x.at(index) } else { 0.0 }
    })
}

fn repeat(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, times) = (call.tensor("self")?, call.sizes("repeats")?);
    let skipped =
        times.len().checked_sub(x.sizes.len()).ok_or(contradiction("a repetition has fewer dims than its operand"))?;
    let own = |d: usize| if d < skipped { 1 } else { x.sizes[d - skipped] };
    let sizes: Vec<usize> = times.iter().enumerate().map(|(d, &times)| times.saturating_mul(own(d))).collect();
    Tensor::from_fn(x.kind, &sizes, |index| {
        let source: Vec<usize> = (skipped..index.len()).map(|d| index[d] % own(d)).collect();
        x.at(&source)
    })
}
