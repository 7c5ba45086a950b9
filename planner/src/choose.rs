//! Decides how a statement is sharded, from its operands, its pins and its readers' wishes.
//!
//! Conflicts: when one axis meets two letters the pin wins (or holds afterwards, see [`crate::pending`]), then what has spread
//! to a result, then the parameter's sharding, then the letter that the results keep, then the earlier operand. Partials pass
//! through linear ops and sums of equally pending values where that makes them no dearer; else they are paid before the op.

use crate::assign::{Assignment, Operand, Passing, ResultSite, is_expandable, reading_order, split};
use crate::pending::Contest;
use ir::mesh::{Axes, Mesh};
use ir::ops::Op;
use ir::rule::{Instance, Letter, TensorLetters, holds};
use ir::types::{Dims, Partial, PartialKind, Type};

struct Choice<'a> {
    mesh: &'a Mesh,
    instance: &'a Instance,
    indivisible: Vec<bool>,
    expandable: bool,
    locked: Vec<bool>,
    letters: Vec<Axes>,
    taken: Axes,
}

impl Choice<'_> {
    fn may_split(&self, letter: usize) -> bool {
        let Letter { whole, marked_whole, .. } = self.instance.letters[letter];
        !self.locked[letter] && (!whole || (marked_whole && self.expandable))
    }

    /// Puts more axes on a letter, as far as they are free and legal.
    fn adopt(&mut self, letter: usize, axes: &Axes) {
        if !self.may_split(letter) || !self.letters[letter].is_prefix_of(axes) {
            return;
        }
        for axis in axes.iter().skip(self.letters[letter].len()).collect::<Vec<_>>() {
            let longer = self.letters[letter].union(&Axes::one(axis));
            let size = self.instance.letters[letter].size;
            let fits =
                self.mesh.size(&longer) <= size && (!self.indivisible[letter] || self.mesh.is_even(size, &longer));
            if self.taken.contains(axis) || !fits {
                break;
            }
            self.letters[letter] = longer;
            self.taken.push(axis);
            if !self.instance.compounds_hold(&self.letters, self.mesh) {
                self.letters[letter].pop();
                self.taken.pop();
                break;
            }
        }
    }

    /// Whether all results have the letter.
    fn is_kept(&self, letter: usize) -> bool {
        self.instance.results.iter().all(|tensor| holds(tensor, letter))
    }

    /// The axes that other operands have on letters that the results keep; none where one of the two is a parameter, which
    /// is not moved. So tokens stay where they are, and what experts made of them comes back (`combine`).
    fn kept_elsewhere(&self, operands: &[Operand<'_>], index: usize) -> Axes {
        if operands[index].param {
            return Axes::none();
        }
        let others = (0..operands.len()).filter(|&other| other != index && !operands[other].param);
        let dims = others.flat_map(|other| self.instance.operands[other].iter().zip(&operands[other].ty.dims));
        dims.filter(|(letters, _)| letters.iter().any(|&letter| self.is_kept(letter) && self.may_split(letter)))
            .fold(Axes::none(), |all, (_, dim)| all.union(&dim.axes))
    }

    /// The axes of operands on factors that some result lacks, where no other operand has them on a factor that is kept.
    fn contracted(&self, operands: &[Operand<'_>]) -> Axes {
        let mut contracted = Axes::none();
        for (index, (tensor, operand)) in self.instance.operands.iter().zip(operands).enumerate() {
            let kept = self.kept_elsewhere(operands, index);
            for (letters, dim) in tensor.iter().zip(&operand.ty.dims) {
                if letters.iter().any(|&letter| !self.is_kept(letter)) {
                    contracted = contracted.union(&dim.axes.without(&kept));
                }
            }
        }
        contracted
    }

    /// What is pinned goes first, but for axes that are to leave a sum.
    fn adopt_pinned(&mut self, results: &[ResultSite<'_>], pending: &Axes) {
        let free = |axes: &Axes| axes.iter().take_while(|&axis| !pending.contains(axis)).collect::<Axes>();
        for (tensor, result) in self.instance.results.iter().zip(results) {
            let pinned: Vec<_> = result.pin.dims.iter().map(|axes| axes.as_ref().map(free)).collect();
            self.adopt_tensor(tensor, &pinned);
            for (letters, _) in tensor.iter().zip(&result.pin.dims).filter(|(_, pin)| pin.is_some()) {
                letters.iter().for_each(|&letter| self.locked[letter] = true);
            }
        }
        for (tensor, result) in self.instance.results.iter().zip(results) {
            self.adopt_tensor(tensor, &result.pin.least.iter().map(|axes| Some(free(axes))).collect::<Vec<_>>());
        }
    }

    /// What has spread to the results goes before what operands bring, but for axes that would leave a pending reduction:
    /// contracted ones, and what operands owe. It is reduced later, for less.
    fn adopt_found(&mut self, results: &[ResultSite<'_>], summed: &Axes) {
        for (tensor, result) in self.instance.results.iter().zip(results).filter(|(_, result)| result.hint.found) {
            let free = |axes: &Axes| Some(axes.iter().take_while(|&axis| !summed.contains(axis)).collect());
            self.adopt_tensor(tensor, &result.hint.axes.iter().map(free).collect::<Vec<_>>());
            for (letters, _) in tensor.iter().zip(&result.hint.tied).filter(|(_, tied)| **tied) {
                letters.iter().for_each(|&letter| self.locked[letter] = true);
            }
        }
    }

    fn adopt_tensor(&mut self, tensor: &TensorLetters, dims: &[Option<Axes>]) {
        for (letters, axes) in tensor.iter().zip(dims) {
            let Some(axes) = axes else { continue };
            for (letter, axes) in split(self.mesh, self.instance, letters, axes) {
                self.adopt(letter, &axes);
            }
        }
    }
}

/// Whether each letter stands for a dim that must be cut evenly.
pub(crate) fn indivisible_letters(
    instance: &Instance,
    dims: &Dims,
    operands: &[&Type],
    results: &[&Type],
) -> Vec<bool> {
    let mut indivisible = vec![false; instance.letters.len()];
    let tensors = instance.operands.iter().zip(operands).chain(instance.results.iter().zip(results));
    for (tensor, ty) in tensors {
        for (letters, dim) in tensor.iter().zip(&ty.dims) {
            if let (Some(name), [letter]) = (dim.name, letters.as_slice()) {
                indivisible[*letter] |= dims[name].indivisible;
            }
        }
    }
    indivisible
}

/// Decides how a statement is sharded.
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
    let count = instance.letters.len();
    let mut choice = Choice {
        mesh,
        instance,
        indivisible: indivisible_letters(instance, dims, &operand_types, &result_types),
        expandable: is_expandable(op),
        locked: vec![false; count],
        letters: vec![Axes::none(); count],
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
            .map(|(letters, dim)| {
                let yields = letters.iter().all(|&letter| !choice.is_kept(letter));
                Some(dim.axes.iter().take_while(|&axis| !yields || !kept.contains(axis)).collect())
            })
            .collect();
        choice.adopt_tensor(&instance.operands[index], &wished);
    }
    let wishes = |choice: &mut Choice<'_>| {
        for (tensor, result) in instance.results.iter().zip(results) {
            let wished: Vec<_> = result.hint.axes.iter().cloned().map(Some).collect();
            choice.adopt_tensor(tensor, &wished);
        }
    };
    // A sum or product of equals can stay owed and is then paid where it is read, once. But where more is computed from an
    // operand than its own size, each rank would compute on the whole of what it owes a part of. A view computes nothing.
    if !instance.pointwise && !op.is_view() {
        wishes(&mut choice);
    }
    let storage = pointwise_storage(instance, &operand_types, results, &choice.taken);
    choice.taken = choice.taken.union(&storage);
    let passing = choose_passing(op, instance, operands, &choice.letters, &choice.taken, &result_types);
    choice.taken =
        choice.taken.union(&passing.as_ref().map_or_else(Axes::none, |passing| passing.partial.axes.clone()));
    wishes(&mut choice);
    Assignment { letters: choice.letters, passing, storage }
}

/// A pointwise op works on any storage, equal on all: that of a pinned result, else of the first stored operand.
fn pointwise_storage(instance: &Instance, operands: &[&Type], results: &[ResultSite<'_>], taken: &Axes) -> Axes {
    if !instance.pointwise {
        return Axes::none();
    }
    let stored = operands.iter().map(|ty| &ty.storage).find(|storage| !storage.is_empty());
    let pinned = results.iter().filter_map(|result| result.pin.storage.as_ref()).find(|storage| !storage.is_empty());
    stored.or(pinned).filter(|storage| storage.is_disjoint(taken)).cloned().unwrap_or_default()
}

fn choose_passing(
    op: &Op,
    instance: &Instance,
    operands: &[Operand<'_>],
    letters: &[Axes],
    used: &Axes,
    results: &[&Type],
) -> Option<Passing> {
    if (0..results.len()).any(|r| instance.partial(r, letters).is_some_and(|partial| partial.kind == PartialKind::Max))
    {
        return None;
    }
    let sums = |index: usize| match &operands[index].ty.partial {
        Some(Partial { kind: PartialKind::Sum, axes }) => axes.without(used),
        _ => Axes::none(),
    };
    let grown = results.iter().map(|ty| ty.elements()).sum::<u64>();
    for group in op.def().map(|def| def.linear(operands.len())).unwrap_or_default() {
        let axes = match group.as_slice() {
            // A scalar costs the same to pay once more or less: what one owes, all owe.
            _ if group.len() > 1 && grown == 1 => {
                group.iter().fold(Axes::none(), |all, &index| all.union(&sums(index)))
            }
            [alone] if operands[*alone].uses > 1 || grown > operands[*alone].ty.elements() => Axes::none(),
            [first, rest @ ..] => rest.iter().fold(sums(*first), |all, &index| all.intersection(&sums(index))),
            [] => Axes::none(),
        };
        if !axes.is_empty() {
            let partial = Partial { kind: PartialKind::Sum, axes: axes.sorted() };
            return Some(Passing { operands: group, partial });
        }
    }
    None
}
