//! Checks that every type is valid on the mesh, and that shardings agree where blocks meet. Invariants:
//!
//! 1. Axes exist, and a type uses each at most once: on a dim, as a flat-shard axis, or as an axis that it is partial over.
//! 2. The pipeline axis shards no tensor.
//! 3. The axes of an indivisible dim divide it; no dim has more shards than elements; a dynamic dim is unsharded.
//! 4. The arguments of a call have the shardings that the block declares. So do its parameters and the cotangents that it
//!    returns. The carried values of a repeat have the same sharding as arguments and as results.

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{ArgKind, Block, Call, Model, ResultKind, SectionKind, Span};
use crate::ids::{ModelValue, Value};
use crate::text::Printer;
use crate::types::{Dim, Type};
use cranelift_entity::EntityRef;
use std::collections::{HashMap, HashSet};

/// True if the planner has nothing to decide about a type.
pub(super) fn is_closed(ty: &Type) -> bool {
    ty.dims.iter().all(|dim| !dim.open)
}

/// Checks all types.
pub(super) fn check_types(model: &Model, found: &mut Diagnostics) {
    let no_values = Default::default();
    let printer = Printer::new(model);
    for param in model.params.values() {
        let text = printer.ty(&param.ty, &no_values);
        Stated { span: param.span, name: &param.instance_name(0), text: &text }.check(model, &param.ty, found);
    }
    for input in &model.inputs {
        let text = printer.ty(&input.ty, &no_values);
        let name = &model.values[input.value];
        Stated { span: Span::default(), name, text: &text }.check(model, &input.ty, found);
    }
    for block in model.blocks.values().chain(model.step.iter().map(|step| &step.graph)) {
        let places = places(block);
        for (value, data) in &block.values {
            let text = printer.ty(&data.ty, &block.values);
            let span = places.get(&value).copied().unwrap_or(block.span);
            Stated { span, name: &data.name, text: &text }.check(model, &data.ty, found);
        }
    }
}

/// The statement that defines each value.
fn places(block: &Block) -> HashMap<Value, Span> {
    let stmts = block.sections.iter().flat_map(|section| &section.stmts);
    stmts.flat_map(|stmt| stmt.results.iter().map(|&result| (result, stmt.span))).collect()
}

/// The source of a type.
struct Stated<'a> {
    /// The statement or head.
    span: Span,
    /// The name of the value.
    name: &'a str,
    /// The type as text.
    text: &'a str,
}

impl Stated<'_> {
    fn diagnostic(&self, code: Code, message: String) -> Diagnostic {
        let Stated { span, name, text } = *self;
        let diag = Diagnostic::new(code, message).at(span).focus(format!("%{name}"));
        diag.label(text).subject(format!("%{name}: {text}"))
    }

    fn check(&self, model: &Model, ty: &Type, found: &mut Diagnostics) {
        let on_dims = ty.dims.iter().flat_map(|dim| dim.axes.iter());
        let partial = ty.partial_axes();
        let all: Vec<_> = on_dims.clone().chain(ty.storage.iter()).chain(partial.iter()).collect();
        if all.iter().any(|axis| axis.index() >= model.mesh.axes.len()) {
            let message = "the mesh does not have this axis".to_string();
            return found.push(self.diagnostic(Code::UnknownAxis, message));
        }
        let dim_axes: HashSet<_> = on_dims.collect();
        let mut seen = HashSet::new();
        for axis in all {
            let name = &model.mesh.axes[axis].name;
            if Some(axis) == model.mesh.pipeline() {
                let message = format!("axis `{name}` partitions layers into stages and cannot shard a tensor");
                found.push(self.diagnostic(Code::PipelineOnDim, message));
            }
            if !seen.insert(axis) {
                let stored = dim_axes.contains(&axis) && ty.storage.contains(axis);
                let (code, message) = match stored {
                    true => (Code::StorageOverlap, format!("axis `{name}` shards a dim and is a flat-shard axis too")),
                    false => (Code::AxisTwice, format!("axis `{name}` is used twice in this type")),
                };
                found.push(self.diagnostic(code, message));
            }
        }
        for dim in &ty.dims {
            if let Err((code, message)) = check_dim(model, dim) {
                found.push(self.diagnostic(code, message));
            }
        }
    }
}

