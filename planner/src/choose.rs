//! Chooses a statement's factor assignment from its operands, its pins and its readers' preferences.
//!
//! The precedence, if one axis meets two factors:
//! 1. the pin, or a reshard to the pin afterwards (see [`crate::pending`]);
//! 2. a sharding propagated to a result;
//! 3. the parameter's sharding;
//! 4. a factor that the results have;
//! 5. the earlier operand.
//!
//! Partial operands pass through linear ops, and through sums of equally partial
//! values, if that is no more expensive. All other partial operands are reduced before the op.

use crate::assign::{Assignment, Operand, Passing, ResultSite, is_expandable, reading_order, split};
use crate::pending::Contest;
use ir::mesh::{Axes, Mesh};
use ir::ops::Op;
use ir::rule::{Factor, Instance, TensorFactors, holds};
use ir::types::{Dims, Partial, PartialKind, Type};

struct Choice<'a> {
    mesh: &'a Mesh,
    instance: &'a Instance,
    indivisible: Vec<bool>,
    expandable: bool,
    locked: Vec<bool>,
    factors: Vec<Axes>,
    taken: Axes,
}

impl Choice<'_> {
    fn may_split(&self, factor: usize) -> bool {
        let Factor { replicated, marked_replicated, .. } = self.instance.factors[factor];
        !self.locked[factor] && (!replicated || (marked_replicated && self.expandable))
    }

    /// Adds axes to a factor as long as the axes are free and legal.
    fn adopt(&mut self, factor: usize, axes: &Axes) {
        if !self.may_split(factor) || !self.factors[factor].is_prefix_of(axes) {
            return;
        }
        for axis in axes.iter().skip(self.factors[factor].len()).collect::<Vec<_>>() {
            let longer = self.factors[factor].union(&Axes::one(axis));
            let size = self.instance.factors[factor].size;
            let fits =
                self.mesh.size(&longer) <= size && (!self.indivisible[factor] || self.mesh.is_even(size, &longer));
            if self.taken.contains(axis) || !fits {
                break;
            }
            self.factors[factor] = longer;
            self.taken.push(axis);
            if !self.instance.compounds_hold(&self.factors, self.mesh) {
                self.factors[factor].pop();
                self.taken.pop();
                break;
            }
        }
    }

    /// Returns whether all results have the factor.
    fn is_kept(&self, factor: usize) -> bool {
        self.instance.results.iter().all(|tensor| holds(tensor, factor))
    }

    /// Axes that other operands have on factors of the results. The set is empty if either operand is a parameter,
    /// since parameters are not moved. Tokens therefore stay on their ranks, and expert outputs return to them
    /// (`combine`).
    fn kept_elsewhere(&self, operands: &[Operand<'_>], index: usize) -> Axes {
        if operands[index].param {
            return Axes::none();
        }
        let others = (0..operands.len()).filter(|&other| other != index && !operands[other].param);
        let dims = others.flat_map(|other| self.instance.operands[other].iter().zip(&operands[other].ty.dims));
        dims.filter(|(factors, _)| factors.iter().any(|&factor| self.is_kept(factor) && self.may_split(factor)))
            .fold(Axes::none(), |all, (_, dim)| all.union(&dim.axes))
    }

    /// Axes of operands on factors that some result lacks, unless another operand has them on a factor of all results.
    fn contracted(&self, operands: &[Operand<'_>]) -> Axes {
        let mut contracted = Axes::none();
        for (index, (tensor, operand)) in self.instance.operands.iter().zip(operands).enumerate() {
            let kept = self.kept_elsewhere(operands, index);
            for (factors, dim) in tensor.iter().zip(&operand.ty.dims) {
                if factors.iter().any(|&factor| !self.is_kept(factor)) {
                    contracted = contracted.union(&dim.axes.without(&kept));
                }
            }
        }
        contracted
    }

    /// Adopts the pinned axes first, except those that are to stay partial.
    fn adopt_pinned(&mut self, results: &[ResultSite<'_>], pending: &Axes) {
        for (tensor, result) in self.instance.results.iter().zip(results) {
            let pinned = result.pin.dims.iter().map(|axes| axes.as_ref().map(|axes| leading(axes, pending)));
            self.adopt_tensor(tensor, &pinned.collect::<Vec<_>>());
            for (factors, _) in tensor.iter().zip(&result.pin.dims).filter(|(_, pin)| pin.is_some()) {
                factors.iter().for_each(|&factor| self.locked[factor] = true);
            }
        }
        for (tensor, result) in self.instance.results.iter().zip(results) {
            let least = result.pin.least.iter().map(|axes| Some(leading(axes, pending)));
            self.adopt_tensor(tensor, &least.collect::<Vec<_>>());
        }
    }

    /// Adopts axes propagated to the results before those of operands. Axes that would leave a partial result are
    /// skipped: contracted axes, and axes that operands are partial over. A later reduction is cheaper.
    fn adopt_found(&mut self, results: &[ResultSite<'_>], summed: &Axes) {
        for (tensor, result) in self.instance.results.iter().zip(results).filter(|(_, result)| result.hint.found) {
            let found = result.hint.axes.iter().map(|axes| Some(leading(axes, summed)));
            self.adopt_tensor(tensor, &found.collect::<Vec<_>>());
            for (factors, _) in tensor.iter().zip(&result.hint.tied).filter(|(_, tied)| **tied) {
                factors.iter().for_each(|&factor| self.locked[factor] = true);
            }
        }
    }

    /// Adopts the axes that the results are hinted to have.
    fn adopt_hints(&mut self, results: &[ResultSite<'_>]) {
        for (tensor, result) in self.instance.results.iter().zip(results) {
            let hinted: Vec<_> = result.hint.axes.iter().cloned().map(Some).collect();
            self.adopt_tensor(tensor, &hinted);
        }
    }

    fn adopt_tensor(&mut self, tensor: &TensorFactors, dims: &[Option<Axes>]) {
        for (factors, axes) in tensor.iter().zip(dims) {
            let Some(axes) = axes else { continue };
            for (factor, axes) in split(self.mesh, self.instance, factors, axes) {
                self.adopt(factor, &axes);
            }
        }
    }
}

/// Axes before the first that `excluded` contains.
fn leading(axes: &Axes, excluded: &Axes) -> Axes {
    axes.iter().take_while(|&axis| !excluded.contains(axis)).collect()
}

/// Returns whether each factor represents an indivisible dim.
pub(crate) fn indivisible_factors(
    instance: &Instance,
    dims: &Dims,
    operands: &[&Type],
    results: &[&Type],
) -> Vec<bool> {
    let mut indivisible = vec![false; instance.factors.len()];
    let tensors = instance.operands.iter().zip(operands).chain(instance.results.iter().zip(results));
    for (tensor, ty) in tensors {
        for (factors, dim) in tensor.iter().zip(&ty.dims) {
            if let (Some(name), [factor]) = (dim.name, factors.as_slice()) {
                indivisible[*factor] |= dims[name].indivisible;
            }
        }
    }
    indivisible
}

/// Chooses a statement's factor assignment.
pub(crate) fn choose(
    mesh: &Mesh,
    dims: &Dims,
    op: &Op,
    instance: &Instance,
    operands: &[Operand<'_>],
    results: &[ResultSite<'_>],
) -> Assignment {
    let operand_types: Vec<&Type> = operands.iter().map(|operand| operand.ty).collect();
    let result_types: Vec<&Type> = results.iter().map(|result| result.ty).collect();
    let count = instance.factors.len();
    let mut choice = Choice {
        mesh,
        instance,
        indivisible: indivisible_factors(instance, dims, &operand_types, &result_types),
        expandable: is_expandable(op),
        locked: vec![false; count],
        factors: vec![Axes::none(); count],
        taken: Axes::none(),
    };
    let contracted = choice.contracted(operands);
    let pending = Contest { mesh, instance, operands, results }.left_pending(&contracted);
    choice.adopt_pinned(results, &pending);
    let unreduced = operand_types.iter().fold(contracted, |all, ty| all.union(&ty.partial_axes()));
    choice.adopt_found(results, &unreduced);
    for index in reading_order(operands) {
        let kept = choice.kept_elsewhere(operands, index);
        let dims = instance.operands[index].iter().zip(&operands[index].ty.dims);
        let wished: Vec<_> = dims
            .map(|(factors, dim)| {
                let yields = factors.iter().all(|&factor| !choice.is_kept(factor));
                Some(dim.axes.iter().take_while(|&axis| !yields || !kept.contains(axis)).collect())
            })
            .collect();
        choice.adopt_tensor(&instance.operands[index], &wished);
    }
    // A sum or product of equally partial values can stay partial and is reduced once, at its reader. An op that does
    // more work than its operand's size would make every rank compute on the full partial tensor. A view computes
    // nothing.
    if !instance.pointwise && !op.facts().is_view {
        choice.adopt_hints(results);
    }
    let storage = pointwise_storage(instance, &operand_types, results, &choice.taken);
    choice.taken = choice.taken.union(&storage);
    let passing = choose_passing(op, instance, operands, &choice.factors, &choice.taken, &result_types);
    choice.taken =
        choice.taken.union(&passing.as_ref().map_or_else(Axes::none, |passing| passing.partial.axes.clone()));
    choice.adopt_hints(results);
    Assignment { factors: choice.factors, passing, storage }
}

/// Storage axes of a pointwise op, equal on all its tensors: those of a pinned result, else of the first flat-sharded
/// operand.
fn pointwise_storage(instance: &Instance, operands: &[&Type], results: &[ResultSite<'_>], taken: &Axes) -> Axes {
    if !instance.pointwise {
        return Axes::none();
    }
    let stored = operands.iter().map(|ty| &ty.storage).find(|storage| !storage.is_empty());
    let pinned = results.iter().filter_map(|result| result.pin.storage.as_ref()).find(|storage| !storage.is_empty());
    stored.or(pinned).filter(|storage| storage.is_disjoint(taken)).cloned().unwrap_or_default()
}

/// Axes over which a tensor is a partial sum, without those in use.
fn passable(ty: &Type, used: &Axes) -> Axes {
    match &ty.partial {
        Some(Partial { kind: PartialKind::Sum, axes }) => axes.without(used),
        _ => Axes::none(),
    }
}

fn choose_passing(
    op: &Op,
    instance: &Instance,
    operands: &[Operand<'_>],
    factors: &[Axes],
    used: &Axes,
    results: &[&Type],
) -> Option<Passing> {
    if (0..results.len()).any(|r| instance.partial(r, factors).is_some_and(|partial| partial.kind == PartialKind::Max))
    {
        return None;
    }
    let grown = results.iter().map(|ty| ty.elements()).sum::<u64>();
    for group in op.facts().linear.groups(operands.len()) {
        let axes = match group.as_slice() {
            // Reducing one more scalar costs nothing extra: if one scalar is partial, all are.
            _ if group.len() > 1 && grown == 1 => {
                group.iter().fold(Axes::none(), |all, &index| all.union(&passable(operands[index].ty, used)))
            }
            [alone] if operands[*alone].uses > 1 || grown > operands[*alone].ty.elements() => Axes::none(),
            [first, rest @ ..] => rest.iter().fold(passable(operands[*first].ty, used), |all, &index| {
                all.intersection(&passable(operands[index].ty, used))
            }),
            [] => Axes::none(),
        };
        if !axes.is_empty() {
            let partial = Partial { kind: PartialKind::Sum, axes: axes.sorted() };
            return Some(Passing { operands: group, partial });
        }
    }
    None
}
