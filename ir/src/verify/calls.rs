//! Checks the calls of a model. Invariants:
//!
//! 1. A value is an input of the model or a result of one call; a call reads only earlier values.
//! 2. A call passes one value for each value and input of its block, of the same tensor, then one constant or parameter for
//!    each constant and parameter, of the same tensor. States and implicit scalars are not passed. An input
//!    of a block must be an input of the model.
//! 3. A call names one result per value result of the block. The carried values of a repeat keep their types.
//! 4. Every instance of a parameter that a call names exists; a repeat runs at least once.
//! 5. The members of a unit are instances of parameters.
//! 6. If one call runs a sequence slice, all do: the slices of one block instance follow each other, from slice 0 to the last.

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{ArgKind, Block, Call, Model, ParamIndex, ParamRef, ResultKind, STEP_SCALARS};
use crate::ids::{ModelValue, Value};
use crate::text::Printer;
use crate::types::Type;
use std::collections::HashMap;

/// A tensor that a call passes: its name for messages, and its type.
type Passed<'a> = (String, &'a Type);

/// Checks all calls and units.
pub(super) fn check(model: &Model, found: &mut Diagnostics) {
    let mut known: HashMap<ModelValue, &Type> = model.inputs.iter().map(|input| (input.value, &input.ty)).collect();
    for call in &model.calls {
        let mut checker = Checker { model, call, block: &model.blocks[call.block], found };
        checker.repeat();
        checker.args(&known);
        checker.params();
        for (value, ty) in checker.results() {
            if known.insert(value, ty).is_some() {
                checker.report(Code::Redefinition, format!("`%{}` is defined twice", model.values[value]));
            }
        }
    }
    slices(model, found);
    units(model, found);
}

fn slices(model: &Model, found: &mut Diagnostics) {
    if model.calls.iter().all(|call| call.slice.is_none()) {
        return;
    }
    let order = (0..model.slices()).cycle();
    let wrong = model.calls.iter().zip(order).find(|(call, slice)| call.slice != Some(*slice) || call.instances() > 1);
    let incomplete =
        model.calls.last().filter(|call| call.slice.map(|last| last.saturating_add(1)) != Some(model.slices()));
    if let Some((call, wanted)) = wrong.or(incomplete.map(|call| (call, model.slices() - 1))) {
        let message =
            format!("the slices of a block instance must follow each other, one call each: expected `slice={wanted}`");
        let subject = format!("call @{}", model.blocks[call.block].name);
        found.push(Diagnostic::new(Code::CallMismatch, message).at(call.span).subject(subject));
    }
}

fn units(model: &Model, found: &mut Diagnostics) {
    let all = model.params.values().flat_map(|param| (0..param.instances()).map(|i| param.instance_name(i)));
    let names: std::collections::HashSet<String> = all.collect();
    for unit in &model.units {
        for member in unit.members.iter().filter(|member| !names.contains(*member)) {
            let message = format!("unit `@{}` has `%{member}`, which is not a parameter", unit.name);
            found.push(Diagnostic::new(Code::UnknownParam, message).subject(format!("unit @{}", unit.name)));
        }
    }
}

/// True for the constants that no call passes: scalars of the run, and results of the step graph.
fn is_implicit(model: &Model, name: &str) -> bool {
    let returned = model.step.iter().flat_map(|step| {
        let graph = &step.graph;
        graph[crate::graph::SectionKind::F].ret.iter().map(|&value| graph.value_name(value))
    });
    STEP_SCALARS.into_iter().chain(returned).any(|known| known == name)
}

struct Checker<'a, 'd> {
    model: &'a Model,
    call: &'a Call,
    block: &'a Block,
    found: &'d mut Diagnostics,
}

