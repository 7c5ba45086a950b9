//! Decides an axis that a pinned result and a contracted factor of the operands both use. Either the operands are
//! resharded, or the sum stays partial and the result is resharded. The option that moves fewer bytes wins; the pin
//! holds either way. Only forwards are decided here, since several statements of a backward read one exchanged value.

use crate::assign::{Operand, ResultSite};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::rule::{DimFactors, Instance, holds};
use ir::types::{PartialKind, Type};

/// Statement whose pins may use axes of contracted factors.
pub(crate) struct Contest<'a> {
    /// The mesh.
    pub(crate) mesh: &'a Mesh,
    /// Rule instance of the statement.
    pub(crate) instance: &'a Instance,
    /// Operands of the statement.
    pub(crate) operands: &'a [Operand<'a>],
    /// Results of the statement.
    pub(crate) results: &'a [ResultSite<'a>],
}

impl Contest<'_> {
    /// Contracted axes that stay on the operands although a result is pinned to them.
    pub(crate) fn left_pending(&self, contracted: &Axes) -> Axes {
        contracted.iter().filter(|&axis| self.stays(axis)).collect()
    }

    fn stays(&self, axis: AxisId) -> bool {
        let pinned = self.factors(axis, false);
        let mut results = self.results.iter();
        let is_pinned = results.any(|result| result.hint.found && result.pin.is_stated && result.pin.has(axis));
        let summed = self.factors(axis, true);
        is_pinned && !summed.is_empty() && self.bytes_pending(axis, &summed) < self.bytes_moved(axis, &pinned)
    }

    /// Factors with the axis: contracted factors of operands if `summed`, else factors of pinned results.
    fn factors(&self, axis: AxisId, summed: bool) -> DimFactors {
        if summed {
            let dims = self.operands.iter().zip(&self.instance.operands).flat_map(|(operand, dim_factors)| {
                operand.ty.dims.iter().zip(dim_factors).filter(|(dim, _)| dim.axes.contains(axis))
            });
            return dims
                .flat_map(|(_, dim_factors)| dim_factors.iter().copied())
                .filter(|&l| self.leaves_sum(l))
                .collect();
        }
        let dims = self.results.iter().zip(&self.instance.results).flat_map(|(result, dim_factors)| {
            (0..dim_factors.len())
                .filter(move |&place| result.pin.of(place).contains(axis))
                .map(move |place| &dim_factors[place])
        });
        dims.flat_map(|dim_factors| dim_factors.iter().copied()).collect()
    }

    fn leaves_sum(&self, factor: usize) -> bool {
        let spec = &self.instance.factors[factor];
        let is_kept = self.instance.results.iter().all(|tensor| holds(tensor, factor));
        !is_kept && !spec.replicated && spec.partial == Some(PartialKind::Sum)
    }

    /// Bytes moved if the operands release the axis from contracted factors. An operand that regains the axis on a
    /// pinned factor is exchanged; any other is gathered.
    fn bytes_moved(&self, axis: AxisId, pinned: &[usize]) -> u64 {
        self.bytes_of_operands(axis, |factors| factors.iter().any(|&factor| self.leaves_sum(factor)), pinned)
    }

    /// Bytes moved if the sum is reduced later: the results, and operands with the axis on a factor of all results.
    fn bytes_pending(&self, axis: AxisId, summed: &[usize]) -> u64 {
        let results = self.results.iter().filter(|result| result.pin.has(axis));
        let reduced: u64 = results.map(|result| self.local(&result.pin.apply(result.ty)) * self.devices(axis)).sum();
        reduced + self.bytes_of_operands(axis, |factors| !factors.iter().any(|&factor| self.leaves_sum(factor)), summed)
    }

    fn bytes_of_operands(&self, axis: AxisId, gives_up: impl Fn(&DimFactors) -> bool, onto: &[usize]) -> u64 {
        let mut bytes = 0;
        for (tensor, Operand { ty, .. }) in self.instance.operands.iter().zip(self.operands) {
            let mut dims = ty.dims.iter().zip(tensor);
            if dims.any(|(dim, factors)| dim.axes.contains(axis) && gives_up(factors)) {
                let stays_sharded = onto.iter().any(|&factor| holds(tensor, factor));
                bytes += self.local(ty) * if stays_sharded { 1 } else { self.devices(axis) };
            }
        }
        bytes
    }

    fn local(&self, ty: &Type) -> u64 {
        ty.local_bytes(self.mesh)
    }

    fn devices(&self, axis: AxisId) -> u64 {
        self.mesh.axes[axis].size
    }
}
