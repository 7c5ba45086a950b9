//! Arguments and results of rows: `signature`, `classes`.

use super::Violation;
use crate::graph::{ArgKind, Model, ParamInstance};
use crate::ids::{BlockId, Reg, Value};
use crate::program::{Body, BodyKind, Class, Instr, Program, Source, Transfer};
use crate::types::DType;
use std::collections::HashSet;

pub(super) fn check(model: &Model, program: &Program, index: usize, found: &mut Vec<Violation>) {
    let class = &program.classes[index];
    let held: HashSet<&ParamInstance> = class.params.iter().collect();

    for (at, instr) in class.instrs.iter().enumerate() {
        let fault = match instr {
            Instr::Feed { out, input, .. } => {
                let declared = model.inputs.iter().find(|i| i.value == *input).map(|i| &i.ty);
                (declared.is_none() || class.ty(*out) != declared)
                    .then(|| "the type of a feed is not that of its input".to_string())
            }
            Instr::LossGrad { out, .. } => {
                let ty = class.ty(*out);
                let is_scalar = ty.is_some_and(|ty| ty.rank() == 0 && ty.dtype == DType::F32 && ty.partial.is_none());
                (!is_scalar).then(|| "the cotangent of a loss is an f32 scalar".to_string())
            }
            Instr::Add { into, from } => (class.ty(*into).is_none() || class.ty(*into) != class.ty(*from))
                .then(|| "an addition has two different types".to_string()),
            Instr::Start { transfer: Transfer::Recv { ty: sent, .. }, token, .. } => {
                let is_sent = class.result_of(*token).is_some_and(|reg| class.ty(reg) == Some(sent));
                (!is_sent).then(|| "a receive must give a register of its type".to_string())
            }
            Instr::Start { transfer, token, operand } if transfer.is_host_copy() => {
                host_copy(model, program, class, transfer, *operand, class.result_of(*token))
            }
            Instr::Out { reg, .. } => {
                let reduced = class.ty(*reg).is_some_and(|ty| ty.partial.is_none());
                (!reduced).then(|| "an output is partial".to_string())
            }
            Instr::Run { .. } => run(model, program, class, instr),
            Instr::Start { .. } | Instr::Wait { .. } | Instr::Free(_) => None,
        };
        found.extend(fault.map(|text| Violation::in_row("signature", index, at, text)));
        if let Instr::Run { body, call, instance, .. } = instr
            && let Some(call) = model.calls.get(*call)
            && program.bodies.get(*body).is_some_and(|body| body.block.is_some())
        {
            let lacking = model.call_params(call, *instance).into_iter().find(|param| !held.contains(param));
            if let Some((param, instance)) = lacking {
                let name = model.params[param].instance_name(instance);
                let text = format!("%{name} is not among the parameters of the class");
                found.push(Violation::in_row("classes", index, at, text));
            }
        }
    }
}

/// A copy takes a bundle and gives one, but for states: those come from and go to their dedicated places.
fn host_copy(
    model: &Model,
    program: &Program,
    class: &Class,
    transfer: &Transfer,
    operand: Option<Reg>,
    result: Option<Reg>,
) -> Option<String> {
    if let Transfer::LoadStates { body, call, instance } = transfer {
        let called = called_block(model, *call, *instance);
        let body = program.bodies.get(*body).filter(|body| body.kind == BodyKind::U && !body.keeps.is_empty());
        if body.is_none_or(|body| body.block.is_none() || body.block != called) {
            return Some("states are loaded for a run of `U` that has some in host memory".to_string());
        }
    }
    let takes_bundle = operand.is_some_and(|reg| class.holds_saved(reg));
    let gives_bundle = result.is_some_and(|reg| class.holds_saved(reg));
    let (takes, gives) = match transfer {
        Transfer::LoadStates { .. } => (operand.is_none(), gives_bundle),
        Transfer::StoreStates { .. } => (takes_bundle, result.is_none()),
        _ => (takes_bundle, gives_bundle),
    };
    (!takes || !gives).then(|| "a copy to or from host memory takes a bundle or gives one, or both".to_string())
}

/// The block of a run; `None` if the model has no such call or the call no such instance.
fn called_block(model: &Model, call: usize, instance: u32) -> Option<BlockId> {
    model.calls.get(call).filter(|call| call.has_instance(instance)).map(|call| call.block)
}

fn run(model: &Model, program: &Program, class: &Class, instr: &Instr) -> Option<String> {
    let Instr::Run { body, call, instance, microbatch, args, bundles, results, keep, .. } = instr else { return None };
    let Some(body) = program.bodies.get(*body) else { return Some(format!("there is no {body}")) };
    if body.kind.per_microbatch() != microbatch.is_some_and(|mb| mb < program.microbatches) {
        return Some(format!("`@{}` has a wrong micro-batch", body.name));
    }
    if body.block.is_some() && called_block(model, *call, *instance) != body.block {
        return Some(format!("call {call} has no instance {instance} of the block of `@{}`", body.name));
    }
    let row: Vec<Value> = body.args.iter().filter(|arg| arg.source == Source::Row).map(|arg| arg.value).collect();
    if !same_types(body, &row, class, args) {
        return Some(format!("the arguments do not match `@{}`", body.name));
    }
    if !same_types(body, &body.results, class, results) {
        return Some(format!("the results do not match `@{}`", body.name));
    }
    if keep.is_some() == body.keeps.is_empty() || !bundles.iter().chain(keep).all(|&reg| class.holds_saved(reg)) {
        return Some(format!("`@{}` has wrong bundles", body.name));
    }
    let block = body.block.and_then(|id| model.blocks.get(id));
    for arg in &body.args {
        let wanted = match arg.source {
            Source::Param => ArgKind::Param,
            Source::State => ArgKind::State,
            Source::Scalar => ArgKind::Const,
            Source::Row | Source::Saved | Source::Gradient => continue,
        };
        if block.and_then(|block| block.arg_kind(arg.value)) != Some(wanted) {
            return Some(format!("`@{}` takes arguments from the row that its block does not have", body.name));
        }
    }
    None
}

fn same_types(body: &Body, values: &[Value], class: &Class, regs: &[Reg]) -> bool {
    values.len() == regs.len()
        && values
            .iter()
            .zip(regs)
            .all(|(&value, &reg)| body.values.get(value).is_some_and(|data| class.ty(reg) == Some(&data.ty)))
}
