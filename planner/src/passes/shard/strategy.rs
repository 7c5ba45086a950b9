//! Strategies of a statement on a mesh. Each axis shards a factor of the op's rule, passes a partial sum of the
//! operands through, or is unused. All axes of a unit have the same use.

use super::prices::Prices;
use super::turns::Turn;
use crate::assign::{Assignment, Passing, is_expandable};
use crate::choose::indivisible_factors;
use crate::fault::Fault;
use crate::reshard::sharding::Sharding;
use crate::sections::{instance_of, types_of};
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
) -> Result<Vec<Strategy>, Fault> {
    let instance = instance_of(block, stmt)?.ok_or(Fault::NoRule)?;
    let def = stmt.op.def().ok_or(Fault::NoRule)?;
    let (mesh, dims) = (prices.site.mesh, prices.site.dims);
    let (operands, results) = (types_of(block, &stmt.operands), types_of(block, &stmt.results));
    let rule = Rules::of(prices, &stmt.op, &instance, &operands, &results);
    let mut found: Vec<Strategy> = Vec::new();
    for assignment in rule.assignments(def, operands.len(), turn, before) {
        let reads = operands.iter().enumerate().map(|(at, ty)| assignment.operand_type(&instance, at, ty));
        let reads: Vec<Type> = reads.collect();
        let gives = results.iter().enumerate().map(|(at, ty)| assignment.result_type(&instance, at, ty).closed());
        let gives: Vec<Type> = gives.collect();
        if !reads.iter().chain(&gives).all(|ty| is_allowed(mesh, dims, ty)) {
            continue;
        }
        let seconds = if must_expand(&stmt.op, &instance, &assignment) {
            prices.expanded(stmt, &reads, &gives).ok()
        } else {
            Some(prices.op(&stmt.op, &reads, &gives, stmt.accumulate))
        };
        let [operands, results] = [reads, gives].map(|types| types.iter().map(Sharding::of).collect());
        found.extend(seconds.map(|seconds| Strategy { operands, results, seconds, assignment }));
    }
    if found.is_empty() { Err(Fault::NoSharding { op: def.name() }) } else { Ok(found) }
}

/// Returns whether the mesh allows the type; no value between statements is an unreduced maximum here.
fn is_allowed(mesh: &Mesh, dims: &Dims, ty: &Type) -> bool {
    let dims_fit = ty.dims.iter().all(|dim| {
        let indivisible = dim.name.is_some_and(|name| dims[name].indivisible);
        mesh.size(&dim.axes) <= dim.size && (!indivisible || mesh.is_even(dim.size, &dim.axes))
    });
    let partial_fits = ty
        .partial
        .as_ref()
        .is_none_or(|partial| partial.kind == PartialKind::Sum && partial.axes.is_disjoint(&ty.sharded_axes()));
    dims_fit && partial_fits
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
        let mut free = Vec::with_capacity(instance.factors.len());
        for (at, factor) in instance.factors.iter().enumerate() {
            let may_shard = !factor.replicated || (factor.marked_replicated && is_expandable(op));
            free.push(may_shard && !counted.contains(&at));
        }
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
        let factors = match before {
            Some(before) => before.factors.iter().map(|axes| axes.intersection(&turn.fixed)).collect(),
            None => vec![Axes::none(); self.instance.factors.len()],
        };
        let passes = before.and_then(|before| before.passing.as_ref());
        let passing = passes.map_or_else(Axes::none, |passing| passing.partial.axes.intersection(&turn.fixed));
        let start = Prefix { factors, passing };
        let mut found = Vec::new();
        if start.passing.is_empty() {
            self.extend(&turn.units, &start, None, &mut found);
        }
        for group in def.facts().linear.groups(operands) {
            if passes.is_none_or(|passing| start.passing.is_empty() || passing.operands == group) {
                self.extend(&turn.units, &start, Some(&group), &mut found);
            }
        }
        found.extend(before.filter(|before| !found.contains(before)).cloned());
        found
    }

    fn extend(&self, units: &[Axes], so_far: &Prefix, group: Option<&Vec<usize>>, found: &mut Vec<Assignment>) {
        let Some((unit, rest)) = units.split_first() else {
            if group.is_none() == so_far.passing.is_empty()
                && (self.is_relaxed || self.instance.compounds_hold(&so_far.factors, self.mesh))
            {
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
