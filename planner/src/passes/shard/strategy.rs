//! Strategies of a statement on a mesh. Each axis shards a factor of the op's rule, passes a partial sum of the
//! operands through, or is unused. All axes of a unit have the same use.

use super::prices::Prices;
use super::turns::Turn;
use crate::assign::{Assignment, Passing, is_expandable};
use crate::choose::indivisible_factors;
use crate::reshard::sharding::Sharding;
use crate::sections::instance_of;
use ir::graph::{Block, Stmt};
use ir::mesh::{Axes, Mesh};
use ir::ops::{Op, OpDef};
use ir::rule::Instance;
use ir::types::{Dims, Partial, PartialKind, Type};

/// Strategy of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Strategy {
    /// Required sharding of each operand.
    pub(crate) operands: Vec<Sharding>,
    /// Sharding of each result.
    pub(crate) results: Vec<Sharding>,
    /// Time on one rank, in seconds.
    pub(crate) seconds: f64,
    /// Use of each axis.
    pub(crate) assignment: Assignment,
}

/// Strategies of a statement in a turn, given the previous use of its axes.
///
/// # Errors
/// The op's rule does not fit its tensors, which is an internal error.
pub(super) fn strategies(
    prices: &Prices<'_>,
    block: &Block,
    stmt: &Stmt,
    turn: &Turn,
    before: Option<&Assignment>,
) -> Result<Vec<Strategy>, String> {
    let instance = instance_of(block, stmt)?.ok_or("a collective has no rule")?;
    let def = stmt.op.def().ok_or("a collective has no rule")?;
    let (mesh, dims) = (prices.site.mesh, prices.site.dims);
    let types = |values: &[_]| values.iter().map(|&value| block.ty(value)).collect::<Vec<&Type>>();
    let (operands, results) = (types(&stmt.operands), types(&stmt.results));
    let rule = Rules::of(prices, &stmt.op, &instance, &operands, &results);
    let mut found: Vec<Strategy> = Vec::new();
    for assignment in rule.assignments(def, operands.len(), turn, before) {
        let operand = |(at, ty): (usize, &&Type)| assignment.operand_type(&instance, at, ty);
        let result = |(at, ty): (usize, &&Type)| assignment.result_type(&instance, at, ty).closed();
        let reads: Vec<Type> = operands.iter().enumerate().map(operand).collect();
        let gives: Vec<Type> = results.iter().enumerate().map(result).collect();
        let shardings = |types: &[Type]| types.iter().map(Sharding::of).collect::<Vec<Sharding>>();
        if !reads.iter().chain(&gives).all(|ty| may_lie(mesh, dims, ty)) {
            continue;
        }
        let seconds = if must_expand(&stmt.op, &instance, &assignment) {
            prices.expanded(stmt, &reads, &gives).ok()
        } else {
            Some(prices.op(&stmt.op, &reads, &gives, stmt.accumulate))
        };
        let (operands, results) = (shardings(&reads), shardings(&gives));
        found.extend(seconds.map(|seconds| Strategy { operands, results, seconds, assignment }));
    }
    if found.is_empty() { Err(format!("`{}` has no legal sharding", def.name())) } else { Ok(found) }
}

/// Returns whether the mesh allows the type; no value between statements is an unreduced maximum here.
fn may_lie(mesh: &Mesh, dims: &Dims, ty: &Type) -> bool {
    let holds = |dim: &ir::types::Dim| {
        let indivisible = dim.name.is_some_and(|name| dims[name].indivisible);
        mesh.size(&dim.axes) <= dim.size && (!indivisible || mesh.is_even(dim.size, &dim.axes))
    };
    let sum = |partial: &Partial| partial.kind == PartialKind::Sum && partial.axes.is_disjoint(&ty.sharded_axes());
    ty.dims.iter().all(holds) && ty.partial.as_ref().is_none_or(sum)
}

/// Returns whether the op must be decomposed: it is composite, or sharded on a `!` factor.
fn must_expand(op: &Op, instance: &Instance, assignment: &Assignment) -> bool {
    let cut = instance.factors.iter().zip(&assignment.factors);
    op.is_composite() || cut.into_iter().any(|(factor, axes)| factor.marked_replicated && !axes.is_empty())
}

