//! How one statement is sharded: axes for each letter of its rule, and a debt that passes through.
//!
//! [`choose`](crate::choose) decides it from the operands (used by `propagate` and `expand`);
//! [`recover`](crate::recover) reads it back from the types (used by `reshard`).

use crate::sections::Hint;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::{Op, OpDef};
use ir::rule::{Instance, Rule};
use ir::types::{Partial, PartialKind, Type};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// Axes per letter, a passing debt, and the storage of pointwise ops.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Assignment {
    /// Per letter of the rule.
    pub(crate) letters: Vec<Axes>,
    /// What operands bring and the results keep.
    pub(crate) passing: Option<Passing>,
    /// Of all tensors of a pointwise op.
    pub(crate) storage: Axes,
}

/// A debt that operands bring and the result keeps.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Passing {
    /// The operands that owe it, together.
    pub(crate) operands: Vec<usize>,
    /// What they owe.
    pub(crate) partial: Partial,
}

/// What is fixed of a result before its statement is decided.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Pin {
    /// Per dim: the axes it must have; `None` is open.
    pub(crate) dims: Vec<Option<Axes>>,
    /// Per dim that is open: the axes that it must at least have, first.
    pub(crate) least: Vec<Axes>,
    /// Whether someone has stated it of a value that is not stored to.
    pub(crate) is_stated: bool,
    /// The debt it must have; `None` is open.
    pub(crate) partial: Option<Option<Partial>>,
    /// The storage it must have; `None` is open.
    pub(crate) storage: Option<Axes>,
}

impl Pin {
    /// Everything is as the type says.
    pub(crate) fn closed(ty: &Type) -> Pin {
        let dims = ty.dims.iter().map(|dim| Some(dim.axes.clone())).collect();
        let least = Vec::new();
        Pin { dims, least, is_stated: false, partial: Some(ty.partial.clone()), storage: Some(ty.storage.clone()) }
    }

    /// What the type says where it is not open: the debt counts only if no dim is open, and scalars are open.
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

    /// The axes that a dim must have.
    pub(crate) fn of(&self, place: usize) -> Axes {
        let open = || self.least.get(place).cloned().unwrap_or_default();
        self.dims.get(place).cloned().flatten().unwrap_or_else(open)
    }

    /// Whether a dim must have the axis.
    pub(crate) fn has(&self, axis: AxisId) -> bool {
        (0..self.dims.len()).any(|place| self.of(place).contains(axis))
    }

