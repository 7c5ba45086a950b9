//! One step: the tensors of a statement agree on axes for each factor of its rule, and take over what they lack.

use super::graph::Tensor;
use crate::assign::split;
use ir::mesh::{Axes, Mesh};
use ir::rule::{Instance, TensorLetters, holds};
use std::cmp::Reverse;

/// Who speaks when.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Round {
    /// Ops all of whose tensors have all factors.
    Same,
    /// Factors of any op that its results keep; what an op repeats is heard only from its results.
    Kept,
    /// All factors.
    All,
}

impl Round {
    /// The rounds in order.
    pub(super) const ALL: [Round; 3] = [Round::Same, Round::Kept, Round::All];
}

/// A statement or a boundary, as a rule over tensors.
pub(super) struct Step {
    /// Operands, then results.
    pub(super) tensors: Vec<usize>,
    instance: Instance,
    indivisible: Vec<bool>,
    expandable: bool,
    same_factors: bool,
    repeats: bool,
}

/// How strongly a tensor is heard: a parameter before others, then the larger.
type Weight = (bool, u64);

/// What the tensors of a step want for a factor.
struct Agreement {
    factor: usize,
    axes: Axes,
    tied: bool,
    /// The weight and place of the tensor that wants it.
    source: (Reverse<Weight>, usize),
}

impl Step {
    /// A step over tensors: operands, then results. Its op may be expanded, or a view.
    pub(super) fn new(
        instance: Instance,
        tensors: Vec<usize>,
        indivisible: Vec<bool>,
        [expandable, is_view]: [bool; 2],
    ) -> Step {
        let all = || instance.operands.iter().chain(&instance.results);
        let everywhere = |factor: usize| all().all(|tensor| holds(tensor, factor));
        let same_factors = (0..instance.letters.len()).all(everywhere);
        let [operand] = instance.operands.as_slice() else {
            return Step { tensors, indivisible, expandable, same_factors, repeats: false, instance };
        };
        // A view repeats nothing: a factor that a reshape adds has one element.
        let is_new = |&factor: &usize| !holds(operand, factor);
        let repeats = !is_view && instance.results.iter().flatten().flatten().any(is_new);
        Step { tensors, indivisible, expandable, same_factors, repeats, instance }
    }

    /// Lets the tensors agree; gives those that changed.
    pub(super) fn run(&self, mesh: &Mesh, tensors: &mut [Tensor], round: Round) -> Vec<usize> {
        let speaks = (0..self.instance.letters.len()).any(|factor| self.speaks(factor, round));
        if !speaks || self.sharded(tensors) == 0 {
            return Vec::new();
        }
        let mut agreed: Vec<Agreement> = self.agreements(mesh, tensors, round).collect();
        agreed.retain(|agreement| !agreement.axes.is_empty());
        agreed.sort_by_key(|agreement| (agreement.source, agreement.factor));
        let count = self.instance.operands.len();
        let hears_results = round == Round::Kept && self.repeats;
        let mut changed = Vec::new();
        for (place, letters) in self.sides().enumerate().skip(count).filter(|_| !hears_results) {
            let result = &mut tensors[self.tensors[place]];
            if self.take_over(mesh, letters, result, &agreed) {
                changed.push(self.tensors[place]);
            }
            self.limit(mesh, letters, result, &mut agreed);
        }
        for (place, letters) in self.sides().enumerate().take(count) {
            if self.take_over(mesh, letters, &mut tensors[self.tensors[place]], &agreed) {
                changed.push(self.tensors[place]);
            }
        }
        changed
    }

    /// Where an open dim of a result lacks axes that its other dims have, the operands do without them too: the statement
    /// cannot compute so, and they would be moved.
    fn limit(&self, mesh: &Mesh, letters: &TensorLetters, result: &Tensor, agreed: &mut [Agreement]) {
        let shares = self.shares(mesh, letters, result);
        let used = result.ty.sharded_axes();
        for Agreement { factor, axes, .. } in agreed {
            let (Some(share), Some(place)) =
                (&shares[*factor], letters.iter().position(|factors| factors.contains(factor)))
            else {
                continue;
            };
            let is_blocked = |axis| used.contains(axis) && !share.contains(axis);
            if result.ty.dims[place].open && share.is_prefix_of(axes) && axes.iter().any(is_blocked) {
                *axes = axes.iter().take_while(|&axis| !is_blocked(axis)).collect();
            }
        }
    }

    /// Marks the open dims of results on which equals want different axes.
    pub(super) fn mark_ties(&self, mesh: &Mesh, tensors: &[Tensor], tied: &mut [Vec<bool>]) {
        if self.sharded(tensors) < 2 {
            return;
        }
        for agreement in self.agreements(mesh, tensors, Round::All).filter(|agreement| agreement.tied) {
            for (letters, &tensor) in self.instance.results.iter().zip(&self.tensors[self.instance.operands.len()..]) {
                for (place, factors) in letters.iter().enumerate() {
                    tied[tensor][place] |= factors.contains(&agreement.factor) && tensors[tensor].ty.dims[place].open;
                }
            }
        }
    }

