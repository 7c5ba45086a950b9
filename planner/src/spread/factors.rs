//! Propagation step of one statement: its tensors agree on axes for each factor of its rule and adopt the missing ones.

use super::graph::Tensor;
use crate::assign::split;
use ir::mesh::{Axes, Mesh};
use ir::rule::{Instance, TensorFactors, holds};
use std::cmp::Reverse;

/// Propagation round, which selects the factors that propagate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Round {
    /// Ops in which every tensor has every factor.
    Same,
    /// Factors that all results of an op have. A broadcast factor propagates only from results.
    Kept,
    /// All factors.
    All,
}

impl Round {
    /// All rounds, in order.
    pub(super) const ALL: [Round; 3] = [Round::Same, Round::Kept, Round::All];
}

/// Statement or block boundary, as a rule over tensors.
pub(super) struct FactorStep {
    /// Tensor indices: operands, then results.
    pub(super) tensors: Vec<usize>,
    instance: Instance,
    indivisible: Vec<bool>,
    expandable: bool,
    same_factors: bool,
    repeats: bool,
}

/// Properties of a step's op.
#[derive(Clone, Copy)]
pub(super) struct StepOp {
    /// True if a decomposition can replace the op.
    pub(super) expandable: bool,
    pub(super) is_view: bool,
}

impl StepOp {
    /// A block boundary or a reshard.
    pub(super) const BOUNDARY: StepOp = StepOp { expandable: false, is_view: true };
}

/// Precedence of a tensor: parameters first, then the larger tensor.
type Weight = (bool, u64);

/// Agreed axes of a factor.
struct Agreement {
    factor: usize,
    axes: Axes,
    tied: bool,
    /// Weight and position of the tensor that proposes the axes.
    source: (Reverse<Weight>, usize),
}

impl FactorStep {
    /// Creates a step over tensors (operands, then results).
    pub(super) fn new(instance: Instance, tensors: Vec<usize>, indivisible: Vec<bool>, op: StepOp) -> FactorStep {
        let mut sides = instance.operands.iter().chain(&instance.results);
        let same_factors = sides.all(|tensor| (0..instance.factors.len()).all(|factor| holds(tensor, factor)));
        let repeats = match instance.operands.as_slice() {
            // A view broadcasts nothing: a factor that a reshape adds has one element.
            [operand] if !op.is_view => {
                instance.results.iter().flatten().flatten().any(|&factor| !holds(operand, factor))
            }
            _ => false,
        };
        FactorStep { tensors, indivisible, expandable: op.expandable, same_factors, repeats, instance }
    }

    /// Runs the step and returns the tensors that changed.
    pub(super) fn run(&self, mesh: &Mesh, tensors: &mut [Tensor], round: Round) -> Vec<usize> {
        let speaks = (0..self.instance.factors.len()).any(|factor| self.speaks(factor, round));
        if !speaks || self.sharded(tensors) == 0 {
            return Vec::new();
        }
        let mut agreed: Vec<Agreement> = self.agreements(mesh, tensors, round).collect();
        agreed.retain(|agreement| !agreement.axes.is_empty());
        agreed.sort_by_key(|agreement| (agreement.source, agreement.factor));
        let count = self.instance.operands.len();
        let hears_results = round == Round::Kept && self.repeats;
        let mut changed = Vec::new();
        for (place, dim_factors) in self.sides().enumerate().skip(count).filter(|_| !hears_results) {
            let result = &mut tensors[self.tensors[place]];
            if self.take_over(mesh, dim_factors, result, &agreed) {
                changed.push(self.tensors[place]);
            }
            self.limit(mesh, dim_factors, result, &mut agreed);
        }
        for (place, dim_factors) in self.sides().enumerate().take(count) {
            if self.take_over(mesh, dim_factors, &mut tensors[self.tensors[place]], &agreed) {
                changed.push(self.tensors[place]);
            }
        }
        changed
    }

    /// Drops axes from the operands that a result cannot adopt, because other dims of the result already have the axes.
    /// The statement could not compute with those axes, and the operands would be resharded.
    fn limit(&self, mesh: &Mesh, dim_factors: &TensorFactors, result: &Tensor, agreed: &mut [Agreement]) {
        let shares = self.shares(mesh, dim_factors, result);
        let used = result.ty.sharded_axes();
        for Agreement { factor, axes, .. } in agreed {
            let (Some(share), Some(place)) =
                (&shares[*factor], dim_factors.iter().position(|factors| factors.contains(factor)))
            else {
                continue;
            };
            if result.ty.dims[place].open && share.is_prefix_of(axes) {
                *axes = axes.iter().take_while(|&axis| !used.contains(axis) || share.contains(axis)).collect();
            }
        }
    }

    /// Marks the open dims of results for which equally weighted tensors propose different axes.
    pub(super) fn mark_ties(&self, mesh: &Mesh, tensors: &[Tensor], tied: &mut [Vec<bool>]) {
        if self.sharded(tensors) < 2 {
            return;
        }
        for agreement in self.agreements(mesh, tensors, Round::All).filter(|agreement| agreement.tied) {
            for (dim_factors, &tensor) in
                self.instance.results.iter().zip(&self.tensors[self.instance.operands.len()..])
            {
                for (place, factors) in dim_factors.iter().enumerate() {
                    tied[tensor][place] |= factors.contains(&agreement.factor) && tensors[tensor].ty.dims[place].open;
                }
            }
        }
    }

    /// Number of the step's tensors that have axes.
    fn sharded(&self, tensors: &[Tensor]) -> usize {
        self.tensors.iter().filter(|&&id| tensors[id].ty.dims.iter().any(|dim| !dim.axes.is_empty())).count()
    }

