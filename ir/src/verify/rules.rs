//! Checks every statement against its op's sharding rule. Invariants, for statements none of whose dims is open:
//!
//! 1. A factor has the same axes in every dim that it forms alone. A compound dim has the axes of its factors in order, and
//!    each shard of an inner factor is within one index of the outer factor.
//! 2. An axis shards at most one factor. A factor that needs replication has no axes.
//! 3. Flat shards are allowed only if the rule is pointwise, and then all tensors have the same flat-shard axes.
//! 4. Operands are partial only if the op is jointly linear in them. All are partial over the same axes, and no factor has
//!    one of these axes.
//! 5. A result is partial over the axes of its partial operands and of the marked factors that it lacks, and over no others.
//!    The result of a pointwise reduction is also partial over the flat-shard axes.
//! 6. A collective's results have the types that the collective gives for its operands.
//! 7. Counts of filled rows are those of the rows: see [`super::ragged`].

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{Block, Model, Span, Stmt};
use crate::ids::Value;
use crate::mesh::Axes;
use crate::ops::{Collective, Op, OpDef};
use crate::rule::{Instance, Rule, holds};
use crate::text::Printer;
use crate::types::{Partial, PartialKind, Type};

use super::compound::{add_compound, factored_dims};
use super::ragged::Known;
use super::sharding::is_closed;
use std::collections::HashMap;

/// Checks the statements for which `chosen` is true.
pub(super) fn check(model: &Model, found: &mut Diagnostics, chosen: fn(&Stmt) -> bool) {
    for block in model.blocks.values().chain(model.step.iter().map(|step| &step.graph)) {
        let mut origins: HashMap<Value, &Stmt> = HashMap::new();
        let mut known = Known::default();
        for stmt in block.sections.iter().flat_map(|section| &section.stmts) {
            let checker = Checker { model, block, stmt };
            let checked = checker.stmt().and(known.check(block, stmt));
            if let (true, Err(wrong)) = (chosen(stmt), checked) {
                found.push(checker.place(wrong, &origins));
            }
            origins.extend(stmt.results.iter().map(|&result| (result, stmt)));
        }
    }
}

/// An error of a statement, with the operand that causes it.
pub(super) struct Wrong {
    code: Code,
    message: String,
    operand: Option<Value>,
    help: Option<String>,
}

impl Wrong {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Wrong {
        Wrong { code, message: message.into(), operand: None, help: None }
    }

    fn operand(self, operand: Value) -> Wrong {
        Wrong { operand: Some(operand), ..self }
    }

    fn help(self, help: impl Into<String>) -> Wrong {
        Wrong { help: Some(help.into()), ..self }
    }
}

/// The op's rule for the tensors of a statement.
struct Ruled<'a> {
    def: &'a dyn OpDef,
    instance: Instance,
    operands: Vec<&'a Type>,
    results: Vec<&'a Type>,
}

impl<'a> Ruled<'a> {
    /// The types of all its tensors.
    fn types(&self) -> impl Iterator<Item = &'a Type> + '_ {
        self.operands.iter().chain(&self.results).copied()
    }
}

struct Checker<'a> {
    model: &'a Model,
    block: &'a Block,
    stmt: &'a Stmt,
}

