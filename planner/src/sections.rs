//! Decides the statements of a section in order.

use crate::assign::{Operand, Pin, ResultSite, instantiate};
use crate::choose::choose;
use crate::fault::Fault;
use crate::recover::recover;
use crate::sums;
use ir::graph::{ArgKind, Block, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::mesh::{Axes, Mesh};
use ir::ops::{Op, Unary, UnaryKind};
use ir::rule::Instance;
use ir::types::{Dims, Type};
use rustc_hash::FxHashMap;

/// Mesh and dims of the statements.
pub(crate) struct Site<'a> {
    /// The mesh.
    pub(crate) mesh: &'a Mesh,
    /// The named dims.
    pub(crate) dims: &'a Dims,
}

/// Preferred sharding of a value that nothing pins.
#[derive(Clone, Default)]
pub(crate) struct Hint {
    /// Preferred axes per dim.
    pub(crate) axes: Vec<Axes>,
    /// True if propagation found the axes, which then precede those of operands. If `false`, the axes are the readers'
    /// preference.
    pub(crate) found: bool,
    /// Per dim: whether equally weighted tensors disagree, so that the dim gets no more axes. Empty if there is no tie.
    pub(crate) tied: Vec<bool>,
}

impl Hint {
    /// Hint from the readers' preference.
    pub(crate) fn preference(axes: Vec<Axes>) -> Hint {
        Hint { axes, found: false, tied: Vec::new() }
    }
}

/// Hints by value.
pub(crate) type Hints = FxHashMap<Value, Hint>;

/// Facts about a statement's operands from the rest of its block.
#[derive(Default)]
pub(crate) struct Known {
    /// Number of reads and returns of each value, in all sections.
    pub(crate) uses: FxHashMap<Value, usize>,
    /// Type of each partial value after an earlier section has reduced it.
    pub(crate) reduced: FxHashMap<Value, Type>,
}