    /// Precedence of the tensor at a position.
    fn weight(&self, tensors: &[Tensor], place: usize) -> Weight {
        let tensor = &tensors[self.tensors[place]];
        (tensor.param, tensor.ty.elements())
    }

    fn sides(&self) -> impl Iterator<Item = &TensorFactors> {
        self.instance.operands.iter().chain(&self.instance.results)
    }

    fn agreements<'s>(
        &'s self,
        mesh: &'s Mesh,
        tensors: &'s [Tensor],
        round: Round,
    ) -> impl Iterator<Item = Agreement> + 's {
        let shares: Vec<Vec<Option<Axes>>> = self
            .sides()
            .zip(&self.tensors)
            .map(|(dim_factors, &id)| self.shares(mesh, dim_factors, &tensors[id]))
            .collect();
        let factors = (0..self.instance.factors.len()).filter(move |&factor| self.speaks(factor, round));
        factors.filter_map(move |factor| self.agreement(tensors, &shares, factor, round))
    }

    /// Returns whether axes propagate along a factor in a round.
    fn speaks(&self, factor: usize, round: Round) -> bool {
        let spec = &self.instance.factors[factor];
        let is_kept = self.instance.results.iter().all(|tensor| holds(tensor, factor));
        match round {
            Round::Same => self.same_factors && !spec.replicated,
            Round::Kept => is_kept && !spec.replicated,
            Round::All => !spec.replicated || (spec.marked_replicated && self.expandable),
        }
    }

    /// Axes of each factor of a tensor.
    fn shares(&self, mesh: &Mesh, dim_factors: &TensorFactors, tensor: &Tensor) -> Vec<Option<Axes>> {
        let mut shares = vec![None; self.instance.factors.len()];
        for (factors, dim) in dim_factors.iter().zip(&tensor.ty.dims) {
            factors.iter().for_each(|&factor| shares[factor] = Some(Axes::none()));
            for (factor, axes) in split(mesh, &self.instance, factors, &dim.axes) {
                shares[factor] = Some(axes);
            }
        }
        shares
    }

    fn agreement(
        &self,
        tensors: &[Tensor],
        shares: &[Vec<Option<Axes>>],
        factor: usize,
        round: Round,
    ) -> Option<Agreement> {
        let first = if round == Round::Kept && self.repeats { self.instance.operands.len() } else { 0 };
        let wanted = (first..shares.len()).filter_map(|place| Some((place, shares[place][factor].as_ref()?)));
        let wanted: Vec<(usize, &Axes)> = wanted.filter(|(_, axes)| !axes.is_empty()).collect();
        let heaviest = wanted.iter().map(|&(place, _)| self.weight(tensors, place)).max()?;
        let heavy = wanted.iter().copied().filter(|&(place, _)| self.weight(tensors, place) == heaviest);
        let heavy: Vec<(usize, &Axes)> = heavy.collect();
        let found = agreed(&wanted).or_else(|| agreed(&heavy)).cloned();
        let tied = found.is_none();
        let axes = found
            .unwrap_or_else(|| heavy.iter().skip(1).fold(heavy[0].1.clone(), |all, (_, axes)| all.common_prefix(axes)));
        let sources = wanted.iter().filter(|(_, own)| axes.is_prefix_of(own));
        let source = sources.map(|&(place, _)| (Reverse(self.weight(tensors, place)), place)).min()?;
        Some(Agreement { factor, axes, tied, source })
    }

    /// Extends the axes of a tensor's open dims by free axes that fit; returns whether any dim changed.
    fn take_over(&self, mesh: &Mesh, dim_factors: &TensorFactors, tensor: &mut Tensor, agreed: &[Agreement]) -> bool {
        let shares = self.shares(mesh, dim_factors, tensor);
        let mut now: Vec<Axes> = shares.iter().map(|axes| axes.clone().unwrap_or_default()).collect();
        let mut changed = false;
        for Agreement { factor, axes, .. } in agreed {
            let Some(place) = dim_factors.iter().position(|factors| factors.contains(factor)) else { continue };
            let dim = &tensor.ty.dims[place];
            // Axes without a factor belong to a dim that the rule cannot split among its factors.
            let is_shared_out =
                dim.axes.iter().all(|axis| dim_factors[place].iter().any(|&own| now[own].contains(axis)));
            if !dim.open || dim.count.is_some() || !is_shared_out || !now[*factor].is_prefix_of(axes) {
                continue;
            }
            for axis in axes.iter().skip(now[*factor].len()) {
                let before = tensor.ty.dims[place].axes.clone();
                now[*factor].push(axis);
                let joined = self.instance.dim_axes(&vec![dim_factors[place].clone()], &now).remove(0);
                if tensor.ty.sharded_axes().union(&tensor.reserved).contains(axis)
                    || !before.is_prefix_of(&joined)
                    || !self.fits(mesh, *factor, &now)
                {
                    now[*factor].pop();
                    break;
                }
                tensor.ty.dims[place].axes = joined;
                changed = true;
            }
        }
        changed
    }

    fn fits(&self, mesh: &Mesh, factor: usize, now: &[Axes]) -> bool {
        let (size, axes) = (self.instance.factors[factor].size, &now[factor]);
        mesh.size(axes) <= size
            && (!self.indivisible[factor] || mesh.is_even(size, axes))
            && self.instance.compounds_hold(now, mesh)
    }
}

/// The longest of the axes that tensors propose, if the others are prefixes of it.
fn agreed<'a>(proposed: &[(usize, &'a Axes)]) -> Option<&'a Axes> {
    let longest = proposed.iter().map(|(_, axes)| *axes).max_by_key(|axes| axes.len())?;
    proposed.iter().all(|(_, axes)| axes.is_prefix_of(longest)).then_some(longest)
}
