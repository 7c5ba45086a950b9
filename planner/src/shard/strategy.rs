//! The ways to run a statement on a mesh: each axis cuts a letter of the op's rule, or passes on a sum that operands owe, or
//! does nothing.

use super::prices::Prices;
use crate::assign::{Assignment, Passing, is_expandable};
use crate::choose::exact_letters;
use crate::reshard::layout::Layout;
use crate::sections::instance_of;
use ir::graph::{Block, Stmt};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::{Op, OpDef};
use ir::rule::Instance;
use ir::types::{Debt, DebtKind, Dims, Type};

/// One way to run a statement.
#[derive(Clone, Debug)]
pub(crate) struct Strategy {
    /// How each operand must lie.
    pub(crate) operands: Vec<Layout>,
    /// How each result lies.
    pub(crate) results: Vec<Layout>,
    /// Seconds on one rank.
    pub(crate) seconds: f64,
}

/// All ways to run a statement; the first is whole on every rank.
///
/// # Errors
/// The op's rule does not fit its tensors: a fault.
pub(super) fn strategies(prices: &Prices<'_>, block: &Block, stmt: &Stmt) -> Result<Vec<Strategy>, String> {
    let instance = instance_of(block, stmt)?.ok_or("a layout change has no rule")?;
    let def = stmt.op.def().ok_or("a layout change has no rule")?;
    let (mesh, dims) = (prices.site.mesh, prices.site.dims);
    let types = |values: &[_]| values.iter().map(|&value| block.ty(value)).collect::<Vec<&Type>>();
    let (operands, results) = (types(&stmt.operands), types(&stmt.results));
    let rule = Rules::of(mesh, dims, &stmt.op, &instance, &operands, &results);
    let mut found = Vec::new();
    for assignment in rule.assignments(def, operands.len()) {
        let operand = |(at, ty): (usize, &&Type)| assignment.operand_type(&instance, at, ty);
        let result = |(at, ty): (usize, &&Type)| assignment.result_type(&instance, at, ty).closed();
        let reads: Vec<Type> = operands.iter().enumerate().map(operand).collect();
        let gives: Vec<Type> = results.iter().enumerate().map(result).collect();
        if !reads.iter().chain(&gives).all(|ty| may_lie(mesh, dims, ty)) {
            continue;
        }
        let seconds = if must_expand(&stmt.op, &instance, &assignment) {
            prices.expanded(stmt, &reads, &gives).ok()
        } else {
            Some(prices.op(def, &reads, &gives, stmt.accumulate))
        };
        let layouts = |types: &[Type]| types.iter().map(Layout::of).collect();
        found.extend(seconds.map(|seconds| Strategy { operands: layouts(&reads), results: layouts(&gives), seconds }));
    }
    if found.is_empty() { Err(format!("`{}` cannot be run in any way", def.name())) } else { Ok(found) }
}

/// Whether a tensor may lie so: a maximum is never owed between statements here.
fn may_lie(mesh: &Mesh, dims: &Dims, ty: &Type) -> bool {
    let holds = |dim: &ir::types::Dim| {
        let exact = dim.name.is_some_and(|name| dims[name].exact);
        mesh.size(&dim.axes) <= dim.size && (!exact || mesh.is_even(dim.size, &dim.axes))
    };
    let sum = |debt: &Debt| debt.kind == DebtKind::Sum && debt.axes.is_disjoint(&ty.sharded_axes());
    ty.dims.iter().all(holds) && ty.debt.as_ref().is_none_or(sum)
}

/// Whether the op is put together of smaller ones: it is made of others, or cut where it must be whole.
fn must_expand(op: &Op, instance: &Instance, assignment: &Assignment) -> bool {
    let cut = instance.letters.iter().zip(&assignment.letters);
    matches!(op, Op::Made(_)) || cut.into_iter().any(|(letter, axes)| letter.marked_whole && !axes.is_empty())
}

/// What decides how a statement's letters may be cut.
struct Rules<'a> {
    mesh: &'a Mesh,
    instance: &'a Instance,
    exact: Vec<bool>,
    /// Which letters may be cut.
    free: Vec<bool>,
}

impl<'a> Rules<'a> {
    fn of(
        mesh: &'a Mesh,
        dims: &Dims,
        op: &Op,
        instance: &'a Instance,
        operands: &[&Type],
        results: &[&Type],
    ) -> Rules<'a> {
        let counted: Vec<usize> = (instance.operands.iter().zip(operands))
            .chain(instance.results.iter().zip(results))
            .flat_map(|(tensor, ty)| tensor.iter().zip(&ty.dims))
            .filter(|(_, dim)| dim.count.is_some())
            .flat_map(|(letters, _)| letters.clone())
            .collect();
        let may = |(at, letter): (usize, &ir::rule::Letter)| {
            (!letter.whole || (letter.marked_whole && is_expandable(op))) && !counted.contains(&at)
        };
        let free = instance.letters.iter().enumerate().map(may).collect();
        Rules { mesh, instance, exact: exact_letters(instance, dims, operands, results), free }
    }

    /// All assignments: without a passing sum first, then for each group of operands that may owe one together.
    fn assignments(&self, def: &dyn OpDef, operands: usize) -> Vec<Assignment> {
        let axes: Vec<AxisId> = self.mesh.tensor_axes().iter().collect();
        let mut found = Vec::new();
        let start = vec![Axes::none(); self.instance.letters.len()];
        self.extend(&axes, &start, &Axes::none(), None, &mut found);
        for group in def.linear(operands) {
            self.extend(&axes, &start, &Axes::none(), Some(&group), &mut found);
        }
        found
    }

    fn extend(
        &self,
        axes: &[AxisId],
        letters: &[Axes],
        passing: &Axes,
        group: Option<&Vec<usize>>,
        found: &mut Vec<Assignment>,
    ) {
        let Some((&axis, rest)) = axes.split_first() else {
            if group.is_none() == passing.is_empty() && self.instance.compounds_hold(letters, self.mesh) {
                let debt = Debt { kind: DebtKind::Sum, axes: passing.clone() };
                let passing = group.map(|group| Passing { operands: group.clone(), debt });
                found.push(Assignment { letters: letters.to_vec(), passing, storage: Axes::none() });
            }
            return;
        };
        self.extend(rest, letters, passing, group, found);
        for letter in 0..letters.len() {
            let longer = letters[letter].union(&Axes::one(axis));
            let size = self.instance.letters[letter].size;
            let fits = self.mesh.size(&longer) <= size && (!self.exact[letter] || self.mesh.is_even(size, &longer));
            if self.free[letter] && fits {
                let mut letters = letters.to_vec();
                letters[letter] = longer;
                self.extend(rest, &letters, passing, group, found);
            }
        }
        if group.is_some() {
            self.extend(rest, letters, &passing.union(&Axes::one(axis)), group, found);
        }
    }
}
