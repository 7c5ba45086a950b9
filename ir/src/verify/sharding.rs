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

/// The source of a type: the statement or head, the name of the value, and the type as text.
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
        return report(Code::UnknownAxis, "the mesh does not have this axis".to_string());
    }
    let dim_axes: HashSet<_> = on_dims.collect();
    let mut seen = HashSet::new();
    for axis in all {
        let name = &model.mesh.axes[axis].name;
        if Some(axis) == model.mesh.pipeline() {
            report(
                Code::PipelineOnDim,
                format!("axis `{name}` partitions layers into stages and cannot shard a tensor"),
            );
        }
        if !seen.insert(axis) {
            let stored = dim_axes.contains(&axis) && ty.storage.contains(axis);
            match stored {
                true => {
                    report(Code::StorageOverlap, format!("axis `{name}` shards a dim and is a flat-shard axis too"))
                }
                false => report(Code::AxisTwice, format!("axis `{name}` is used twice in this type")),
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
                meet("the carried value of the repeat", left.ty, arg);
                if let (Some(wanted), Some(given)) = (left.cotangent, cotangent) {
                    meet("the cotangent of the carried value of the repeat", given, wanted);
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
    let early = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
    early.map(|arg| (block.ty(arg.value), cotangents.get(&arg.value).map(|&value| block.ty(value)))).collect()
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

fn meet(model: &Model, call: &Call, what: &str, given: &Type, wanted: &Type, found: &mut Diagnostics) {
    if given == wanted || !is_closed(given) || !is_closed(wanted) {
        return;
    }
    let block = &model.blocks[call.block];
    let printer = Printer::new(model);
    let (given, wanted) = (printer.ty(given, &block.values), printer.ty(wanted, &block.values));
    let message = format!("{what} has type {given}, but {wanted} is required");
    let subject = format!("call @{}", block.name);
    found.push(Diagnostic::new(Code::BoundaryLayout, message).at(call.span).subject(subject));
}