    /// How many of its tensors have axes.
    fn sharded(&self, tensors: &[Tensor]) -> usize {
        let is_sharded = |&&id: &&usize| tensors[id].ty.dims.iter().any(|dim| !dim.axes.is_empty());
        self.tensors.iter().filter(is_sharded).count()
    }

    fn sides(&self) -> impl Iterator<Item = &TensorLetters> {
        self.instance.operands.iter().chain(&self.instance.results)
    }

    fn agreements<'s>(
        &'s self,
        mesh: &'s Mesh,
        tensors: &'s [Tensor],
        round: Round,
    ) -> impl Iterator<Item = Agreement> + 's {
        let shares: Vec<Vec<Option<Axes>>> =
            self.sides().zip(&self.tensors).map(|(letters, &id)| self.shares(mesh, letters, &tensors[id])).collect();
        let factors = (0..self.instance.letters.len()).filter(move |&factor| self.speaks(factor, round));
        factors.filter_map(move |factor| self.agreement(tensors, &shares, factor, round))
    }

    /// Whether axes spread along a factor in a round.
    fn speaks(&self, factor: usize, round: Round) -> bool {
        let letter = &self.instance.letters[factor];
        let is_kept = self.instance.results.iter().all(|tensor| holds(tensor, factor));
        match round {
            Round::Same => self.same_factors && !letter.whole,
            Round::Kept => is_kept && !letter.whole,
            Round::All => !letter.whole || (letter.marked_whole && self.expandable),
        }
    }

    /// The axes of each factor that a tensor has.
    fn shares(&self, mesh: &Mesh, letters: &TensorLetters, tensor: &Tensor) -> Vec<Option<Axes>> {
        let mut shares = vec![None; self.instance.letters.len()];
        for (factors, dim) in letters.iter().zip(&tensor.ty.dims) {
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
        let weight = |place: usize| {
            let tensor = &tensors[self.tensors[place]];
            (tensor.param, tensor.ty.elements())
        };
        let wanted = (first..shares.len()).filter_map(|place| Some((place, shares[place][factor].as_ref()?)));
        let wanted: Vec<(usize, &Axes)> = wanted.filter(|(_, axes)| !axes.is_empty()).collect();
        let agree = |some: &[(usize, &Axes)]| {
            let longest = some.iter().map(|(_, axes)| *axes).max_by_key(|axes| axes.len())?;
            some.iter().all(|(_, axes)| axes.is_prefix_of(longest)).then(|| longest.clone())
        };
        let heaviest = wanted.iter().map(|&(place, _)| weight(place)).max()?;
        let heavy: Vec<_> = wanted.iter().copied().filter(|&(place, _)| weight(place) == heaviest).collect();
        let found = agree(&wanted).or_else(|| agree(&heavy));
        let common = || heavy.iter().skip(1).fold(heavy[0].1.clone(), |all, (_, axes)| all.common_prefix(axes));
        let (axes, tied) = found.map_or_else(|| (common(), true), |axes| (axes, false));
        let sources = wanted.iter().filter(|(_, own)| axes.is_prefix_of(own));
        let source = sources.map(|&(place, _)| (Reverse(weight(place)), place)).min()?;
        Some(Agreement { factor, axes, tied, source })
    }

    /// Lengthens the axes of a tensor's open dims as far as they are free and fit; says whether any were.
    fn take_over(&self, mesh: &Mesh, letters: &TensorLetters, tensor: &mut Tensor, agreed: &[Agreement]) -> bool {
        let shares = self.shares(mesh, letters, tensor);
        let mut now: Vec<Axes> = shares.iter().map(|axes| axes.clone().unwrap_or_default()).collect();
        let mut changed = false;
        for Agreement { factor, axes, .. } in agreed {
            let Some(place) = letters.iter().position(|factors| factors.contains(factor)) else { continue };
            let dim = &tensor.ty.dims[place];
            // Axes that no factor has are those of a dim that the rule cannot share out.
            let is_shared_out = dim.axes.iter().all(|axis| letters[place].iter().any(|&own| now[own].contains(axis)));
            if !dim.open || dim.count.is_some() || !is_shared_out || !now[*factor].is_prefix_of(axes) {
                continue;
            }
            for axis in axes.iter().skip(now[*factor].len()) {
                let before = tensor.ty.dims[place].axes.clone();
                now[*factor].push(axis);
                let joined = self.instance.dim_axes(&vec![letters[place].clone()], &now).remove(0);
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
        let (size, axes) = (self.instance.letters[factor].size, &now[factor]);
        let is_even = || !self.indivisible[factor] || mesh.is_even(size, axes);
        mesh.size(axes) <= size && is_even() && self.instance.compounds_hold(now, mesh)
    }
}
