//! Complex numbers, as two tensors: tables of rotary positions have them.

use super::call::Call;
use super::evaluate as evaluate_node;
use super::tensor::{ElementKind, Item, Tensor};
use crate::graph::{Arg, ValueId};
use crate::refusal::{Refusal, contradiction};
use std::rc::Rc;

type Results = Result<Vec<Item>, Refusal>;

/// The results of an op on complex numbers; none for another op.
pub(super) fn evaluate(call: &Call<'_>) -> Option<Results> {
    match call.node.family() {
        "aten.polar" => return Some(polar(call)),
        "aten.view_as_complex" => return Some(paired(call)),
        _ => {}
    }
    let (id, parts) = operand(call, "self").or_else(|| operand(call, "input"))?;
    if call.node.family() == "aten.view_as_real" {
        return Some(neighbours(&parts).map(|tensor| vec![tensor.into()]));
    }
    if let (Some((_, other)), "aten.mul") = (operand(call, "other"), call.node.family()) {
        return Some(product(&parts, &other));
    }
    Some(by_parts(call, id, &parts))
}

fn operand(call: &Call<'_>, name: &str) -> Option<(ValueId, Rc<[Tensor; 2]>)> {
    let Some(Arg::Value(id)) = call.node.arg(name) else { return None };
    match call.value(*id) {
        Ok(Item::Complex(parts)) => Some((*id, parts.clone())),
        _ => None,
    }
}

fn polar(call: &Call<'_>) -> Results {
    let (length, angle) = (call.tensor("abs")?, call.tensor("angle")?);
    if length.sizes != angle.sizes {
        return Err(contradiction("lengths and angles have other sizes"));
    }
    let part = |f: fn(f64) -> f64| {
        let data = length.data.iter().zip(&angle.data).map(|(r, a)| ElementKind::Float.round(r * f(*a))).collect();
        Tensor::new(ElementKind::Float, length.sizes.clone(), data)
    };
    Ok(vec![Item::Complex(Rc::new([part(f64::cos), part(f64::sin)]))])
}

/// Pairs of the last dim.
fn paired(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    let Some((&2, outer)) = x.sizes.split_last() else {
        return Err(contradiction("complex numbers need pairs"));
    };
    let part = |at: usize| Tensor::new(x.kind, outer.to_vec(), x.data.iter().skip(at).step_by(2).copied().collect());
    Ok(vec![Item::Complex(Rc::new([part(0), part(1)]))])
}

fn neighbours(parts: &[Tensor; 2]) -> Result<Tensor, Refusal> {
    let [real, imaginary] = parts;
    let sizes = [real.sizes.as_slice(), &[2]].concat();
    let data = real.data.iter().zip(&imaginary.data).flat_map(|(a, b)| [*a, *b]).collect();
    Ok(Tensor::new(real.kind, sizes, data))
}

fn product(a: &[Tensor; 2], b: &[Tensor; 2]) -> Results {
    let rank = a[0].sizes.len().max(b[0].sizes.len());
    let size = |sizes: &[usize], d: usize| (d + sizes.len()).checked_sub(rank).map_or(1, |d| sizes[d]);
    let sizes: Vec<usize> = (0..rank).map(|d| size(&a[0].sizes, d).max(size(&b[0].sizes, d))).collect();
    let fits = |own: &[usize]| (0..rank).all(|d| [1, sizes[d]].contains(&size(own, d)));
    if !fits(&a[0].sizes) || !fits(&b[0].sizes) {
        return Err(contradiction("complex numbers of other sizes are multiplied"));
    }
    let real = Tensor::from_fn(ElementKind::Float, &sizes, |at| {
        a[0].spread(at) * b[0].spread(at) - a[1].spread(at) * b[1].spread(at)
    })?;
    let imaginary = Tensor::from_fn(ElementKind::Float, &sizes, |at| {
        a[0].spread(at) * b[1].spread(at) + a[1].spread(at) * b[0].spread(at)
    })?;
    Ok(vec![Item::Complex(Rc::new([real, imaginary]))])
}

/// Ops that treat both parts alike: views, and products with real numbers.
fn by_parts(call: &Call<'_>, id: ValueId, parts: &[Tensor; 2]) -> Results {
    const NAMES: [&str; 12] = [
        "aten.mul",
        "aten.to",
        "aten._to_copy",
        "aten.clone",
        "aten.contiguous",
        "aten.view",
        "aten.reshape",
        "aten.unsqueeze",
        "aten.squeeze",
        "aten.expand",
        "aten.slice",
        "aten.index",
    ];
    if !NAMES.contains(&call.node.family()) {
        return Err(format!("`{}` of complex numbers is not supported", call.node.op).into());
    }
    // A conversion names a complex type, which its parts have not.
    if super::is_alias(call.node) {
        return Ok(vec![Item::Complex(Rc::new(parts.clone()))]);
    }
    let mut done = Vec::new();
    for part in parts {
        let mut values = call.values.to_vec();
        values[id.index()] = Some(part.clone().into());
        match evaluate_node(&Call { values: &values, ..*call })?.into_iter().next() {
            Some(Item::Tensor(tensor)) => done.push((*tensor).clone()),
            _ => return Err(contradiction("a part of complex numbers is no tensor")),
        }
    }
    let parts = <[Tensor; 2]>::try_from(done).map_err(|_| contradiction("complex numbers have no parts"))?;
    Ok(vec![Item::Complex(Rc::new(parts))])
}
