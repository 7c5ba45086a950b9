//! Parameters, gradients, states and scalars, while runs and transfers that use them are in flight: `in-flight`.

use super::Violation;
use crate::graph::{ArgKind, Model, ParamInstance};
use crate::ids::{Token, Value};
use crate::program::{Body, BodyKind, Instr, Program, Source, Transfer};
use std::collections::{BTreeSet, HashMap};

/// A tensor that persists on a rank between runs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Resident<'a> {
    /// A tensor of a parameter, by the suffix of its name: none for itself, `.grad`, `.m`.
    Tensor(ParamInstance, &'a str),
    Scalar(&'a str),
}

#[derive(Default)]
struct Uses<'a> {
    reads: BTreeSet<Resident<'a>>,
    changes: BTreeSet<Resident<'a>>,
}

pub(super) fn check(model: &Model, program: &Program, index: usize, found: &mut Vec<Violation>) {
    let class = &program.classes[index];
    let mut flying: HashMap<Token, Uses<'_>> = HashMap::new();
    for (at, instr) in class.instrs.iter().enumerate() {
        let (token, uses) = match instr {
            Instr::Wait { token, .. } => {
                flying.remove(token);
                continue;
            }
            Instr::Run { token: None, .. } if flying.is_empty() => continue,
            Instr::Run { token, .. } => (*token, run(model, program, instr)),
            Instr::Start { token, transfer, .. } => (Some(*token), moved(transfer)),
            _ => continue,
        };
        let flies = |resident: &Resident<'_>, changed: bool| {
            flying.values().any(|other| other.changes.contains(resident) || changed && other.reads.contains(resident))
        };
        let changed = uses.changes.iter().filter(|resident| flies(resident, true));
        for resident in changed.chain(uses.reads.iter().filter(|resident| flies(resident, false))) {
            let text = format!("{} is used by an operation in flight", resident.name(model));
            found.push(Violation::in_row("in-flight", index, at, text));
        }
        flying.extend(token.map(|token| (token, uses)));
    }
}

impl Resident<'_> {
    fn name(&self, model: &Model) -> String {
        match self {
            Resident::Tensor((param, instance), suffix) => {
                format!("%{}{suffix}", model.params[*param].instance_name(*instance))
            }
            Resident::Scalar(name) => format!("%{name}"),
        }
    }
}

fn moved(transfer: &Transfer) -> Uses<'static> {
    let resident = match *transfer {
        Transfer::SumGradient { param, instance, .. } => {
            Some(Resident::Tensor((param, instance), crate::graph::GRADIENT))
        }
        Transfer::ShareParam { param, instance, .. } => Some(Resident::Tensor((param, instance), "")),
        Transfer::Send { .. } | Transfer::Recv { .. } | Transfer::Sum { .. } | Transfer::Offload | Transfer::Load => {
            None
        }
    };
    Uses { changes: resident.into_iter().collect(), ..Uses::default() }
}

/// The persistent tensors that a run reads and changes; the step graph stores its results.
fn run<'a>(model: &'a Model, program: &'a Program, instr: &Instr) -> Uses<'a> {
    let mut uses = Uses::default();
    let Instr::Run { body, call, instance, .. } = instr else { return uses };
    let body = &program.bodies[*body];
    let name = |value: Value| body.values[value].name.as_str();
    if body.kind == BodyKind::N {
        uses.changes.extend(body.results.iter().map(|&value| Resident::Scalar(name(value))));
    }
    let Some(block) = body.block.map(|id| &model.blocks[id]) else { return uses };
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let bound = model.call_params(&model.calls[*call], *instance);
    for arg in &body.args {
        let owner = match arg.source {
            Source::Param => Some(arg.value),
            Source::State | Source::Gradient => block.owner_of(arg.value),
            Source::Scalar => {
                uses.reads.insert(Resident::Scalar(name(arg.value)));
                None
            }
            Source::Row | Source::Saved => None,
        };
        let place = owner.and_then(|owner| params.iter().position(|&param| param == owner));
        let Some(&param) = place.and_then(|place| bound.get(place)) else { continue };
        let suffix = owner.and_then(|owner| name(arg.value).strip_prefix(block.value_name(owner)));
        let resident = Resident::Tensor(param, suffix.unwrap_or_default());
        if stores(body, arg.value) {
            uses.changes.insert(resident)
        } else {
            uses.reads.insert(resident)
        };
    }
    uses
}

fn stores(body: &Body, value: Value) -> bool {
    body.instrs.iter().any(|instr| instr.defines().contains(&value))
}