fn check_dim(model: &Model, dim: &Dim) -> Result<(), (Code, String)> {
    let shards = model.mesh.size(&dim.axes);
    let axes = Printer::new(model).axes(&dim.axes);
    let data = dim.name.map(|name| &model.dims[name]);
    let name = data.map_or_else(|| dim.size.to_string(), |data| format!("{}={}", data.name, dim.size));
    if dim.count.is_some() && !dim.axes.is_empty() {
        return Err((Code::CountedSharded, format!("dynamic dim `{name}` cannot be sharded")));
    }
    if shards > dim.size {
        return Err((Code::AxesAboveDim, format!("{axes} has {shards} shards, more than the elements of `{name}`")));
    }
    if data.is_some_and(|data| data.indivisible) && !dim.size.is_multiple_of(shards) {
        return Err((
            Code::UnevenIndivisible,
            format!("{axes} has {shards} shards, which do not divide the indivisible dim `{name}`"),
        ));
    }
    Ok(())
}

/// A result of a call, for later calls: the type of the value, and the required type of its cotangent.
#[derive(Clone, Copy)]
struct Left<'a> {
    ty: &'a Type,
    cotangent: Option<&'a Type>,
}

/// Checks the shardings where blocks meet. The calls must match their blocks.
pub(super) fn check_boundaries(model: &Model, found: &mut Diagnostics) {
    let inputs = model.inputs.iter().map(|input| (input.value, Left { ty: &input.ty, cotangent: None }));
    let mut known: HashMap<ModelValue, Left<'_>> = inputs.collect();
    for call in &model.calls {
        let block = &model.blocks[call.block];
        let mut boundary = Boundary { model, call, found };
        let taken = taken(block);
        for (&value, (arg, cotangent)) in call.args.iter().zip(&taken) {
            let name = &model.values[value];
            let left = known[&value];
            boundary.meet(&format!("`%{name}`"), left.ty, arg);
            if let (Some(wanted), Some(given)) = (left.cotangent, cotangent) {
                boundary.meet(&format!("the cotangent of `%{name}`"), given, wanted);
            }
        }
        let passed = model.call_params(call, 0);
        for (&(param, _), arg) in passed.iter().zip(block.args_of(ArgKind::Param)) {
            let param = &model.params[param];
            boundary.meet(&format!("`%{}`", param.instance_name(0)), &param.ty, block.ty(arg));
        }
        let left = left(block);
        if call.instances() > 1 {
            for (left, (arg, cotangent)) in left.iter().zip(&taken) {
                boundary.meet("the carried value of the repeat", left.ty, arg);
                if let (Some(wanted), Some(given)) = (left.cotangent, cotangent) {
                    boundary.meet("the cotangent of the carried value of the repeat", given, wanted);
                }
            }
        }
        known.extend(call.results.iter().copied().zip(left));
    }
}

/// The inputs of a block: the type of each value and input, and of the cotangent that the block returns for it.
fn taken(block: &Block) -> Vec<(&Type, Option<&Type>)> {
    let cotangents: HashMap<Value, Value> =
        block.differentiable_args().zip(block[SectionKind::I].ret.iter().copied()).collect();
    let passed = block.passed_args();
    passed.map(|arg| (block.ty(arg), cotangents.get(&arg).map(|&value| block.ty(value)))).collect()
}

/// The outputs of a block: the type of each value, and of the cotangent that the block takes for it.
fn left(block: &Block) -> Vec<Left<'_>> {
    let indices = block.differentiable_results().map(|(index, _)| index);
    let cotangents: HashMap<usize, Value> = indices.zip(block[SectionKind::I].args.iter().copied()).collect();
    let results = block.results.iter().zip(&block[SectionKind::F].ret).enumerate();
    let values = results.filter(|(_, (kind, _))| **kind == ResultKind::Value);
    let left = values.map(|(index, (_, &value))| Left {
        ty: block.ty(value),
        cotangent: cotangents.get(&index).map(|&value| block.ty(value)),
    });
    left.collect()
}

/// The boundary of a call.
struct Boundary<'a> {
    model: &'a Model,
    call: &'a Call,
    found: &'a mut Diagnostics,
}

impl Boundary<'_> {
    /// Checks that what is given has the type that is required.
    fn meet(&mut self, what: &str, given: &Type, wanted: &Type) {
        if given == wanted || !is_closed(given) || !is_closed(wanted) {
            return;
        }
        let block = &self.model.blocks[self.call.block];
        let printer = Printer::new(self.model);
        let (given, wanted) = (printer.ty(given, &block.values), printer.ty(wanted, &block.values));
        let message = format!("{what} has type {given}, but {wanted} is required");
        let subject = format!("call @{}", block.name);
        self.found.push(Diagnostic::new(Code::BoundaryLayout, message).at(self.call.span).subject(subject));
    }
}