impl<'a> Checker<'a, '_> {
    fn report(&mut self, code: Code, message: String) {
        let subject = format!("call @{}", self.block.name);
        let note = format!("block @{} states its arguments and results", self.block.name);
        let diag = Diagnostic::new(code, message).at(self.call.span).subject(subject);
        let head = self.block.span;
        self.found.push(if head.end > head.start { diag.since(head, note) } else { diag });
    }

    fn ty(&self, ty: &Type) -> String {
        Printer::new(self.model).ty(ty, &self.block.values)
    }

    fn repeat(&mut self) {
        let Some(repeat) = &self.call.repeat else { return };
        if repeat.range.is_empty() {
            let range = format!("{}..{}", repeat.range.start, repeat.range.end);
            self.report(Code::BadRepeat, format!("the range {range} is empty"));
        }
    }

    fn args(&mut self, known: &HashMap<ModelValue, &'a Type>) {
        let wanted: Vec<(Value, ArgKind)> = self.early();
        if wanted.len() != self.call.args.len() {
            let message =
                format!("`@{}` takes {} values, {} are passed", self.block.name, wanted.len(), self.call.args.len());
            return self.report(Code::CallMismatch, message);
        }
        for (&passed, (arg, kind)) in self.call.args.iter().zip(wanted) {
            let name = &self.model.values[passed];
            let Some(ty) = known.get(&passed) else {
                self.report(Code::UseBeforeDefinition, format!("`%{name}` is read before it is defined"));
                continue;
            };
            let is_input = self.model.inputs.iter().any(|input| input.value == passed);
            if kind == ArgKind::Input && !is_input {
                let arg = self.block.value_name(arg);
                let message = format!("`%{arg}` is an input, but `%{name}` is not an input of the model");
                self.report(Code::CallMismatch, message);
            }
            self.same_tensor(&(format!("`%{name}`"), ty), arg);
        }
    }

    fn early(&self) -> Vec<(Value, ArgKind)> {
        let early = self.block.args.iter().filter(|arg| arg.kind.is_passed());
        early.map(|arg| (arg.value, arg.kind)).collect()
    }

    fn same_tensor(&mut self, passed: &Passed<'_>, arg: Value) {
        let want = self.block.ty(arg);
        if !passed.1.same_tensor(want) {
            let (got, want) = (self.ty(&passed.1.logical()), self.ty(&want.logical()));
            let message = format!("{} is {got}, `%{}` of the block is {want}", passed.0, self.block.value_name(arg));
            self.report(Code::CallMismatch, message);
        }
    }

    fn params(&mut self) {
        let passed: Vec<Passed<'a>> = self.call.params.iter().flat_map(|reference| self.resolve(reference)).collect();
        let late = self.block.args.iter().filter(|arg| match arg.kind {
            ArgKind::Param => true,
            ArgKind::Const => !is_implicit(self.model, self.block.value_name(arg.value)),
            _ => false,
        });
        let wanted: Vec<Value> = late.map(|arg| arg.value).collect();
        if wanted.len() != passed.len() {
            let (name, want) = (&self.block.name, wanted.len());
            let message = format!("`@{name}` takes {want} constants and parameters, {} are passed", passed.len());
            return self.report(Code::CallMismatch, message);
        }
        for (passed, arg) in passed.iter().zip(wanted) {
            self.same_tensor(passed, arg);
        }
    }

    /// The tensors of a parameter reference; checks that every instance exists.
    fn resolve(&mut self, reference: &ParamRef) -> Vec<Passed<'a>> {
        let model = self.model;
        let name = &reference.name;
        let constant = model.inputs.iter().find(|i| i.kind == ArgKind::Const && model.values[i.value] == *name);
        if let Some(constant) = constant {
            return vec![(format!("`%{name}`"), &constant.ty)];
        }
        let params: Vec<_> = model.params.values().filter(|param| param.name == *name).collect();
        if params.is_empty() {
            self.report(Code::UnknownParam, format!("there is no parameter `%{name}`"));
        }
        for param in &params {
            let last = match reference.index {
                ParamIndex::Whole => None,
                ParamIndex::At(index) => Some(index),
                ParamIndex::Repeat => Some(self.call.index(self.call.instances().saturating_sub(1))),
            };
            match (last, param.count) {
                (None, None) => {}
                (Some(last), Some(count)) if last < count => {}
                (Some(last), Some(count)) => {
                    self.report(Code::BadRepeat, format!("`%{name}[{last}]` does not exist: `%{name}` has {count}"));
                }
                (None, Some(_)) => self.report(Code::CallMismatch, format!("`%{name}` is an array; give an index")),
                (Some(_), None) => self.report(Code::CallMismatch, format!("`%{name}` is not an array")),
            }
        }
        params.into_iter().map(|param| (format!("`%{}`", param.instance_name(0)), &param.ty)).collect()
    }

    /// The results of the call with their types.
    fn results(&mut self) -> Vec<(ModelValue, &'a Type)> {
        let block = self.block;
        let forward = &block[crate::graph::SectionKind::F].ret;
        let values = block.results.iter().zip(forward).filter(|(kind, _)| **kind == ResultKind::Value);
        let types: Vec<&Type> = values.map(|(_, &value)| block.ty(value)).collect();
        if types.len() != self.call.results.len() {
            let named = self.call.results.len();
            let message = format!("`@{}` has {} value results, {named} are named", block.name, types.len());
            self.report(Code::CallMismatch, message);
        }
        if self.call.instances() > 1 {
            for (place, ty) in types.iter().enumerate() {
                match self.early().get(place) {
                    Some(&(arg, _)) => self.same_tensor(&(format!("result {place}, which is carried,"), ty), arg),
                    None => self.report(
                        Code::CallMismatch,
                        "the results of a repeat must match its first arguments".to_string(),
                    ),
                }
            }
        }
        self.call.results.iter().copied().zip(types).collect()
    }
}
