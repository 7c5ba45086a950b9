//! Reads back from the types how a decided statement is sharded: a function of the text alone, so that a dump goes on as
//! the model in memory does.

use crate::assign::{Assignment, Operand, Passing, reading_order, split};
use ir::mesh::{Axes, Mesh};
use ir::ops::OpDef;
use ir::rule::{Instance, Letter, holds};
use ir::types::{Partial, PartialKind, Type};

/// Reads back how a decided statement is sharded.
pub(crate) fn recover(
    mesh: &Mesh,
    def: &dyn OpDef,
    instance: &Instance,
    operands: &[Operand<'_>],
    results: &[&Type],
) -> Assignment {
    let order = reading_order(operands);
    let operands: Vec<&Type> = operands.iter().map(|operand| operand.ty).collect();
    let mut letters = vec![Axes::none(); instance.letters.len()];
    for (tensor, ty) in instance.results.iter().zip(results) {
        for (dim_letters, dim) in tensor.iter().zip(&ty.dims) {
            for (letter, axes) in split(mesh, instance, dim_letters, &dim.axes) {
                letters[letter] = axes;
            }
        }
    }
    let storage = if instance.pointwise { recover_storage(instance, &operands, results) } else { Axes::none() };
    let Some((place, partial)) =
        results.iter().enumerate().find_map(|(i, ty)| ty.partial.clone().map(|partial| (i, partial)))
    else {
        return Assignment { letters, passing: None, storage };
    };
    let unreduced = contracted(instance, place, &partial);
    // What the letters of another result leave pending here is explained already.
    let explained = unreduced.iter().fold(storage.clone(), |all, &letter| all.union(&letters[letter]));
    let mut left = partial.axes.without(&explained);
    let wished = order.iter().flat_map(|&index| instance.operands[index].iter().zip(&operands[index].dims));
    for (dim_letters, dim) in wished {
        if let [letter] = dim_letters.as_slice()
            && unreduced.contains(letter)
        {
            take_axes(mesh, instance, *letter, &dim.axes, &mut letters, &mut left);
        }
    }
    let passing = recover_passing(def, &operands, &partial, &mut left);
    // A debt that nothing brings: the first letters that may owe it are cut.
    for &letter in &unreduced {
        let all = left.clone();
        take_axes(mesh, instance, letter, &all, &mut letters, &mut left);
    }
    Assignment { letters, passing, storage }
}

fn recover_storage(instance: &Instance, operands: &[&Type], results: &[&Type]) -> Axes {
    let shaped = instance.results.iter().zip(results).find(|(tensor, _)| !tensor.is_empty());
    match shaped {
        Some((_, ty)) => ty.storage.clone(),
        None => operands.iter().map(|ty| ty.storage.clone()).find(|storage| !storage.is_empty()).unwrap_or_default(),
    }
}

/// The letters that leave this debt on the result when they are sharded.
fn contracted(instance: &Instance, result: usize, partial: &Partial) -> Vec<usize> {
    let owes = |letter: &Letter| letter.partial == Some(partial.kind) && !letter.whole;
    let letters = 0..instance.letters.len();
    letters.filter(|&l| owes(&instance.letters[l]) && !holds(&instance.results[result], l)).collect()
}

/// Moves those of the axes that are left, and fit, to a letter.
fn take_axes(mesh: &Mesh, instance: &Instance, letter: usize, axes: &Axes, letters: &mut [Axes], left: &mut Axes) {
    for axis in axes.intersection(left).iter() {
        let longer = letters[letter].union(&Axes::one(axis));
        if mesh.size(&longer) <= instance.letters[letter].size {
            letters[letter] = longer;
            *left = left.without(&Axes::one(axis));
        }
    }
}

fn recover_passing(def: &dyn OpDef, operands: &[&Type], partial: &Partial, left: &mut Axes) -> Option<Passing> {
    if partial.kind == PartialKind::Max || left.is_empty() {
        return None;
    }
    let brings = |index: &usize| operands[*index].partial.as_ref().is_some_and(|d| d.kind == PartialKind::Sum);
    let group = def.linear(operands.len()).into_iter().find(|group| group.iter().any(brings))?;
    let axes = if group.len() == 1 { left.intersection(&operands[group[0]].partial_axes()) } else { left.clone() };
    *left = left.without(&axes);
    (!axes.is_empty())
        .then(|| Passing { operands: group, partial: Partial { kind: PartialKind::Sum, axes: axes.sorted() } })
}