impl Site<'_> {
    /// Decides all statements of a section. A reshard follows each result whose pinned type differs from its natural
    /// type.
    ///
    /// # Errors
    /// An op's rule does not fit its tensors, which is an internal error.
    pub(crate) fn decide(&self, block: &mut Block, kind: SectionKind, hints: &Hints) -> Result<(), Fault> {
        let known = Known { uses: count_uses(block), reduced: self.reduced_before(block, kind)? };
        let hints = self.spread_hints(block, kind, hints.clone())?;
        let mut stmts = std::mem::take(&mut block[kind].stmts).into_iter();
        while !stmts.as_slice().is_empty() {
            let grouped = sums::regroup(block, stmts.as_mut_slice(), &known.uses);
            for stmt in stmts.by_ref().take(grouped.max(1)) {
                let decided = self.statement(block, stmt, &known, &hints)?;
                block[kind].stmts.extend(decided);
            }
        }
        Ok(())
    }

    /// Decides one statement and returns it with the reshards that its pins require.
    ///
    /// # Errors
    /// The op's rule does not fit its tensors.
    pub(crate) fn statement(
        &self,
        block: &mut Block,
        stmt: Stmt,
        known: &Known,
        hints: &Hints,
    ) -> Result<Vec<Stmt>, Fault> {
        let naturals = match &stmt.op {
            Op::Collective(collective) => {
                let moved = collective.moved(&stmt.operands).iter();
                moved.map(|&v| collective.result_type(block.ty(v))).collect::<Result<Vec<_>, _>>().map_err(Fault::Op)?
            }
            Op::Reshard => {
                close_reshard(block, &stmt, hints);
                return Ok(vec![stmt]);
            }
            Op::Kernel(_) => self.naturals(block, &stmt, known, hints)?,
        };
        Ok(settle(block, stmt, naturals))
    }

    fn naturals(&self, block: &Block, stmt: &Stmt, known: &Known, hints: &Hints) -> Result<Vec<Type>, Fault> {
        let instance = instance_of(block, stmt)?.ok_or(Fault::NoRule)?;
        let operands =
            operands_of(block, stmt, &known.uses, &|value| known.reduced.get(&value).unwrap_or(block.ty(value)));
        let mut results = Vec::with_capacity(stmt.results.len());
        for &value in &stmt.results {
            let ty = block.ty(value);
            let hint = hints.get(&value).cloned();
            let hint = hint.unwrap_or_else(|| Hint::preference(vec![Axes::none(); ty.rank()]));
            results.push(ResultSite { ty, pin: pin_of(block, stmt, value), hint });
        }
        let assignment = choose(self.mesh, self.dims, &stmt.op, &instance, &operands, &results);
        Ok(results.iter().enumerate().map(|(r, result)| assignment.result_type(&instance, r, result.ty)).collect())
    }

    /// Types of partial values that F, or I, reduces without making them larger: each partial is reduced once.
    fn reduced_before(&self, block: &Block, kind: SectionKind) -> Result<FxHashMap<Value, Type>, Fault> {
        let earlier: &[SectionKind] = match kind {
            SectionKind::I => &[SectionKind::F],
            SectionKind::W => &[SectionKind::F, SectionKind::I],
            SectionKind::G | SectionKind::F | SectionKind::U => &[],
        };
        let mut reduced = FxHashMap::default();
        let stmts = earlier.iter().flat_map(|&kind| &block[kind].stmts);
        for stmt in stmts.filter(|stmt| stmt.operands.iter().any(|&value| block.ty(value).partial.is_some())) {
            let wanted = match &stmt.op {
                Op::Reshard => vec![block.ty(stmt.results[0]).clone()],
                _ => wanted_types(self.mesh, block, stmt, &|value| reduced.get(&value).unwrap_or(block.ty(value)))?
                    .unwrap_or_default(),
            };
            for (&value, ty) in stmt.operands.iter().zip(wanted) {
                let partial = block.ty(value);
                let is_smaller = ty.local_bytes(self.mesh) <= partial.local_bytes(self.mesh);
                if partial.partial.is_some() && ty.partial.is_none() && is_smaller {
                    reduced.entry(value).or_insert(ty);
                }
            }
        }
        Ok(reduced)
    }

    /// Propagates a preference for a result to the operands that share its factors.
    fn spread_hints(&self, block: &Block, kind: SectionKind, mut hints: Hints) -> Result<Hints, Fault> {
        for stmt in block[kind].stmts.iter().rev() {
            let Some(instance) = instance_of(block, stmt)? else { continue };
            let factors = wished_factors(&instance, stmt, &hints);
            for (tensor, &value) in instance.operands.iter().zip(&stmt.operands) {
                let hint = instance.dim_axes(tensor, &factors);
                if hint.iter().any(|axes| !axes.is_empty()) {
                    hints.entry(value).or_insert_with(|| Hint::preference(hint));
                }
            }
        }
        Ok(hints)
    }
}

/// Axes per factor that follow from the preferences for the results. Only factors that may be sharded get axes; the
/// first preference wins.
fn wished_factors(instance: &Instance, stmt: &Stmt, hints: &Hints) -> Vec<Axes> {
    let mut factors = vec![Axes::none(); instance.factors.len()];
    let hinted = instance
        .results
        .iter()
        .zip(&stmt.results)
        .filter_map(|(t, v)| hints.get(v).map(|hint| t.iter().zip(&hint.axes)));
    for (dim_factors, axes) in hinted.flatten() {
        if let [factor] = dim_factors.as_slice()
            && !instance.factors[*factor].replicated
            && factors[*factor].is_empty()
        {
            factors[*factor] = axes.clone();
        }
    }
    factors
}

