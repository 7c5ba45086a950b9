//! Infers a decided statement's factor assignment from its types. The result depends on the text alone, so a reparsed
//! dump continues exactly as the model in memory.

use crate::assign::{Assignment, Operand, Passing, reading_order, split};
use ir::mesh::{Axes, Mesh};
use ir::ops::OpDef;
use ir::rule::{Instance, holds};
use ir::types::{Partial, PartialKind, Type};

/// Infers the factor assignment of a decided statement.
pub(crate) fn recover(
    mesh: &Mesh,
    def: &dyn OpDef,
    instance: &Instance,
    operands: &[Operand<'_>],
    results: &[&Type],
) -> Assignment {
    let order = reading_order(operands);
    let operands: Vec<&Type> = operands.iter().map(|operand| operand.ty).collect();
    let mut factors = vec![Axes::none(); instance.factors.len()];
    for (tensor, ty) in instance.results.iter().zip(results) {
        for (dim_factors, dim) in tensor.iter().zip(&ty.dims) {
            for (factor, axes) in split(mesh, instance, dim_factors, &dim.axes) {
                factors[factor] = axes;
            }
        }
    }
    let storage = if instance.pointwise { recover_storage(instance, &operands, results) } else { Axes::none() };
    let Some((place, partial)) =
        results.iter().enumerate().find_map(|(i, ty)| ty.partial.clone().map(|partial| (i, partial)))
    else {
        return Assignment { factors, passing: None, storage };
    };
    let unreduced = contracted(instance, place, &partial);
    // Axes already explained by contracted factors of another result.
    let explained = unreduced.iter().fold(storage.clone(), |all, &factor| all.union(&factors[factor]));
    let mut left = partial.axes.without(&explained);
    let wished = order.iter().flat_map(|&index| instance.operands[index].iter().zip(&operands[index].dims));
    for (dim_factors, dim) in wished {
        for (factor, axes) in split(mesh, instance, dim_factors, &dim.axes) {
            if unreduced.contains(&factor) {
                take_axes(mesh, instance, factor, &axes, &mut factors, &mut left);
            }
        }
    }
    let passing = recover_passing(def, &operands, &partial, &mut left);
    // A partial result without partial operands: shard the first factors whose contraction produces it.
    for &factor in &unreduced {
        let all = left.clone();
        take_axes(mesh, instance, factor, &all, &mut factors, &mut left);
    }
    Assignment { factors, passing, storage }
}

fn recover_storage(instance: &Instance, operands: &[&Type], results: &[&Type]) -> Axes {
    let shaped = instance.results.iter().zip(results).find(|(tensor, _)| !tensor.is_empty());
    match shaped {
        Some((_, ty)) => ty.storage.clone(),
        None => operands.iter().map(|ty| ty.storage.clone()).find(|storage| !storage.is_empty()).unwrap_or_default(),
    }
}

/// Factors whose sharding leaves the result partial in this way.
fn contracted(instance: &Instance, result: usize, partial: &Partial) -> Vec<usize> {
    let factors = instance.factors.iter().enumerate();
    let summed = factors.filter(|(_, factor)| factor.partial == Some(partial.kind) && !factor.replicated);
    summed.map(|(at, _)| at).filter(|&at| !holds(&instance.results[result], at)).collect()
}

/// Moves the remaining axes that fit to a factor.
fn take_axes(mesh: &Mesh, instance: &Instance, factor: usize, axes: &Axes, factors: &mut [Axes], left: &mut Axes) {
    for axis in axes.intersection(left).iter() {
        let longer = factors[factor].union(&Axes::one(axis));
        if mesh.size(&longer) > instance.factors[factor].size {
            continue;
        }
        let shorter = std::mem::replace(&mut factors[factor], longer);
        if instance.compounds_hold(factors, mesh) {
            *left = left.without(&Axes::one(axis));
        } else {
            factors[factor] = shorter;
        }
    }
}

fn recover_passing(def: &dyn OpDef, operands: &[&Type], partial: &Partial, left: &mut Axes) -> Option<Passing> {
    if partial.kind == PartialKind::Max || left.is_empty() {
        return None;
    }
    let mut groups = def.facts().linear.groups(operands.len()).into_iter();
    let group = groups.find(|group| {
        let mut partials = group.iter().filter_map(|&index| operands[index].partial.as_ref());
        partials.any(|partial| partial.kind == PartialKind::Sum)
    })?;
    let axes = if group.len() == 1 { left.intersection(&operands[group[0]].partial_axes()) } else { left.clone() };
    *left = left.without(&axes);
    (!axes.is_empty())
        .then(|| Passing { operands: group, partial: Partial { kind: PartialKind::Sum, axes: axes.sorted() } })
}
