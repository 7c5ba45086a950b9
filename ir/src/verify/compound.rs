//! The axes of factors that form no dim alone.

use crate::mesh::Axes;
use crate::rule::{DimFactors, Instance};
use crate::types::{Dim, Type};

/// The dims of the tensors of a statement, each with its factors.
pub(super) fn factored_dims<'a>(
    instance: &'a Instance,
    operands: &[&'a Type],
    results: &[&'a Type],
) -> Vec<(&'a DimFactors, &'a Dim)> {
    let tensors = instance.operands.iter().chain(&instance.results).zip(operands.iter().chain(results));
    tensors.flat_map(|(factors, ty)| factors.iter().zip(&ty.dims)).collect()
}

/// Adds the axes of factors that only compound dims have. A dim whose last factor needs replication has those of the factor before it; any
/// other one, as the elements of a block are, those that the dim has after the axes of the other factors.
pub(super) fn add_compound(instance: &Instance, dims: &[(&DimFactors, &Dim)], axes: &mut [Option<Axes>]) {
    for (factors, dim) in dims {
        if let [outer, last] = factors[..]
            && instance.factors[last].marked_replicated
        {
            axes[outer].get_or_insert_with(|| dim.axes.clone());
        }
    }
    for (factors, dim) in dims {
        let Some((&last, outer)) = factors.split_last().filter(|(_, outer)| !outer.is_empty()) else { continue };
        let before: usize = outer.iter().filter_map(|&factor| axes[factor].as_ref()).map(Axes::len).sum();
        axes[last].get_or_insert_with(|| dim.axes.iter().skip(before).collect());
    }
}