/// Closes a reshard written in the file: the propagated axes, else those of its operand.
fn close_reshard(block: &mut Block, stmt: &Stmt, hints: &Hints) {
    let (result, operand) = (stmt.results[0], stmt.operands[0]);
    let mut ty = block.ty(result).clone();
    for place in (0..ty.rank()).filter(|&place| block.ty(result).dims[place].open) {
        let found = hints.get(&result).map(|hint| hint.axes[place].clone());
        ty.dims[place].axes = found.filter(|axes| !axes.is_empty()).unwrap_or_else(|| {
            let (own, used) = (&block.ty(operand).dims[place].axes, ty.used_axes());
            own.iter().take_while(|&axis| !used.contains(axis)).collect()
        });
    }
    block.values[result].ty = ty.closed();
}

/// Instantiates a statement's rule; `None` for a collective, which has no rule.
///
/// # Errors
/// The op's own rule does not fit its tensors.
pub(crate) fn instance_of(block: &Block, stmt: &Stmt) -> Result<Option<Instance>, Fault> {
    let Some(def) = stmt.op.def() else { return Ok(None) };
    instantiate(def, &types_of(block, &stmt.operands), &types_of(block, &stmt.results)).map(Some)
}

/// Types of values of a block.
pub(crate) fn types_of<'b>(block: &'b Block, values: &[Value]) -> Vec<&'b Type> {
    values.iter().map(|&value| block.ty(value)).collect()
}

/// Returns whether a value is a parameter or a state of its block.
pub(crate) fn is_stored(block: &Block, value: Value) -> bool {
    matches!(block.arg_kind(value), Some(ArgKind::Param | ArgKind::State))
}

/// Operand types that a statement requires; `None` for collectives, which accept any type. `type_of` gives the current
/// type of each operand. An operand stays partial if the results are partial over the same axes.
///
/// # Errors
/// The op's own rule does not fit its tensors.
pub(crate) fn wanted_types<'b>(
    mesh: &Mesh,
    block: &'b Block,
    stmt: &Stmt,
    type_of: &dyn Fn(Value) -> &'b Type,
) -> Result<Option<Vec<Type>>, Fault> {
    let (Some(def), Some(instance)) = (stmt.op.def(), instance_of(block, stmt)?) else { return Ok(None) };
    let results = types_of(block, &stmt.results);
    let mut operands = operands_of(block, stmt, &FxHashMap::default(), type_of);
    let mut assignment = recover(mesh, def, &instance, &operands, &results);
    let mut results_with_places = results.iter().enumerate();
    if !results_with_places.all(|(at, ty)| assignment.result_type(&instance, at, ty).partial == ty.partial) {
        operands = operands_of(block, stmt, &FxHashMap::default(), &|value| block.ty(value));
        assignment = recover(mesh, def, &instance, &operands, &results);
    }
    let wanted = operands.iter().enumerate();
    Ok(Some(wanted.map(|(at, operand)| assignment.operand_type(&instance, at, operand.ty)).collect()))
}

/// Type of the only operand that makes the only result have type `ty`; `None` if there is no such type.
///
/// # Errors
/// The op's own rule does not fit its tensors.
pub(crate) fn operand_for(mesh: &Mesh, block: &Block, stmt: &Stmt, ty: &Type) -> Result<Option<Type>, Fault> {
    let (Some(def), Some(instance)) = (stmt.op.def(), instance_of(block, stmt)?) else { return Ok(None) };
    let operands = operands_of(block, stmt, &FxHashMap::default(), &|value| block.ty(value));
    let assignment = recover(mesh, def, &instance, &operands, &[ty]);
    let mut factors = instance.factors.iter().zip(&assignment.factors);
    let is_legal = factors.all(|(factor, axes)| !factor.replicated || axes.is_empty())
        && instance.compounds_hold(&assignment.factors, mesh);
    let gives = is_legal && assignment.result_type(&instance, 0, ty) == *ty;
    Ok(gives.then(|| assignment.operand_type(&instance, 0, operands[0].ty)))
}