    /// The type that holds the pin and is otherwise the natural one, as far as its axes are left free.
    pub(crate) fn apply(&self, natural: &Type) -> Type {
        let mut ty = natural.clone();
        let pinned = self.dims.iter().flatten().chain(&self.least).fold(Axes::none(), |all, axes| all.union(axes));
        for (place, (dim, pin)) in ty.dims.iter_mut().zip(&self.dims).enumerate() {
            let least = self.least.get(place).cloned().unwrap_or_default();
            let free = |axes: &Axes, from: usize| -> Axes {
                axes.iter()
                    .take(from)
                    .chain(axes.iter().skip(from).take_while(|&axis| !pinned.contains(axis)))
                    .collect()
            };
            let natural = if least.is_prefix_of(&dim.axes) { free(&dim.axes, least.len()) } else { least };
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

/// One operand as `choose` sees it.
pub(crate) struct Operand<'a> {
    /// Its type, closed.
    pub(crate) ty: &'a Type,
    /// Whether it is a parameter or a state: its sharding goes before others'.
    pub(crate) param: bool,
    /// How often the value is read in all.
    pub(crate) uses: usize,
}

/// One result as `choose` sees it.
pub(crate) struct ResultSite<'a> {
    /// Its type: the sizes count, and where it is pinned the axes.
    pub(crate) ty: &'a Type,
    /// What is fixed.
    pub(crate) pin: Pin,
    /// How it is wanted where nothing is fixed.
    pub(crate) hint: Hint,
}

/// Parameters go before other operands, then the earlier one.
pub(crate) fn reading_order(operands: &[Operand<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..operands.len()).collect();
    order.sort_by_key(|&index| !operands[index].param);
    order
}

/// The rule of a statement for its tensors.
///
/// # Errors
/// The op's own rule does not fit its tensors: a fault of the op.
pub(crate) fn instantiate(def: &dyn OpDef, operands: &[&Type], results: &[&Type]) -> Result<Instance, String> {
    parsed(def.rule(operands, results))
        .and_then(|rule| rule.instantiate(operands, results))
        .map_err(|why| format!("rule of `{}`: {why}", def.name()))
}

thread_local! {
    /// Rules that have been parsed, by their text: each is asked for again in every pass.
    static RULES: RefCell<FxHashMap<String, Rc<Rule>>> = RefCell::default();
}

fn parsed(text: String) -> Result<Rc<Rule>, String> {
    RULES.with_borrow_mut(|rules| {
        if let Some(rule) = rules.get(&text) {
            return Ok(Rc::clone(rule));
        }
        let rule = Rc::new(Rule::parse(&text)?);
        rules.insert(text, Rc::clone(&rule));
        Ok(rule)
    })
}

/// Shares the axes of a dim among its letters: a compound's outer letter takes what divides it, once it is cut to single
/// indices the next takes the rest.
pub(crate) fn split(mesh: &Mesh, instance: &Instance, letters: &[usize], axes: &Axes) -> Vec<(usize, Axes)> {
    let mut rest = axes.iter().peekable();
    let mut shares = Vec::new();
    for (place, &letter) in letters.iter().enumerate() {
        let size = instance.letters[letter].size;
        let mut share = Axes::none();
        while let Some(&axis) = rest.peek() {
            let longer = share.union(&Axes::one(axis));
            if place + 1 < letters.len() && !mesh.is_even(size, &longer) {
                break;
            }
            share = longer;
            rest.next();
        }
        let complete = mesh.size(&share) == size;
        shares.push((letter, share));
        if !complete {
            break;
        }
    }
    shares
}

impl Assignment {
    /// The type that an operand must have.
    pub(crate) fn operand_type(&self, instance: &Instance, index: usize, current: &Type) -> Type {
        let tensor = &instance.operands[index];
        let passes = self.passing.as_ref().filter(|passing| passing.operands.contains(&index));
        let storage = if tensor.is_empty() { Axes::none() } else { self.storage.clone() };
        let mut ty = Type { storage, partial: passes.map(|passing| passing.partial.clone()), ..current.clone() };
        for (dim, axes) in ty.dims.iter_mut().zip(instance.dim_axes(tensor, &self.letters)) {
            (dim.axes, dim.open) = (axes, false);
        }
        ty
    }

    /// The type that a result has.
    pub(crate) fn result_type(&self, instance: &Instance, index: usize, stated: &Type) -> Type {
        let tensor = &instance.results[index];
        let stored = instance.pointwise && !tensor.is_empty();
        let storage = if stored { self.storage.clone() } else { Axes::none() };
        let mut ty = Type { storage, ..stated.logical() };
        for (dim, axes) in ty.dims.iter_mut().zip(instance.dim_axes(tensor, &self.letters)) {
            dim.axes = axes;
        }
        let own = instance.partial(index, &self.letters);
        let mut axes = own.as_ref().map_or_else(Axes::none, |partial| partial.axes.clone());
        if let Some(passing) = &self.passing {
            axes = axes.union(&passing.partial.axes);
        }
        // A reduction of a stored tensor leaves its storage axes pending too.
        if instance.pointwise && tensor.is_empty() && instance.letters.iter().any(|letter| letter.partial.is_some()) {
            axes = axes.union(&self.storage);
        }
        ty.partial_over(own.map_or(PartialKind::Sum, |partial| partial.kind), &axes)
    }
}

/// Whether sharding a `!` letter of the op is dealt with by expanding it.
pub(crate) fn is_expandable(op: &Op) -> bool {
    match op {
        Op::Kernel(op) => op.def().expands_when_cut(),
        Op::Made(_) => true,
        Op::Collective(_) | Op::Reshard => false,
    }
}
