//! Checks the blocks and the step graph of a model, apart from shardings. Invariants:
//!
//! 1. A name refers to one value of a block. A value is defined once, by an argument or a statement; only `U` stores into
//!    parameters and states, and into each once.
//! 2. A value is defined before it is read: by an argument, an earlier statement, or an earlier section.
//! 3. The number, element types and sizes of a statement's results are those that its op gives. An accumulated gradient is
//!    always f32.
//! 4. Values and inputs come before constants, parameters and states. A state belongs to a parameter by name.
//! 5. `F` returns one value a result; a loss is an f32 scalar.
//! 6. `I` takes the cotangents of the differentiable results and returns those of the differentiable arguments.
//! 7. `+=` is allowed in `W` only; its result is the gradient of a parameter. `W` has neither arguments nor results.
//!    `U`, which runs once a step, reads only accumulated gradients from earlier sections.
//! 8. `G`, which runs once a step before all micro-batches, reads parameters and its own values; `F`, `I` and `W` read those.
//! 9. `U` returns one f32 scalar per argument of the step graph, unless it is empty. The step graph takes and returns scalars.

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{ArgKind, Block, GRADIENT, Model, SectionKind, Span, Stmt};
use crate::ids::Value;
use crate::ops::Iota;
use crate::text::Printer;
use crate::types::{DType, Type};
use std::collections::{HashMap, HashSet};

/// Checks all blocks and the step graph.
pub(super) fn check(model: &Model, found: &mut Diagnostics) {
    for block in model.blocks.values() {
        let mut checker = Checker::new(model, block, found);
        checker.names();
        checker.args();
        for kind in SectionKind::ALL {
            checker.section(kind);
        }
        checker.forward();
        checker.input_gradient();
        checker.update(model);
    }
    if let Some(step) = &model.step {
        let mut checker = Checker::new(model, &step.graph, found);
        checker.names();
        checker.section(SectionKind::F);
        checker.scalars(step.graph.args.iter().map(|arg| arg.value).collect());
        checker.scalars(step.graph[SectionKind::F].ret.clone());
    }
}

struct Checker<'a> {
    block: &'a Block,
    printer: Printer<'a>,
    found: &'a mut Diagnostics,
    /// The values defined so far, each with the statement that defines it.
    defined: HashMap<Value, Span>,
    stored: HashSet<Value>,
    /// The values that differ between micro-batches: arguments, and results of the statements before `U` without `+=`.
    passing: HashSet<Value>,
    /// The values of `G`.
    gathered: HashSet<Value>,
}