/// Operands of a statement with the facts that `choose` uses; `type_of` gives their current types.
fn operands_of<'b>(
    block: &Block,
    stmt: &Stmt,
    uses: &FxHashMap<Value, usize>,
    type_of: &dyn Fn(Value) -> &'b Type,
) -> Vec<Operand<'b>> {
    let mut operands = Vec::with_capacity(stmt.operands.len());
    for &value in &stmt.operands {
        let uses = uses.get(&value).copied().unwrap_or(1);
        operands.push(Operand { ty: type_of(value), param: is_stored(block, value), uses });
    }
    operands
}

/// Constraints on a result. A gradient follows its parameter except for its own storage, and its partial is open. A
/// value stored to an argument has the argument's type.
fn pin_of(block: &Block, stmt: &Stmt, value: Value) -> Pin {
    if stmt.accumulate {
        let (own, owner) = (block.ty(value), block.owner_of(value).map(|owner| block.ty(owner)));
        let storage = if own.storage.is_empty() { owner.unwrap_or(own) } else { own }.storage.clone();
        return Pin { partial: None, storage: Some(storage), ..Pin::closed(owner.unwrap_or(own)) };
    }
    if block.arg_kind(value).is_some() { Pin::closed(block.ty(value)) } else { Pin::stated(block.ty(value)) }
}

/// Gives the results their natural types. If a pinned type differs, the statement writes a new value and a reshard
/// follows.
pub(crate) fn settle(block: &mut Block, mut stmt: Stmt, naturals: Vec<Type>) -> Vec<Stmt> {
    let mut after = Vec::new();
    for (place, natural) in naturals.into_iter().enumerate() {
        let value = stmt.results[place];
        let wanted = pin_of(block, &stmt, value).apply(&natural);
        if wanted == natural {
            block.values[value].ty = natural.closed().named_as(block.ty(value));
            continue;
        }
        let wanted = wanted.closed().named_as(block.ty(value));
        let natural = natural.closed().named_as(&wanted);
        let given = if stmt.accumulate { made(block, value, &natural) } else { natural };
        let fresh = block.add_value("", given);
        stmt.results[place] = fresh;
        block.values[value].ty = wanted.clone();
        if stmt.accumulate {
            // Only a kernel accumulates in place, so another statement must follow the reshard.
            let wanted = made(block, value, &wanted);
            let moved = block.add_value("", wanted);
            after.push(reshard_stmt(moved, fresh));
            let copy = Op::from(Unary(UnaryKind::Scale(1.0)));
            after.push(Stmt { accumulate: true, op: copy, ..reshard_stmt(value, moved) });
            stmt.accumulate = false;
        } else {
            after.push(reshard_stmt(value, fresh));
        }
    }
    std::iter::once(stmt).chain(after).collect()
}

/// Type of one micro-batch's gradient for an accumulated gradient of this type. Its element type is the parameter's,
/// which is also the type sent over the network.
pub(crate) fn made(block: &Block, gradient: Value, accumulated: &Type) -> Type {
    let dtype = block.owner_of(gradient).map_or(accumulated.dtype, |param| block.ty(param).dtype);
    Type { dtype, ..accumulated.clone() }
}

/// Statement `%result = reshard(%operand)`.
pub(crate) fn reshard_stmt(result: Value, operand: Value) -> Stmt {
    Stmt {
        results: vec![result],
        accumulate: false,
        op: Op::Reshard,
        operands: vec![operand],
        comments: Vec::new(),
        span: Span::default(),
    }
}

/// Number of reads and returns of each value, in all sections.
pub(crate) fn count_uses(block: &Block) -> FxHashMap<Value, usize> {
    let mut uses = FxHashMap::default();
    for section in &block.sections {
        let read = section.stmts.iter().flat_map(|stmt| &stmt.operands).chain(&section.ret);
        read.for_each(|&value| *uses.entry(value).or_insert(0) += 1);
    }
    uses
}
