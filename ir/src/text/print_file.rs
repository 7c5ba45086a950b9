//! Printing of files, item by item.

use super::File;
use super::print::{Printer, join_args, print_comments, print_float, wrap};
use crate::dim_role::DimRole;
use crate::graph::{ArgKind, Call, Init, Model, Param, ParamIndex, ParamRef, Unit};
use crate::mesh::Mesh;
use crate::staged::{Stage, StagePart, Staged};
use crate::types::Dims;

/// The canonical text of a file: groups of items with an empty line between.
pub(super) fn print(file: &File) -> String {
    let model = &file.model;
    let printer = Printer::new(model);
    let mut groups = vec![print_head(model)];
    groups.push(model.params.values().map(|param| print_param(&printer, param)).collect());
    groups.push(model.units.iter().map(print_unit).collect());
    if !model.name.is_empty() || !model.calls.is_empty() || !model.inputs.is_empty() {
        groups.push(print_model(&printer, model));
    }
    groups.extend(model.blocks.values().map(|block| printer.block(block)));
    groups.extend(model.step.iter().map(|step| printer.step(step)));
    groups.extend(file.staged.iter().map(|staged| print_staged(model, staged)));
    groups.extend(file.schedule.iter().map(|schedule| schedule.to_string()));
    groups.extend(file.program.iter().map(|program| printer.local().program(model, program)));
    groups.push(print_comments(&model.trailing_comments, ""));
    let groups: Vec<String> = groups.into_iter().filter(|group| !group.is_empty()).collect();
    print_comments(&model.comments, "") + &groups.join("\n")
}

fn print_head(model: &Model) -> String {
    let mesh = if model.has_mesh { print_mesh(&model.mesh) } else { String::new() };
    let dims = if model.dims.is_empty() { String::new() } else { print_dims(&model.dims) };
    mesh + &dims
}

fn print_unit(unit: &Unit) -> String {
    let members: Vec<String> = unit.members.iter().map(|name| format!("%{name}")).collect();
    wrap(&format!("unit @{} = [", unit.name), &members, "]", "") + "\n"
}

fn print_mesh(mesh: &Mesh) -> String {
    let axes: Vec<String> = mesh.axes.values().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
    let groups = mesh.groups.iter().map(|group| {
        let names: Vec<&str> = group.axes.iter().map(|axis| mesh.axes[axis].name.as_str()).collect();
        format!("{}=[{}]", group.name, names.join(","))
    });
    let groups: Vec<String> = groups.collect();
    let tail = if groups.is_empty() { String::new() } else { format!(" where {}", groups.join(", ")) };
    format!("mesh @{} = [{}]{tail}\n", mesh.name, axes.join(", "))
}

fn print_dims(dims: &Dims) -> String {
    let dims = dims.values().map(|dim| {
        let indivisible = if dim.indivisible { " indivisible" } else { "" };
        let size = format!("{}{}", if dim.bounded { "<=" } else { "=" }, dim.size);
        let role = dim.role.map_or(DimRole::NONE, DimRole::word);
        let role = if dim.role == DimRole::of_name(&dim.name) { String::new() } else { format!(" {role}") };
        format!("{}{indivisible}{size}{role}", dim.name)
    });
    wrap("dims [", &dims.collect::<Vec<_>>(), "]", "") + "\n"
}

fn print_param(printer: &Printer<'_>, param: &Param) -> String {
    let name = print_param_name(param, param.count);
    let init = match param.init {
        Init::Normal(deviation) => format!("normal({})", print_float(deviation)),
        Init::Constant(value) => format!("constant({})", print_float(value)),
        Init::Waves(fall) => format!("waves({})", print_float(fall)),
        Init::LogCount(count) => format!("log_count({})", print_float(count)),
        Init::LogUniform(low, high) => format!("log_uniform({}, {})", print_float(low), print_float(high)),
        Init::InverseSoftplus(low, high) => format!("inverse_softplus({}, {})", print_float(low), print_float(high)),
    };
    let ty = printer.ty(&param.ty, &Default::default());
    let (comments, decay) = (print_comments(&param.comments, ""), param.decay);
    let frozen = if param.frozen { " frozen=true" } else { "" };
    let part_of = param.part_of.as_ref().map_or(String::new(), |whole| format!(" part_of={whole}"));
    format!("{comments}param {name}: {ty} init={init} decay={decay}{frozen}{part_of}\n")
}