impl<'a> Checker<'a> {
    fn new(model: &'a Model, block: &'a Block, found: &'a mut Diagnostics) -> Checker<'a> {
        let defined = block.args.iter().map(|arg| (arg.value, block.span)).collect();
        let passing = [ArgKind::Value, ArgKind::Input].into_iter().flat_map(|kind| block.args_of(kind)).collect();
        let (stored, gathered) = (HashSet::new(), HashSet::new());
        Checker { block, printer: Printer::new(model), found, defined, stored, passing, gathered }
    }

    fn name(&self, value: Value) -> String {
        format!("`%{}`", self.block.value_name(value))
    }

    fn ty(&self, ty: &Type) -> String {
        self.printer.ty(ty, &self.block.values)
    }

    /// Reports at a statement.
    fn at_stmt(&mut self, stmt: &Stmt, code: Code, message: String) {
        self.at_value(stmt, None, code, message);
    }

    /// Reports at a value of a statement.
    fn at_value(&mut self, stmt: &Stmt, value: Option<Value>, code: Code, message: String) {
        let subject = self.printer.stmt(stmt, &self.block.values);
        let focus = value.map_or(String::new(), |value| format!("%{}", self.block.value_name(value)));
        self.found.push(Diagnostic::new(code, message).at(stmt.span).focus(focus).subject(subject));
    }

    /// Reports at the block's head.
    fn at_head(&mut self, code: Code, message: String) {
        let subject = format!("block @{}", self.block.name);
        self.found.push(Diagnostic::new(code, message).at(self.block.span).subject(subject));
    }

    fn names(&mut self) {
        let mut seen = HashSet::new();
        for data in self.block.values.values() {
            if !seen.insert(data.name.as_str()) {
                self.at_head(Code::Redefinition, format!("two values are named `%{}`", data.name));
            }
        }
    }

    fn args(&mut self) {
        if self.block.args.windows(2).any(|pair| !pair[0].kind.is_passed() && pair[1].kind.is_passed()) {
            let message = "values and inputs must come before constants, parameters and states".to_string();
            self.at_head(Code::MisplacedArgument, message);
        }
        for state in self.block.args_of(ArgKind::State).collect::<Vec<_>>() {
            let owner = self.block.owner_of(state).and_then(|owner| self.block.arg_kind(owner));
            if owner != Some(ArgKind::Param) {
                let message = format!("{} is not the state of a parameter; name it `%w.m`", self.name(state));
                self.at_head(Code::MisplacedArgument, message);
            }
        }
    }

    fn section(&mut self, kind: SectionKind) {
        let block = self.block;
        let section = &block[kind];
        for &arg in &section.args {
            self.define(arg, None, kind);
        }
        self.passing.extend(&section.args);
        for stmt in &section.stmts {
            self.read(stmt, kind);
            self.results(stmt);
            self.accumulation(stmt, kind);
            for &result in &stmt.results {
                self.define(result, Some(stmt), kind);
            }
            match kind {
                SectionKind::G => self.gathered.extend(&stmt.results),
                SectionKind::U => {}
                _ if stmt.accumulate => {}
                _ => self.passing.extend(&stmt.results),
            }
        }
        for &value in &section.ret {
            if !self.defined.contains_key(&value) {
                let message = format!("{} is returned, but not defined", self.name(value));
                self.at_head(Code::UseBeforeDefinition, message);
            }
        }
        if matches!(kind, SectionKind::G | SectionKind::W) && !(section.args.is_empty() && section.ret.is_empty()) {
            self.at_head(Code::SectionShape, format!("`{kind:?}` takes and returns nothing"));
        }
    }

    fn define(&mut self, value: Value, stmt: Option<&Stmt>, kind: SectionKind) {
        let span = stmt.map_or(self.block.span, |stmt| stmt.span);
        let Some(first) = self.defined.insert(value, span) else { return };
        let keeps = matches!(self.block.arg_kind(value), Some(ArgKind::Param | ArgKind::State));
        if kind == SectionKind::U && keeps && self.stored.insert(value) {
            return;
        }
        let name = self.name(value);
        let diag = Diagnostic::new(Code::Redefinition, format!("{name} is defined twice")).at(span);
        self.found.push(diag.since(first, format!("{name} is first defined")));
    }

    fn read(&mut self, stmt: &Stmt, kind: SectionKind) {
        for &operand in &stmt.operands {
            if kind == SectionKind::U && self.passing.contains(&operand) {
                let message = format!("`U` reads {}, which differs between micro-batches", self.name(operand));
                self.at_value(stmt, Some(operand), Code::BadAccumulation, message);
            }
            if kind == SectionKind::U && self.gathered.contains(&operand) {
                let message = format!("`U` reads {} of `G`, which only micro-batches read", self.name(operand));
                self.at_value(stmt, Some(operand), Code::SectionShape, message);
            }
            let is_held = self.block.arg_kind(operand).is_none_or(|kind| kind == ArgKind::Param);
            if kind == SectionKind::G && !is_held {
                let message = format!("`G` reads {}, which is no parameter", self.name(operand));
                self.at_value(stmt, Some(operand), Code::SectionShape, message);
            }
            if !self.defined.contains_key(&operand) {
                let message = format!("{} is read before it is defined", self.name(operand));
                self.at_value(stmt, Some(operand), Code::UseBeforeDefinition, message);
            }
        }
    }

    fn results(&mut self, stmt: &Stmt) {
        let block = self.block;
        let name = stmt.op.name();
        if stmt.operands.is_empty() && !Iota::NAMES.contains(&name) {
            return self.at_stmt(stmt, Code::OperandCount, format!("`{name}` needs operands"));
        }
        let operands: Vec<&Type> = stmt.operands.iter().map(|&value| block.ty(value)).collect();
        let inferred = match stmt.op.infer(&operands) {
            Ok(inferred) => inferred,
            Err(why) => return self.at_stmt(stmt, Code::OperandMismatch, format!("`{name}`: {why}")),
        };
        if inferred.len() != stmt.results.len() {
            let message = format!("`{name}` gives {} results, not {}", inferred.len(), stmt.results.len());
            return self.at_stmt(stmt, Code::ResultCount, message);
        }
        for (&result, mut want) in stmt.results.iter().zip(inferred) {
            if stmt.accumulate {
                want.dtype = DType::F32;
            }
            let stated = block.ty(result);
            if !stated.same_tensor(&want) {
                let (stated, want) = (self.ty(&stated.logical()), self.ty(&want.logical()));
                let message = format!("`{name}` gives {} as {want}, not {stated}", self.name(result));
                self.at_value(stmt, Some(result), Code::ResultType, message);
            }
        }
    }

    fn accumulation(&mut self, stmt: &Stmt, kind: SectionKind) {
        if !stmt.accumulate {
            return;
        }
        if kind != SectionKind::W {
            return self.at_stmt(stmt, Code::BadAccumulation, format!("`+=` in `{kind:?}`; only `W` accumulates"));
        }
        for &result in &stmt.results {
            let block = self.block;
            let owner = block.value_name(result).strip_suffix(GRADIENT).and_then(|owner| block.find(owner));
            let param = owner.filter(|&owner| block.arg_kind(owner) == Some(ArgKind::Param));
            let Some(param) = param else {
                let message =
                    format!("{} is not the gradient of a parameter; name it `%w{GRADIENT}`", self.name(result));
                self.at_value(stmt, Some(result), Code::BadAccumulation, message);
                continue;
            };
            if block.ty(result).sizes() != block.ty(param).sizes() {
                let message = format!("the sizes of {} differ from those of {}", self.name(result), self.name(param));
                self.at_value(stmt, Some(result), Code::BadAccumulation, message);
            }
        }
    }

    fn forward(&mut self) {
        let block = self.block;
        let ret = &block[SectionKind::F].ret;
        if ret.len() != block.results.len() {
            let message = format!("`F` returns {} values, the head has {} results", ret.len(), block.results.len());
            return self.at_head(Code::ReturnMismatch, message);
        }
        for (kind, &value) in block.results.iter().zip(ret) {
            let ty = block.ty(value);
            if kind.is_loss() && (ty.rank() > 0 || ty.dtype != DType::F32) {
                let message = format!("the loss {} must be an f32 scalar, it is {}", self.name(value), self.ty(ty));
                self.at_head(Code::ReturnMismatch, message);
            }
        }
    }

    fn input_gradient(&mut self) {
        let block = self.block;
        let section = &block[SectionKind::I];
        if section.args.is_empty() && section.stmts.is_empty() && section.ret.is_empty() {
            return;
        }
        let results: Vec<Value> = block.differentiable_results().map(|(_, value)| value).collect();
        self.cotangents("takes", &section.args, &results, Code::SectionShape);
        let args: Vec<Value> = block.differentiable_args().collect();
        self.cotangents("returns", &section.ret, &args, Code::ReturnMismatch);
    }

    fn cotangents(&mut self, verb: &str, given: &[Value], wanted: &[Value], code: Code) {
        if given.len() != wanted.len() {
            let message = format!("`I` {verb} {} cotangents, there are {} to {verb}", given.len(), wanted.len());
            let message = message.replace("to takes", "to take").replace("to returns", "to return");
            return self.at_head(code, message);
        }
        for (&cotangent, &value) in given.iter().zip(wanted) {
            if !self.block.ty(cotangent).same_tensor(self.block.ty(value)) {
                let (got, want) = (self.ty(self.block.ty(cotangent)), self.ty(self.block.ty(value)));
                let names = (self.name(cotangent), self.name(value));
                let message = format!("`I` {verb} {}: {got} as the cotangent of {}: {want}", names.0, names.1);
                self.at_head(code, message);
            }
        }
    }

    fn update(&mut self, model: &Model) {
        let ret = self.block[SectionKind::U].ret.clone();
        let wanted = model.step.as_ref().map_or(0, |step| step.graph.args.len());
        let idle = ret.is_empty() && self.block[SectionKind::U].stmts.is_empty();
        if !idle && ret.len() != wanted {
            let message = format!("`U` returns {} values, the step graph takes {wanted}", ret.len());
            self.at_head(Code::ReturnMismatch, message);
        }
        self.scalars(ret);
    }

    fn scalars(&mut self, values: Vec<Value>) {
        for value in values {
            let ty = self.block.ty(value);
            if ty.rank() > 0 || ty.dtype != DType::F32 {
                let message = format!("{} must be f32[], it is {}", self.name(value), self.ty(ty));
                self.at_head(Code::ReturnMismatch, message);
            }
        }
    }
}
