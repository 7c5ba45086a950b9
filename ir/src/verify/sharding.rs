//! Checks that every type can lie on the mesh, and that layouts agree where blocks meet. Invariants:
//!
//! 1. Axes exist, and a tensor uses each at most once: on a dim, on its storage, or for a debt.
//! 2. The pipeline axis stands on no tensor.
//! 3. The axes of an exact dim divide it; no dim has more shards than elements; a dim of unknown size is whole.
//! 4. What a call passes is laid out as the block takes it, parameters and the cotangents that come back included; what a
//!    repeat carries comes back as it went.

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{ArgKind, Block, Call, Model, ResultKind, SectionKind, Span};
use crate::ids::{ModelValue, Value};
use crate::text::Printer;
use crate::types::{Dim, Type};
use cranelift_entity::EntityRef;
use std::collections::{HashMap, HashSet};

/// Whether nothing about a type is left to the planner.
pub(super) fn is_closed(ty: &Type) -> bool {
    ty.dims.iter().all(|dim| !dim.open)
}

/// Checks all types.
pub(super) fn check_types(model: &Model, found: &mut Diagnostics) {
    let no_values = Default::default();
    let printer = Printer::new(model);
    for param in model.params.values() {
        let text = printer.ty(&param.ty, &no_values);
        check_type(model, &param.ty, (param.span, &param.instance_name(0), &text), found);
    }
    for input in &model.inputs {
        let text = printer.ty(&input.ty, &no_values);
        check_type(model, &input.ty, (Span::default(), &model.values[input.value], &text), found);
    }
    for block in model.blocks.values().chain(model.step.iter().map(|step| &step.graph)) {
        let places = places(block);
        for (value, data) in &block.values {
            let text = printer.ty(&data.ty, &block.values);
            let span = places.get(&value).copied().unwrap_or(block.span);
            check_type(model, &data.ty, (span, &data.name, &text), found);
        }
    }
}

/// The statement that defines each value.
fn places(block: &Block) -> HashMap<Value, Span> {
    let stmts = block.sections.iter().flat_map(|section| &section.stmts);
    stmts.flat_map(|stmt| stmt.results.iter().map(|&result| (result, stmt.span))).collect()
}

/// Where a type stands: the statement or head, the value's name, and the type as text.
type Stated<'a> = (Span, &'a str, &'a str);

fn check_type(model: &Model, ty: &Type, (span, name, text): Stated<'_>, found: &mut Diagnostics) {
    let mut report = |code: Code, message: String| {
        let diag = Diagnostic::new(code, message).at(span).focus(format!("%{name}"));
        found.push(diag.label(text).subject(format!("%{name}: {text}")));
    };
    let on_dims = ty.dims.iter().flat_map(|dim| dim.axes.iter());
    let partial = ty.partial_axes();
    let all: Vec<_> = on_dims.clone().chain(ty.storage.iter()).chain(partial.iter()).collect();
    if all.iter().any(|axis| axis.index() >= model.mesh.axes.len()) {
        return report(Code::UnknownAxis, "an axis is not on the mesh".to_string());
    }
    let dim_axes: HashSet<_> = on_dims.collect();
    let mut seen = HashSet::new();
    for axis in all {
        let name = &model.mesh.axes[axis].name;
        if Some(axis) == model.mesh.pipeline() {
            report(Code::PipelineOnDim, format!("`{name}` divides calls into stages; it shards no tensor"));
        }
        if !seen.insert(axis) {
            let stored = dim_axes.contains(&axis) && ty.storage.contains(axis);
            match stored {
                true => report(Code::StorageOverlap, format!("`{name}` is on a dim and on the storage")),
                false => report(Code::AxisTwice, format!("`{name}` stands twice in one type")),
            }
        }
    }
    for dim in &ty.dims {
        if let Err((code, message)) = check_dim(model, dim) {
            report(code, message);
        }
    }
}