/// `%layer[32].w1`; the number is the count in a declaration and the instance elsewhere.
pub(super) fn print_param_name(param: &Param, number: Option<u32>) -> String {
    let index = number.map_or(String::new(), |number| format!("[{number}]"));
    let field = param.field.as_ref().map_or(String::new(), |field| format!(".{field}"));
    format!("%{}{index}{field}", param.name)
}

fn print_model(printer: &Printer<'_>, model: &Model) -> String {
    let inputs = model.inputs.iter().map(|input| {
        let kind = if input.kind == ArgKind::Const { "const" } else { "input" };
        format!("%{}: {kind} {}", model.values[input.value], printer.ty(&input.ty, &Default::default()))
    });
    let tail = if model.offload_states { ") offload_states {" } else { ") {" };
    let head = wrap(&format!("model @{}(", model.name), &inputs.collect::<Vec<_>>(), tail, "");
    let width = model.calls.iter().map(|call| print_results(model, call).len()).max().unwrap_or(0);
    let calls = model.calls.iter().map(|call| print_call(model, call, width));
    format!("{head}\n{}}}\n", calls.collect::<String>())
}

fn print_results(model: &Model, call: &Call) -> String {
    call.results.iter().map(|&value| format!("%{}", model.values[value])).collect::<Vec<_>>().join(", ")
}

fn print_call(model: &Model, call: &Call, width: usize) -> String {
    let results = match print_results(model, call) {
        names if names.is_empty() => String::new(),
        names => format!("{names:width$} = "),
    };
    let how = match &call.repeat {
        Some(repeat) => format!("repeat {} in {}..{}", repeat.variable, repeat.range.start, repeat.range.end),
        None => "call".to_string(),
    };
    let args = call.args.iter().map(|&value| format!("%{}", model.values[value])).collect();
    let params = call.params.iter().map(|param| print_param_ref(call, param)).collect();
    let head = format!("  {results}{how} @{}(", model.blocks[call.block].name);
    let slice = call.slice.map_or(String::new(), |slice| format!(" slice={slice}"));
    let tail = format!("){slice}{}", if call.offload { " offload" } else { "" });
    print_comments(&call.comments, "  ") + &wrap(&head, &join_args(args, params), &tail, "  ") + "\n"
}

fn print_param_ref(call: &Call, reference: &ParamRef) -> String {
    match reference.index {
        ParamIndex::Whole => format!("%{}", reference.name),
        ParamIndex::At(index) => format!("%{}[{index}]", reference.name),
        ParamIndex::Repeat => {
            let variable = call.repeat.as_ref().map_or("i", |repeat| repeat.variable.as_str());
            format!("%{}[{variable}]", reference.name)
        }
    }
}

fn print_staged(model: &Model, staged: &Staged) -> String {
    let stages = staged.stages.iter().enumerate().map(|(number, stage)| print_stage(model, number, stage));
    format!("staged @{} {{\n{}}}\n", staged.name, stages.collect::<String>())
}

fn print_stage(model: &Model, number: usize, stage: &Stage) -> String {
    let parts: Vec<String> = stage.parts.iter().map(|part| print_stage_part(model, part)).collect();
    let cost = &stage.cost;
    let seconds = [("f", cost.f), ("i", cost.i), ("w", cost.w)].map(|(name, s)| format!("{name}={}", print_float(s)));
    let bytes = format!("saved={} saved_for_w={} state={}", cost.saved, cost.saved_for_w, cost.state);
    let ranks: Vec<String> = stage.ranks.iter().map(u32::to_string).collect();
    format!("  stage {number} rank {}: {} {} {bytes}\n", ranks.join("+"), parts.join(", "), seconds.join(" "))
}

fn print_stage_part(model: &Model, part: &StagePart) -> String {
    let call = &model.calls[part.call];
    let name = &model.blocks[call.block].name;
    match call.repeat {
        Some(_) => format!("@{name}[{}..{}]", part.instances.start, part.instances.end),
        None => format!("@{name}"),
    }
}
