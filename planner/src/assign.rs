//! Factor assignment of one statement: mesh axes per factor of its rule, and a pass-through partial sum.
//!
//! [`choose`](crate::choose) decides the assignment from the operands, for `propagate` and `decompose`.
//! [`recover`](crate::recover) infers the assignment from the types, for `reshard`.

use crate::fault::Fault;
use crate::sections::Hint;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::{Op, OpDef};
use ir::rule::{Instance, Rule, RuleError};
use ir::types::{Partial, PartialKind, Type};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// Axes per factor, a pass-through partial, and the storage of pointwise ops.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Assignment {
    /// Mesh axes of each factor of the rule.
    pub(crate) factors: Vec<Axes>,
    /// Partial that the operands have and the results retain.
    pub(crate) passing: Option<Passing>,
    /// Storage axes, common to all tensors of a pointwise op.
    pub(crate) storage: Axes,
}

/// Partial that operands have and the result retains.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Passing {
    /// Indices of the operands that are partial.
    pub(crate) operands: Vec<usize>,
    /// Kind and axes of the partial.
    pub(crate) partial: Partial,
}

/// Constraints on a result, known before its statement is decided.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Pin {
    /// Required axes per dim; `None` is open.
    pub(crate) dims: Vec<Option<Axes>>,
    /// Required leading axes per open dim.
    pub(crate) least: Vec<Axes>,
    /// True if the constraint is written in the file, and the value is no target of a store.
    pub(crate) is_stated: bool,
    /// Required partial; `None` is open.
    pub(crate) partial: Option<Option<Partial>>,
    /// Required storage axes; `None` is open.
    pub(crate) storage: Option<Axes>,
}

impl Pin {
    /// Pin that requires the type exactly.
    pub(crate) fn closed(ty: &Type) -> Pin {
        let dims = ty.dims.iter().map(|dim| Some(dim.axes.clone())).collect();
        let least = Vec::new();
        Pin { dims, least, is_stated: false, partial: Some(ty.partial.clone()), storage: Some(ty.storage.clone()) }
    }

    /// Pin of the closed parts of a type. The partial is pinned only if no dim is open; scalars are open.
    pub(crate) fn stated(ty: &Type) -> Pin {
        let dims: Vec<_> = ty.dims.iter().map(|dim| (!dim.open).then(|| dim.axes.clone())).collect();
        let whole = !dims.is_empty() && dims.iter().all(Option::is_some);
        let least = ty.dims.iter().map(|dim| if dim.open { dim.axes.clone() } else { Axes::none() }).collect();
        Pin {
            least,
            is_stated: true,
            partial: whole.then(|| ty.partial.clone()),
            storage: whole.then(|| ty.storage.clone()),
            dims,
        }
    }

    /// Required axes of a dim.
    pub(crate) fn of(&self, place: usize) -> Axes {
        let pinned = self.dims.get(place).and_then(Option::as_ref);
        pinned.or_else(|| self.least.get(place)).cloned().unwrap_or_default()
    }

    /// Returns whether a dim is required to have the axis.
    pub(crate) fn has(&self, axis: AxisId) -> bool {
        (0..self.dims.len()).any(|place| self.of(place).contains(axis))
    }

    /// Type that satisfies the pin and otherwise follows `natural`, except for axes that the pin already uses.
    pub(crate) fn apply(&self, natural: &Type) -> Type {
        let mut ty = natural.clone();
        let pinned = self.dims.iter().flatten().chain(&self.least).fold(Axes::none(), |all, axes| all.union(axes));
        for (place, (dim, pin)) in ty.dims.iter_mut().zip(&self.dims).enumerate() {
            let least = self.least.get(place).cloned().unwrap_or_default();
            let natural = if least.is_prefix_of(&dim.axes) {
                let further = dim.axes.iter().skip(least.len()).take_while(|&axis| !pinned.contains(axis));
                least.iter().chain(further).collect()
            } else {
                least
            };
            dim.axes = pin.clone().unwrap_or(natural);
        }
        if let Some(storage) = &self.storage {
            ty.storage = storage.clone();
        }
        match (&self.partial, &natural.partial) {
            (Some(partial), _) => ty.partial = partial.clone(),
            (None, Some(partial)) => ty = ty.partial_over(partial.kind, &partial.axes.without(&ty.sharded_axes())),
            (None, None) => {}
        }
        ty
    }
}

/// Operand of a statement, as input of `choose`.
pub(crate) struct Operand<'a> {
    /// Closed type of the operand.
    pub(crate) ty: &'a Type,
    /// True if the operand is a parameter or optimizer state, whose sharding takes precedence.
    pub(crate) param: bool,
    /// Number of reads of the value in the entire block.
    pub(crate) uses: usize,
}

