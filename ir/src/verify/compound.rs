//! The axes of factors that form no dim alone.

use crate::mesh::Axes;
use crate::rule::{Instance, TensorFactors};
use crate::types::Type;

/// Adds the axes of factors that only compound dims have. A dim whose last factor needs replication has those of the factor before it; any
/// other one, as the elements of a block are, those that the dim has after the axes of the other factors.
pub(super) fn add_compound<'a, T: Iterator<Item = (&'a TensorFactors, &'a &'a Type)>>(
    instance: &Instance,
    tensors: impl Fn() -> T,
    axes: &mut [Option<Axes>],
) {
    let dims = || tensors().flat_map(|(factors, ty)| factors.iter().zip(&ty.dims));
    for (factors, dim) in dims() {
        if let [outer, last] = factors[..]
            && instance.factors[last].marked_replicated
        {
            axes[outer].get_or_insert_with(|| dim.axes.clone());
        }
    }
    for (factors, dim) in dims() {
        let Some((&last, outer)) = factors.split_last().filter(|(_, outer)| !outer.is_empty()) else { continue };
        let before: usize = outer.iter().filter_map(|&factor| axes[factor].as_ref()).map(Axes::len).sum();
        axes[last].get_or_insert_with(|| dim.axes.iter().skip(before).collect());
    }
}
