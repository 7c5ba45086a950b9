//! The axes of factors that form no dim alone.

use crate::mesh::Axes;
use crate::rule::TensorFactors;
use crate::types::Type;

/// Adds the axes of the last factors of compound dims where no other dim states them, as none does for the elements of a block: those that
/// the dim has after the axes of the other factors.
pub(super) fn add_innermost<'a>(
    tensors: impl Iterator<Item = (&'a TensorFactors, &'a &'a Type)>,
    axes: &mut [Option<Axes>],
) {
    for (factors, dim) in tensors.flat_map(|(factors, ty)| factors.iter().zip(&ty.dims)) {
        let Some((&last, outer)) = factors.split_last().filter(|(_, outer)| !outer.is_empty()) else { continue };
        let before: usize = outer.iter().filter_map(|&factor| axes[factor].as_ref()).map(Axes::len).sum();
        axes[last].get_or_insert_with(|| dim.axes.iter().skip(before).collect());
    }
}