impl<'a> Checker<'a> {
    fn printer(&self) -> Printer<'a> {
        Printer::new(self.model)
    }

    fn name(&self, value: Value) -> &'a str {
        self.block.value_name(value)
    }

    fn print(&self, ty: &Type) -> String {
        self.printer().ty(ty, &self.block.values)
    }

    /// The diagnostic, with the statement that defines the operand.
    fn place(&self, wrong: Wrong, origins: &HashMap<Value, &Stmt>) -> Diagnostic {
        let subject = self.printer().stmt(self.stmt, &self.block.values);
        let mut diag = Diagnostic::new(wrong.code, wrong.message).at(self.stmt.span).subject(subject);
        if let Some(operand) = wrong.operand {
            diag = diag.focus(format!("%{}", self.name(operand)));
            diag = match origins.get(&operand) {
                Some(origin) => diag.since(origin.span, self.printer().stmt(origin, &self.block.values)),
                None => diag
                    .since(Span::default(), format!("%{}: {}", self.name(operand), self.print(self.block.ty(operand)))),
            };
        }
        match wrong.help {
            Some(help) => diag.help(help),
            None => diag,
        }
    }

    fn stmt(&self) -> Result<(), Wrong> {
        let operands = self.block.types(&self.stmt.operands);
        let results = self.block.types(&self.stmt.results);
        if !operands.iter().chain(&results).all(|ty| is_closed(ty)) {
            return Ok(());
        }
        match &self.stmt.op {
            Op::Collective(collective) => self.collective(collective, &operands, &results),
            Op::Reshard => Ok(()),
            Op::Kernel(op) => self.ruled(op.def(), operands, results),
        }
    }

    fn collective(&self, collective: &Collective, operands: &[&Type], results: &[&Type]) -> Result<(), Wrong> {
        let name = collective.name();
        if collective.over().is_empty() {
            return Err(Wrong::new(Code::BadCollective, format!("`{name}` has no axes")));
        }
        let counts = collective.check_counts(operands);
        counts.map_err(|why| Wrong::new(Code::BadCollective, format!("`{name}`: {why}")))?;
        for (place, (operand, result)) in collective.moved(operands).iter().zip(results).enumerate() {
            let value = self.stmt.operands[place];
            let want = collective.check_sizes(&self.model.mesh, operand).and_then(|()| collective.result_type(operand));
            let message = match want {
                Ok(want) if want == **result => continue,
                Ok(want) => {
                    let (got, want) = (self.print(result), self.print(&want));
                    format!("`{name}` of `%{}` gives {want}, not {got}", self.name(value))
                }
                Err(why) => format!("`{name}`: {why}"),
            };
            return Err(Wrong::new(Code::BadCollective, message).operand(value));
        }
        Ok(())
    }

    fn ruled(&self, def: &'a dyn OpDef, operands: Vec<&'a Type>, results: Vec<&'a Type>) -> Result<(), Wrong> {
        let text = def.rule(&operands, &results);
        let instance = Rule::parse(&text).and_then(|rule| rule.instantiate(&operands, &results));
        let instance = instance.map_err(|why| Wrong::new(Code::RuleViolated, format!("`{}` {why}", def.name())))?;
        let ruled = Ruled { def, instance, operands, results };
        let axes = self.factors(&ruled)?;
        let storage = self.storage(&ruled)?;
        let passed = self.passed(&ruled, &axes)?;
        for result in 0..ruled.results.len() {
            self.unreduced(&ruled, result, &axes, &storage, &passed)?;
        }
        Ok(())
    }

    /// The axes of each factor (invariants 1 and 2).
    fn factors(&self, ruled: &Ruled<'_>) -> Result<Vec<Axes>, Wrong> {
        let Ruled { instance, operands, results, .. } = ruled;
        let dims = factored_dims(instance, operands, results);
        let op = ruled.def.name();
        let mut axes: Vec<Option<Axes>> = vec![None; instance.factors.len()];
        for (dim, sharded) in &dims {
            let &[factor] = dim.as_slice() else { continue };
            let known = axes[factor].get_or_insert_with(|| sharded.axes.clone());
            if *known != sharded.axes {
                let (one, other) = (self.sharded_over(known), self.sharded_over(&sharded.axes));
                let factor = &instance.factors[factor];
                let message =
                    format!("`{op}`: `{}` is sharded over {one} in one tensor and {other} in another", factor.name);
                return Err(Wrong::new(Code::RuleViolated, message));
            }
        }
        add_compound(instance, &dims, &mut axes);
        let axes: Vec<Axes> = axes.into_iter().map(Option::unwrap_or_default).collect();
        for (dim, sharded) in &dims {
            let joined: Axes = dim.iter().flat_map(|&factor| axes[factor].iter()).collect();
            if joined != sharded.axes {
                let message = format!("`{op}`: the axes of a compound dim are not those of its factors, in order");
                return Err(Wrong::new(Code::RuleViolated, message));
            }
        }
        if !instance.compounds_hold(&axes, &self.model.mesh) {
            let message = format!("`{op}`: a shard of a compound dim would span several indices of an outer factor");
            return Err(Wrong::new(Code::RuleViolated, message));
        }
        self.distinct(ruled, &axes)?;
        Ok(axes)
    }

    /// The axes of a dim in a message.
    fn sharded_over(&self, axes: &Axes) -> String {
        if axes.is_empty() { "nothing".to_string() } else { self.printer().axes(axes) }
    }

    fn distinct(&self, ruled: &Ruled<'_>, axes: &[Axes]) -> Result<(), Wrong> {
        let factors = &ruled.instance.factors;
        let op = ruled.def.name();
        for (index, factor) in factors.iter().enumerate() {
            if factor.replicated && !axes[index].is_empty() {
                let sharded = self.printer().axes(&axes[index]);
                let message = format!("`{op}`: `{}` needs replication, but it is sharded over {sharded}", factor.name);
                let help = format!("gather it first: all_gather(.., over={sharded})");
                return Err(Wrong::new(Code::RuleViolated, message).help(help));
            }
            if let Some(other) = (0..index).find(|&other| !axes[other].is_disjoint(&axes[index])) {
                let message = format!("`{op}`: `{}` and `{}` share an axis", factors[other].name, factor.name);
                return Err(Wrong::new(Code::RuleViolated, message));
            }
        }
        Ok(())
    }

    /// The flat-shard axes of all tensors (invariant 3).
    fn storage(&self, ruled: &Ruled<'_>) -> Result<Axes, Wrong> {
        let pointwise = ruled.instance.pointwise;
        if ruled.types().any(|ty| !ty.storage.is_empty() && (!pointwise || ty.rank() == 0)) {
            let message = format!("`{}` does not accept flat shards", ruled.def.name());
            let help = "gather them first: all_gather(.., over={..}) without `dim`";
            return Err(Wrong::new(Code::BadStorage, message).help(help));
        }
        let tensors: Vec<_> = ruled.types().filter(|ty| !pointwise || ty.rank() > 0).collect();
        let storage = tensors.first().map_or_else(Axes::none, |ty| ty.storage.clone());
        if tensors.iter().any(|ty| ty.storage != storage) {
            let message = format!("`{}`: its tensors have different flat-shard axes", ruled.def.name());
            return Err(Wrong::new(Code::BadStorage, message));
        }
        Ok(storage)
    }

    /// The axes that the operands, and so the results, are partial over (invariant 4).
    fn passed(&self, ruled: &Ruled<'_>, axes: &[Axes]) -> Result<Axes, Wrong> {
        let partials: Vec<Option<&Partial>> = ruled.operands.iter().map(|ty| ty.partial.as_ref()).collect();
        let unreduced: Vec<usize> = (0..partials.len()).filter(|&place| partials[place].is_some()).collect();
        let Some((&first, partial)) = unreduced.first().and_then(|first| Some((first, partials[*first]?))) else {
            return Ok(Axes::none());
        };
        let (value, name) = (self.stmt.operands[first], self.name(self.stmt.operands[first]));
        let sum = self.printer().axes(&partial.axes);
        let op = ruled.def.name();
        let linear = ruled.def.facts().linear.groups(partials.len());
        let is_linear = linear
            .iter()
            .any(|group| group.iter().all(|place| unreduced.contains(place)) && group.len() == unreduced.len());
        let message = if partial.kind == PartialKind::Max {
            format!("`{op}` needs a reduced operand, but `%{name}` is a partial maximum over {sum}")
        } else if !is_linear {
            format!("`{op}` needs a reduced operand, but `%{name}` is a partial sum over {sum}")
        } else if unreduced.iter().any(|&place| partials[place] != Some(partial)) {
            format!("the operands of `{op}` are partial over different axes")
        } else if axes.iter().any(|factor| !factor.is_disjoint(&partial.axes)) {
            format!("`%{name}` is partial over {sum}, which also shards `{op}`")
        } else {
            return Ok(partial.axes.clone());
        };
        let help = format!("reduce it first: all_reduce(%{name}, over={sum})");
        Err(Wrong::new(Code::PendingSum, message).operand(value).help(help))
    }

    /// Checks that a result states its pending reduction (invariant 5).
    fn unreduced(
        &self,
        ruled: &Ruled<'_>,
        result: usize,
        axes: &[Axes],
        storage: &Axes,
        passed: &Axes,
    ) -> Result<(), Wrong> {
        let factors = &ruled.instance.factors;
        let tensor = &ruled.instance.results[result];
        let marked: Vec<usize> =
            (0..factors.len()).filter(|&index| factors[index].partial.is_some() && !holds(tensor, index)).collect();
        let sharded = marked.iter().filter(|&&index| !axes[index].is_empty());
        let kinds: Vec<PartialKind> = sharded.filter_map(|&index| factors[index].partial).collect();
        let mut left = marked.iter().fold(passed.clone(), |all, &index| all.union(&axes[index]));
        if ruled.instance.pointwise && !marked.is_empty() {
            left = left.union(storage);
        }
        let kind = kinds.first().copied().unwrap_or(PartialKind::Sum);
        if kinds.iter().any(|&other| other != kind) || (kind == PartialKind::Max && !passed.is_empty()) {
            let message =
                format!("`{}` would give a result that is both a partial sum and a partial maximum", ruled.def.name());
            return Err(Wrong::new(Code::PendingSum, message));
        }
        let want = ruled.results[result].partial_over(kind, &left);
        if want.partial != ruled.results[result].partial {
            let name = self.name(self.stmt.results[result]);
            let (want, got) = (self.print(&want), self.print(ruled.results[result]));
            let message = format!("`%{name}` has another pending reduction: it is {want}, not {got}");
            return Err(Wrong::new(Code::PendingSum, message));
        }
        Ok(())
    }
}