/// Result of a statement, as input of `choose`.
pub(crate) struct ResultSite<'a> {
    /// Type of the result: its sizes, and its axes where pinned.
    pub(crate) ty: &'a Type,
    /// Constraints on the result.
    pub(crate) pin: Pin,
    /// Preferred sharding where nothing is pinned.
    pub(crate) hint: Hint,
}

/// Operand indices by precedence: parameters first, then by position.
pub(crate) fn reading_order(operands: &[Operand<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..operands.len()).collect();
    order.sort_by_key(|&index| !operands[index].param);
    order
}

/// Instantiates a statement's rule for its tensors.
///
/// # Errors
/// The op's own rule does not fit its tensors, which is a bug in the op.
pub(crate) fn instantiate(def: &dyn OpDef, operands: &[&Type], results: &[&Type]) -> Result<Instance, Fault> {
    parsed(def.rule(operands, results))
        .and_then(|rule| rule.instantiate(operands, results))
        .map_err(|why| Fault::Rule { op: def.name(), why: why.to_string() })
}

thread_local! {
    /// Cache of parsed rules, by rule text; every pass needs them.
    static RULES: RefCell<FxHashMap<String, Rc<Rule>>> = RefCell::default();
}

fn parsed(text: String) -> Result<Rc<Rule>, RuleError> {
    RULES.with_borrow_mut(|rules| {
        if let Some(rule) = rules.get(&text) {
            return Ok(Rc::clone(rule));
        }
        let rule = Rc::new(Rule::parse(&text)?);
        rules.insert(text, Rc::clone(&rule));
        Ok(rule)
    })
}

/// Splits the axes of a dim among its factors. In a compound dim the outer factor takes the axes that divide it. Once
/// the outer factor is split into single indices, the next factor takes the remaining axes.
pub(crate) fn split(mesh: &Mesh, instance: &Instance, factors: &[usize], axes: &Axes) -> Vec<(usize, Axes)> {
    let mut rest = axes.iter().peekable();
    let mut shares = Vec::new();
    for (place, &factor) in factors.iter().enumerate() {
        let size = instance.factors[factor].size;
        let mut share = Axes::none();
        while let Some(&axis) = rest.peek() {
            let longer = share.union(&Axes::one(axis));
            if place + 1 < factors.len() && !mesh.is_even(size, &longer) {
                break;
            }
            share = longer;
            rest.next();
        }
        let complete = mesh.size(&share) == size;
        shares.push((factor, share));
        if !complete {
            break;
        }
    }
    shares
}

impl Assignment {
    /// Required type of an operand.
    pub(crate) fn operand_type(&self, instance: &Instance, index: usize, current: &Type) -> Type {
        let tensor = &instance.operands[index];
        let passes = self.passing.as_ref().filter(|passing| passing.operands.contains(&index));
        let storage = if tensor.is_empty() { Axes::none() } else { self.storage.clone() };
        let mut ty = Type { storage, partial: passes.map(|passing| passing.partial.clone()), ..current.clone() };
        for (dim, axes) in ty.dims.iter_mut().zip(instance.dim_axes(tensor, &self.factors)) {
            (dim.axes, dim.open) = (axes, false);
        }
        ty
    }

    /// Natural type of a result.
    pub(crate) fn result_type(&self, instance: &Instance, index: usize, stated: &Type) -> Type {
        let tensor = &instance.results[index];
        let stored = instance.pointwise && !tensor.is_empty();
        let storage = if stored { self.storage.clone() } else { Axes::none() };
        let mut ty = Type { storage, ..stated.logical() };
        for (dim, axes) in ty.dims.iter_mut().zip(instance.dim_axes(tensor, &self.factors)) {
            dim.axes = axes;
        }
        let own = instance.partial(index, &self.factors);
        let mut axes = own.as_ref().map_or_else(Axes::none, |partial| partial.axes.clone());
        if let Some(passing) = &self.passing {
            axes = axes.union(&passing.partial.axes);
        }
        // A reduction of a flat-sharded tensor is also partial over the storage axes.
        if instance.pointwise && tensor.is_empty() && instance.factors.iter().any(|factor| factor.partial.is_some()) {
            axes = axes.union(&self.storage);
        }
        ty.partial_over(own.map_or(PartialKind::Sum, |partial| partial.kind), &axes)
    }
}

/// Returns whether decomposition can handle a sharded `!` factor of the op.
pub(crate) fn is_expandable(op: &Op) -> bool {
    op.is_composite() || op.facts().expands_when_sharded
}