/// Constraints on the sharding of a statement's factors.
struct Rules<'a> {
    mesh: &'a Mesh,
    instance: &'a Instance,
    indivisible: Vec<bool>,
    /// True if each factor may be sharded.
    free: Vec<bool>,
    /// True if inner factors of a dim may be sharded before outer factors.
    is_relaxed: bool,
}

/// Uses of the axes assigned so far.
#[derive(Clone)]
struct Prefix {
    factors: Vec<Axes>,
    passing: Axes,
}

impl<'a> Rules<'a> {
    fn of(prices: &Prices<'a>, op: &Op, instance: &'a Instance, operands: &[&Type], results: &[&Type]) -> Rules<'a> {
        let counted: Vec<usize> = (instance.operands.iter().zip(operands))
            .chain(instance.results.iter().zip(results))
            .flat_map(|(tensor, ty)| tensor.iter().zip(&ty.dims))
            .filter(|(_, dim)| dim.count.is_some())
            .flat_map(|(factors, _)| factors.clone())
            .collect();
        let may = |(at, factor): (usize, &ir::rule::Factor)| {
            (!factor.replicated || (factor.marked_replicated && is_expandable(op))) && !counted.contains(&at)
        };
        let free = instance.factors.iter().enumerate().map(may).collect();
        let indivisible = indivisible_factors(instance, prices.site.dims, operands, results);
        Rules { mesh: prices.site.mesh, instance, indivisible, free, is_relaxed: prices.is_relaxed() }
    }

    /// All assignments of a turn. Those without a pass-through partial sum come first, then those for each group of
    /// operands that may be partial together. The previous assignment is added if it is not among them.
    fn assignments(
        &self,
        def: &dyn OpDef,
        operands: usize,
        turn: &Turn,
        before: Option<&Assignment>,
    ) -> Vec<Assignment> {
        let stays = |axes: &Axes| axes.intersection(&turn.fixed);
        let factors = match before {
            Some(before) => before.factors.iter().map(stays).collect(),
            None => vec![Axes::none(); self.instance.factors.len()],
        };
        let passes = before.and_then(|before| before.passing.as_ref());
        let passing = passes.map_or_else(Axes::none, |passing| stays(&passing.partial.axes));
        let start = Prefix { factors, passing };
        let mut found = Vec::new();
        if start.passing.is_empty() {
            self.extend(&turn.units, &start, None, &mut found);
        }
        for group in def.facts().linear.groups(operands) {
            let fits = |passing: &Passing| start.passing.is_empty() || passing.operands == group;
            if passes.is_none_or(fits) {
                self.extend(&turn.units, &start, Some(&group), &mut found);
            }
        }
        found.extend(before.filter(|before| !found.contains(before)).cloned());
        found
    }

    fn extend(&self, units: &[Axes], so_far: &Prefix, group: Option<&Vec<usize>>, found: &mut Vec<Assignment>) {
        let Some((unit, rest)) = units.split_first() else {
            let holds = || self.is_relaxed || self.instance.compounds_hold(&so_far.factors, self.mesh);
            if group.is_none() == so_far.passing.is_empty() && holds() {
                let partial = Partial { kind: PartialKind::Sum, axes: so_far.passing.clone() };
                let passing = group.map(|group| Passing { operands: group.clone(), partial });
                found.push(Assignment { factors: so_far.factors.clone(), passing, storage: Axes::none() });
            }
            return;
        };
        self.extend(rest, so_far, group, found);
        for factor in 0..so_far.factors.len() {
            let longer = so_far.factors[factor].union(unit).sorted();
            let size = self.instance.factors[factor].size;
            let fits =
                self.mesh.size(&longer) <= size && (!self.indivisible[factor] || self.mesh.is_even(size, &longer));
            if self.free[factor] && fits {
                let mut next = so_far.clone();
                next.factors[factor] = longer;
                self.extend(rest, &next, group, found);
            }
        }
        if group.is_some() {
            let next = Prefix { passing: so_far.passing.union(unit).sorted(), ..so_far.clone() };
            self.extend(rest, &next, group, found);
        }
    }
}
