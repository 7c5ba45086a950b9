//! Ops that make tensors from numbers, and arithmetic of sizes.

use super::call::Call;
use super::tensor::{ElementKind, Item, Tensor, elements};
use crate::refusal::{Refusal, contradiction};

type Results = Result<Vec<Item>, Refusal>;

/// The results of an op that makes a tensor or a size; none for another op.
pub(super) fn evaluate(call: &Call<'_>) -> Option<Results> {
    let node = call.node;
    if let Some(name) = node.op.strip_prefix("_operator.").or_else(|| node.op.strip_prefix("torch.sym_")) {
        return Some(operator(call, name).map(|int| vec![Item::Int(int)]));
    }
    let full = |number: f64, kind: ElementKind| Some(filled(call, number, kind).map(|tensor| vec![tensor.into()]));
    match node.family() {
        "aten.sym_size" => Some(sym_size(call)),
        "aten.arange" => Some(arange(call)),
        "aten.zeros" | "aten.new_zeros" | "aten.zeros_like" => full(0.0, ElementKind::Float),
        "aten.ones" | "aten.new_ones" | "aten.ones_like" => full(1.0, ElementKind::Float),
        "aten.empty" | "aten.new_empty" | "aten.empty_like" | "aten.empty_permuted" => full(0.0, ElementKind::Float),
        "aten.full" | "aten.new_full" | "aten.full_like" => {
            let kind = if let Some(crate::graph::Arg::Float(_)) = node.arg("fill_value") {
                ElementKind::Float
            } else {
                ElementKind::Int
            };
            match call.number("fill_value") {
                Ok(number) => full(number, kind),
                Err(why) => Some(Err(why)),
            }
        }
        "aten.scalar_tensor" => Some(call.number("s").and_then(|number| {
            let kind = call.kind("dtype")?.unwrap_or(ElementKind::Float);
            Ok(vec![Tensor::scalar(kind, number).into()])
        })),
        _ => None,
    }
}

fn operator(call: &Call<'_>, name: &str) -> Result<i64, Refusal> {
    let (a, b) = (call.position(0)?, call.position(1)?);
    let result = match name {
        "add" => a.checked_add(b),
        "sub" => a.checked_sub(b),
        "mul" => a.checked_mul(b),
        "floordiv" => a.checked_div_euclid(b),
        "mod" => a.checked_rem_euclid(b),
        "max" => Some(a.max(b)),
        "min" => Some(a.min(b)),
        "eq" => Some(i64::from(a == b)),
        "ne" => Some(i64::from(a != b)),
        "lt" => Some(i64::from(a < b)),
        "le" => Some(i64::from(a <= b)),
        "gt" => Some(i64::from(a > b)),
        "ge" => Some(i64::from(a >= b)),
        _ => return Err(format!("there is no operator `{name}` of sizes in this version").into()),
    };
    result.ok_or_else(|| contradiction(format!("{name} of the sizes {a} and {b} has no result")))
}

fn sym_size(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    Ok(vec![Item::Int(*x.sizes.get(dim).ok_or(contradiction("a scalar has no sizes"))? as i64)])
}

fn arange(call: &Call<'_>) -> Results {
    let (start, end, step) = (call.number_or("start", 0.0)?, call.number("end")?, call.number_or("step", 1.0)?);
    let count = ((end - start) / step).ceil();
    if step == 0.0 || !count.is_finite() {
        return Err(contradiction("a range has no end"));
    }
    let is_float =
        ["start", "end", "step"].iter().any(|name| matches!(call.node.arg(name), Some(crate::graph::Arg::Float(_))));
    let kind = call.kind("dtype")?.unwrap_or(if is_float { ElementKind::Float } else { ElementKind::Int });
    let sizes = [count.max(0.0) as usize];
    Ok(vec![Tensor::from_fn(kind, &sizes, |index| start + step * index[0] as f64)?.into()])
}

/// A tensor of one number. Its kind is stated, or that of a tensor it is made like, or the default.
fn filled(call: &Call<'_>, number: f64, default: ElementKind) -> Result<Tensor, Refusal> {
    let like = call.optional_tensor("self")?;
    let sizes = match (&like, call.node.family().ends_with("_like")) {
        (Some(like), true) => like.sizes.clone(),
        _ => call.sizes("size")?,
    };
    let kind = call.kind("dtype")?.or(like.map(|like| like.kind)).unwrap_or(default);
    let count = elements(&sizes)?;
    Ok(Tensor::new(kind, sizes, vec![kind.round(number); count]))
}
