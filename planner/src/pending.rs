//! Where a pinned result has an axis that operands have on a contracted factor: either the operands are resharded, or the sum
//! stays pending and the result is resharded. That which moves fewer bytes is done; the pin holds either way. In forwards
//! alone: what a backward exchanges, several of its statements read.

use crate::assign::{Operand, ResultSite};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::rule::{DimLetters, Instance, TensorLetters, holds};
use ir::types::{PartialKind, Type};

/// A statement whose pins may meet contracted factors.
pub(crate) struct Contest<'a> {
    /// The mesh.
    pub(crate) mesh: &'a Mesh,
    /// Its rule.
    pub(crate) instance: &'a Instance,
    /// Its operands.
    pub(crate) operands: &'a [Operand<'a>],
    /// Its results.
    pub(crate) results: &'a [ResultSite<'a>],
}

impl Contest<'_> {
    /// Of these axes, on contracted factors of operands, those that stay there though a result is pinned to them.
    pub(crate) fn left_pending(&self, contracted: &Axes) -> Axes {
        contracted.iter().filter(|&axis| self.stays(axis)).collect()
    }

    fn stays(&self, axis: AxisId) -> bool {
        let pinned = self.factors(axis, false);
        let states = |result: &ResultSite<'_>| result.hint.found && result.pin.is_stated && result.pin.has(axis);
        let is_pinned = self.results.iter().any(states);
        let summed = self.factors(axis, true);
        is_pinned && !summed.is_empty() && self.bytes_pending(axis, &summed) < self.bytes_moved(axis, &pinned)
    }

    /// The factors with the axis: of operands those that leave a sum, or of pinned results.
    fn factors(&self, axis: AxisId, summed: bool) -> DimLetters {
        if summed {
            let dims = self.operands.iter().zip(&self.instance.operands).flat_map(|(operand, letters)| {
                operand.ty.dims.iter().zip(letters).filter(|(dim, _)| dim.axes.contains(axis))
            });
            return dims.flat_map(|(_, letters)| letters.iter().copied()).filter(|&l| self.leaves_sum(l)).collect();
        }
        let dims = self.results.iter().zip(&self.instance.results).flat_map(|(result, letters)| {
            (0..letters.len())
                .filter(move |&place| result.pin.of(place).contains(axis))
                .map(move |place| &letters[place])
        });
        dims.flat_map(|letters| letters.iter().copied()).collect()
    }

    fn leaves_sum(&self, factor: usize) -> bool {
        let letter = &self.instance.letters[factor];
        let is_kept = self.instance.results.iter().all(|tensor| holds(tensor, factor));
        !is_kept && !letter.whole && letter.partial == Some(PartialKind::Sum)
    }

    /// What moves where operands give up the axis on contracted factors: among devices where they get it on a pinned one,
    /// else all is gathered.
    fn bytes_moved(&self, axis: AxisId, pinned: &[usize]) -> u64 {
        let gives_up = |letters: &DimLetters| letters.iter().any(|&factor| self.leaves_sum(factor));
        self.bytes_of_operands(axis, gives_up, pinned)
    }

    /// What moves where the sum is reduced later: the results, and operands that have the axis on a factor that is kept.
    fn bytes_pending(&self, axis: AxisId, summed: &[usize]) -> u64 {
        let results = self.results.iter().filter(|result| result.pin.has(axis));
        let gives_up = |letters: &DimLetters| letters.iter().all(|&factor| !self.leaves_sum(factor));
        let reduced: u64 = results.map(|result| self.local(&result.pin.apply(result.ty)) * self.devices(axis)).sum();
        reduced + self.bytes_of_operands(axis, gives_up, summed)
    }

    fn bytes_of_operands(&self, axis: AxisId, gives_up: impl Fn(&DimLetters) -> bool, onto: &[usize]) -> u64 {
        let moved = |letters: &TensorLetters, ty: &Type| {
            let has = |(dim, letters): (&ir::types::Dim, &DimLetters)| dim.axes.contains(axis) && gives_up(letters);
            if !ty.dims.iter().zip(letters).any(has) {
                return 0;
            }
            let stays_sharded = onto.iter().any(|&factor| holds(letters, factor));
            self.local(ty) * if stays_sharded { 1 } else { self.devices(axis) }
        };
        self.instance.operands.iter().zip(self.operands).map(|(letters, operand)| moved(letters, operand.ty)).sum()
    }

    fn local(&self, ty: &Type) -> u64 {
        ty.local_bytes(self.mesh)
    }

    fn devices(&self, axis: AxisId) -> u64 {
        self.mesh.axes[axis].size
    }
}