fn check_dim(model: &Model, dim: &Dim) -> Result<(), (Code, String)> {
    let shards = model.mesh.size(&dim.axes);
    let axes = Printer::new(model).axes(&dim.axes);
    let data = dim.name.map(|name| &model.dims[name]);
    let name = data.map_or_else(|| dim.size.to_string(), |data| format!("{}={}", data.name, dim.size));
    if dim.count.is_some() && !dim.axes.is_empty() {
        return Err((Code::CountedSharded, format!("`{name}` has a size that only the run knows; it stays whole")));
    }
    if shards > dim.size {
        return Err((Code::AxesAboveDim, format!("{axes} has {shards} shards, more than the elements of `{name}`")));
    }
    if data.is_some_and(|data| data.indivisible) && !dim.size.is_multiple_of(shards) {
        return Err((
            Code::UnevenIndivisible,
            format!("{axes} has {shards} shards, which do not divide `{name}` (exact)"),
        ));
    }
    Ok(())
}

/// What a call leaves for later ones: the type of a value, and the type that its cotangent must have.
#[derive(Clone, Copy)]
struct Left<'a> {
    ty: &'a Type,
    cotangent: Option<&'a Type>,
}

/// Checks where blocks meet. The calls must fit their blocks.
pub(super) fn check_boundaries(model: &Model, found: &mut Diagnostics) {
    let inputs = model.inputs.iter().map(|input| (input.value, Left { ty: &input.ty, cotangent: None }));
    let mut known: HashMap<ModelValue, Left<'_>> = inputs.collect();
    for call in &model.calls {
        let block = &model.blocks[call.block];
        let mut meet = |what: &str, given: &Type, wanted: &Type| meet(model, call, what, given, wanted, found);
        let taken = taken(block);
        for (&value, (arg, cotangent)) in call.args.iter().zip(&taken) {
            let name = &model.values[value];
            let left = known[&value];
            meet(&format!("`%{name}`"), left.ty, arg);
            if let (Some(wanted), Some(given)) = (left.cotangent, cotangent) {
                meet(&format!("the cotangent of `%{name}`"), given, wanted);
            }
        }
        let passed = model.call_params(call, 0);
        for (&(param, _), arg) in passed.iter().zip(block.args_of(ArgKind::Param)) {
            meet(&format!("`%{}`", model.params[param].instance_name(0)), &model.params[param].ty, block.ty(arg));
        }
        let left = left(block);
        if call.instances() > 1 {
            for (left, (arg, cotangent)) in left.iter().zip(&taken) {
                meet("what the repeat carries", left.ty, arg);
                if let (Some(wanted), Some(given)) = (left.cotangent, cotangent) {
                    meet("the cotangent of what the repeat carries", given, wanted);
                }
            }
        }
        known.extend(call.results.iter().copied().zip(left));
    }
}

/// What a block takes: the type of each value and input, and that of the cotangent that it returns for it.
fn taken(block: &Block) -> Vec<(&Type, Option<&Type>)> {
    let cotangents: HashMap<Value, Value> =
        block.differentiable_args().zip(block[SectionKind::I].ret.iter().copied()).collect();
    let early = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
    early.map(|arg| (block.ty(arg.value), cotangents.get(&arg.value).map(|&value| block.ty(value)))).collect()
}

/// What a block leaves: its values, and the cotangents that it takes for them.
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

fn meet(model: &Model, call: &Call, what: &str, given: &Type, wanted: &Type, found: &mut Diagnostics) {
    if given == wanted || !is_closed(given) || !is_closed(wanted) {
        return;
    }
    let block = &model.blocks[call.block];
    let printer = Printer::new(model);
    let (given, wanted) = (printer.ty(given, &block.values), printer.ty(wanted, &block.values));
    let message = format!("{what} comes as {given} where {wanted} is taken");
    let subject = format!("call @{}", block.name);
    found.push(Diagnostic::new(Code::BoundaryLayout, message).at(call.span).subject(subject));
}
