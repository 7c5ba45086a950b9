//! Arguments and results of rows: `signature`, `classes`.

use super::Violation;
use crate::graph::{ArgKind, Model, ParamInstance};
use crate::ids::{Reg, Token, Value};
use crate::program::{Body, BodyKind, Class, Instr, Program, Source, Transfer};
use crate::types::{DType, Type};
use std::collections::HashSet;

pub(super) fn check(model: &Model, program: &Program, index: usize, found: &mut Vec<Violation>) {
    let class = &program.classes[index];
    let held: HashSet<&ParamInstance> = class.params.iter().collect();
    let ty = |reg: Reg| class.regs.get(reg).and_then(|data| data.ty.as_ref());
    for (at, instr) in class.instrs.iter().enumerate() {
        let fault = match instr {
            Instr::Feed { out, input, .. } => {
                let declared = model.inputs.iter().find(|i| i.value == *input).map(|i| &i.ty);
                (declared.is_none() || ty(*out) != declared)
                    .then(|| "the type of a feed is not that of its input".to_string())
            }
            Instr::LossGrad { out } => {
                let scalar = |ty: &Type| ty.rank() == 0 && ty.dtype == DType::F32 && ty.partial.is_none();
                (!ty(*out).is_some_and(scalar)).then(|| "the cotangent of a loss is an f32 scalar".to_string())
            }
            Instr::Add { into, from } => (ty(*into).is_none() || ty(*into) != ty(*from))
                .then(|| "an addition has two different types".to_string()),
            Instr::Start { transfer: Transfer::Recv { ty: sent, .. }, token, .. } => {
                let result = class.instrs.iter().find_map(|other| match other {
                    Instr::Wait { token: waited, result } if waited == token => *result,
                    _ => None,
                });
                let right = result.is_some_and(|reg| ty(reg) == Some(sent));
                (!right).then(|| "a receive must give a register of its type".to_string())
            }
            Instr::Start { transfer, token, operand } if transfer.is_host_copy() => {
                host_copy(model, program, class, (*token, transfer, *operand))
            }
            Instr::Out { reg, .. } => {
                let reduced = ty(*reg).is_some_and(|ty| ty.partial.is_none());
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
            let text = |(param, instance)| {
                format!("%{} is not among the parameters of the class", model.params[param].instance_name(instance))
            };
            found.extend(lacking.map(|param| Violation::in_row("classes", index, at, text(param))));
        }
    }
}

/// A copy takes a bundle and gives one, but for states: those come from and go to their dedicated places.
fn host_copy(
    model: &Model,
    program: &Program,
    class: &Class,
    (token, transfer, operand): (Token, &Transfer, Option<Reg>),
) -> Option<String> {
    let result = class.instrs.iter().find_map(|other| match other {
        Instr::Wait { token: waited, result } if *waited == token => *result,
        _ => None,
    });
    let is_bundle = |reg: Option<Reg>| reg.and_then(|reg| class.regs.get(reg)).is_some_and(|data| data.ty.is_none());
    if let Transfer::LoadStates { body, call, instance } = transfer {
        let called = model.calls.get(*call).filter(|call| *instance < call.instances()).map(|call| call.block);
        let body = program.bodies.get(*body).filter(|body| body.kind == BodyKind::U && !body.keeps.is_empty());
        if body.is_none_or(|body| body.block.is_none() || body.block != called) {
            return Some("states are loaded for a run of `U` that has some in host memory".to_string());
        }
    }
    let (takes, gives) = match transfer {
        Transfer::LoadStates { .. } => (operand.is_none(), is_bundle(result)),
        Transfer::StoreStates { .. } => (is_bundle(operand), result.is_none()),
        _ => (is_bundle(operand), is_bundle(result)),
    };
    (!takes || !gives).then(|| "a copy to or from host memory takes a bundle or gives one, or both".to_string())
}

fn run(model: &Model, program: &Program, class: &Class, instr: &Instr) -> Option<String> {
    let Instr::Run { body, call, instance, microbatch, args, bundles, results, keep, .. } = instr else { return None };
    let Some(body) = program.bodies.get(*body) else { return Some(format!("there is no {body}")) };
    if body.kind.per_microbatch() != microbatch.is_some_and(|mb| mb < program.microbatches) {
        return Some(format!("`@{}` has a wrong micro-batch", body.name));
    }
    let called = model.calls.get(*call).filter(|call| *instance < call.instances()).map(|call| call.block);
    if body.block.is_some() && called != body.block {
        return Some(format!("call {call} has no instance {instance} of the block of `@{}`", body.name));
    }
    let row: Vec<Value> = body.args.iter().filter(|arg| arg.source == Source::Row).map(|arg| arg.value).collect();
    if !same_types(body, &row, class, args) {
        return Some(format!("the arguments do not match `@{}`", body.name));
    }
    if !same_types(body, &body.results, class, results) {
        return Some(format!("the results do not match `@{}`", body.name));
    }
    let is_bundle = |reg: &Reg| class.regs.get(*reg).is_some_and(|data| data.ty.is_none());
    if keep.is_some() == body.keeps.is_empty() || !bundles.iter().chain(keep).all(is_bundle) {
        return Some(format!("`@{}` has wrong bundles", body.name));
    }
    let block = body.block.and_then(|id| model.blocks.get(id));
    let kinds = [(Source::Param, ArgKind::Param), (Source::State, ArgKind::State), (Source::Scalar, ArgKind::Const)];
    let agrees = |arg: &crate::program::BodyArg| {
        let kind = block.and_then(|block| block.arg_kind(arg.value));
        kinds.iter().all(|&(source, wanted)| arg.source != source || kind == Some(wanted))
    };
    (!body.args.iter().all(agrees))
        .then(|| format!("`@{}` takes arguments from the row that its block does not have", body.name))
}

fn same_types(body: &Body, values: &[Value], class: &Class, regs: &[Reg]) -> bool {
    let same = |(value, reg): (&Value, &Reg)| {
        let (value, reg) = (body.values.get(*value), class.regs.get(*reg));
        value.map(|data| &data.ty).is_some_and(|ty| reg.and_then(|data| data.ty.as_ref()) == Some(ty))
    };
    values.len() == regs.len() && values.iter().zip(regs).all(same)
}
