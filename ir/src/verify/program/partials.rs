//! Shapes, shardings and pending reductions of one statement, by its op's rule: `shape`, `sharding`, `missing-collective`.

use super::super::compound::{add_compound, factored_dims};
use crate::graph::Stmt;
use crate::mesh::Axes;
use crate::program::Body;
use crate::rule::{Instance, Rule, holds};
use crate::types::{DType, Partial, PartialKind, Type};

type Fault = (&'static str, String);

/// The first violation of a statement.
pub(super) fn check(body: &Body, stmt: &Stmt) -> Option<Fault> {
    let (what, text) = check_types(stmt, &body.types(&stmt.operands), &body.types(&stmt.results)).err()?;
    let results: Vec<String> = stmt.results.iter().map(|&result| format!("%{}", body.value_name(result))).collect();
    Some((what, format!("{} = {}: {text}", results.join(", "), stmt.op.name())))
}

fn check_types(stmt: &Stmt, operands: &[&Type], results: &[&Type]) -> Result<(), Fault> {
    let Some(op) = stmt.op.def() else { return Ok(()) };
    let mut inferred = op.infer(operands).map_err(|why| ("shape", why))?;
    if stmt.accumulate {
        // A gradient is accumulated in f32, whatever the element type of the op.
        inferred.iter_mut().for_each(|ty| ty.dtype = DType::F32);
    }
    if inferred.len() != results.len() || !inferred.iter().zip(results).all(|(ty, result)| ty.same_tensor(result)) {
        return Err(("shape", "the results are not those of the op".to_string()));
    }
    let rule = Rule::parse(&op.rule(operands, results)).map_err(|why| ("sharding", why.to_string()))?;
    let instance = rule.instantiate(operands, results).map_err(|why| ("shape", why.to_string()))?;
    let axes = factor_axes(&instance, operands, results)?;
    let incoming = incoming(&op.facts().linear.groups(operands.len()), operands)?;
    for (place, result) in results.iter().enumerate() {
        let made = instance.partial(place, &axes);
        let over_storage = stored_sum(&instance, place, operands);
        let unreduced = [made, over_storage, incoming.clone()].into_iter().flatten().try_fold(None, join)?;
        if unreduced != result.partial {
            let text = "the type of the result does not state its pending reduction".to_string();
            return Err(("missing-collective", text));
        }
    }
    Ok(())
}

fn join(sum: Option<Partial>, partial: Partial) -> Result<Option<Partial>, Fault> {
    let Some(sum) = sum else { return Ok(Some(partial)) };
    if sum.kind != partial.kind {
        return Err(("missing-collective", "the result is both a partial sum and a partial maximum".to_string()));
    }
    Ok(Some(Partial { kind: sum.kind, axes: sum.axes.union(&partial.axes).sorted() }))
}

/// The axes of each factor, equal in all dims that it forms alone.
fn factor_axes(instance: &Instance, operands: &[&Type], results: &[&Type]) -> Result<Vec<Axes>, Fault> {
    let mut axes: Vec<Option<Axes>> = vec![None; instance.factors.len()];
    let dims = factored_dims(instance, operands, results);
    for (factors, dim) in &dims {
        let &[factor] = factors.as_slice() else { continue };
        let known = axes[factor].get_or_insert_with(|| dim.axes.clone());
        let properties = &instance.factors[factor];
        if *known != dim.axes {
            return Err(("sharding", format!("`{}` has different axes on different tensors", properties.name)));
        }
        if properties.replicated && !dim.axes.is_empty() {
            return Err(("sharding", format!("`{}` needs replication", properties.name)));
        }
    }
    add_compound(instance, &dims, &mut axes);
    Ok(axes.into_iter().map(Option::unwrap_or_default).collect())
}

/// The axes that the operands are partial over: equal within one linear group, none for all others.
fn incoming(linear: &[Vec<usize>], operands: &[&Type]) -> Result<Option<Partial>, Fault> {
    let unreduced: Vec<usize> = (0..operands.len()).filter(|&i| operands[i].partial.is_some()).collect();
    let Some(&first) = unreduced.first() else { return Ok(None) };
    let partial = operands[first].partial.clone();
    let sum = partial.as_ref().is_some_and(|partial| partial.kind == PartialKind::Sum);
    let equal = unreduced.iter().all(|&i| operands[i].partial == partial);
    if sum && equal && linear.contains(&unreduced) {
        return Ok(partial);
    }
    Err(("missing-collective", "the op is not linear in a partial operand".to_string()))
}

/// The result of reducing a flat shard is partial over the flat-shard axes too.
fn stored_sum(instance: &Instance, result: usize, operands: &[&Type]) -> Option<Partial> {
    let (factors, ty) = instance.operands.iter().zip(operands).find(|(_, ty)| !ty.storage.is_empty())?;
    let lacking = factors.iter().flatten().find(|factor| !holds(&instance.results[result], **factor))?;
    let kind = instance.factors[*lacking].partial?;
    Some(Partial { kind, axes: ty.storage.sorted() })
}
