//! Parameters, gradients, states and scalars, while runs and transfers that use them are in flight: `in-flight`.

use super::Violation;
use crate::graph::{ArgKind, Model, ParamInstance};
use crate::ids::{Token, Value};
use crate::program::{Body, BodyKind, Class, Instr, Program, Source, Transfer};
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
            Instr::Start { token, transfer, .. } => (Some(*token), moved(model, program, class, transfer)),
            _ => continue,
        };
        for resident in flying_uses(&flying, &uses) {
            let text = format!("{} is used by an operation in flight", resident.name(model));
            found.push(Violation::in_row("in-flight", index, at, text));
        }
        flying.extend(token.map(|token| (token, uses)));
    }
}

/// The tensors that an operation changes while another uses them, or reads while another changes them.
fn flying_uses<'a>(flying: &HashMap<Token, Uses<'_>>, uses: &'a Uses<'_>) -> Vec<&'a Resident<'a>> {
    let mut conflicts = Vec::new();
    for resident in &uses.changes {
        if flying.values().any(|other| other.changes.contains(resident) || other.reads.contains(resident)) {
            conflicts.push(resident);
        }
    }
    for resident in &uses.reads {
        if flying.values().any(|other| other.changes.contains(resident)) {
            conflicts.push(resident);
        }
    }
    conflicts
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

fn moved<'a>(model: &'a Model, program: &'a Program, class: &Class, transfer: &Transfer) -> Uses<'a> {
    let resident = match *transfer {
        Transfer::SumGradient { param, instance, .. } => {
            Some(Resident::Tensor((param, instance), crate::graph::GRADIENT))
        }
        Transfer::ShareParam { param, instance, .. } => Some(Resident::Tensor((param, instance), "")),
        Transfer::LoadStates { body, call, instance } => {
            let reads = states(model, &program.bodies[body], call, instance);
            return Uses { reads, ..Uses::default() };
        }
        Transfer::StoreStates { call, instance } => {
            let update = updates(program, class, call, instance);
            let changes = update.map(|body| states(model, body, call, instance)).unwrap_or_default();
            return Uses { changes, ..Uses::default() };
        }
        Transfer::Send { .. } | Transfer::Recv { .. } | Transfer::Sum { .. } | Transfer::Offload | Transfer::Load => {
            None
        }
    };
    Uses { changes: resident.into_iter().collect(), ..Uses::default() }
}

/// The `U` of a run, as the row has it.
fn updates<'a>(program: &'a Program, class: &Class, call: usize, instance: u32) -> Option<&'a Body> {
    class.instrs.iter().find_map(|instr| match instr {
        Instr::Run { body, call: own, instance: number, .. } if (*own, *number) == (call, instance) => {
            Some(&program.bodies[*body]).filter(|body| body.kind == BodyKind::U)
        }
        _ => None,
    })
}

/// The states of a run of `U` that are in host memory.
fn states<'a>(model: &'a Model, body: &'a Body, call: usize, instance: u32) -> BTreeSet<Resident<'a>> {
    let bound = persistent(model, body, call, instance).into_iter();
    bound.filter(|(value, _)| body.is_on_host(*value)).map(|(_, resident)| resident).collect()
}

/// The persistent tensors that a run reads and changes; the step graph stores its results. States in host memory are not
/// among them: the run changes its bundle.
fn run<'a>(model: &'a Model, program: &'a Program, instr: &Instr) -> Uses<'a> {
    let mut uses = Uses::default();
    let Instr::Run { body, call, instance, .. } = instr else { return uses };
    let body = &program.bodies[*body];
    if body.kind == BodyKind::N {
        uses.changes.extend(body.results.iter().map(|&value| Resident::Scalar(body.value_name(value))));
    }
    for arg in body.args.iter().filter(|arg| arg.source == Source::Scalar) {
        uses.reads.insert(Resident::Scalar(body.value_name(arg.value)));
    }
    for (value, resident) in persistent(model, body, *call, *instance) {
        match stores(body, value) {
            _ if body.is_on_host(value) => false,
            true => uses.changes.insert(resident),
            false => uses.reads.insert(resident),
        };
    }
    uses
}

/// The arguments of a run that are tensors of parameters.
fn persistent<'a>(model: &'a Model, body: &'a Body, call: usize, instance: u32) -> Vec<(Value, Resident<'a>)> {
    let Some(block) = body.block.map(|id| &model.blocks[id]) else { return Vec::new() };
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let bound = model.calls.get(call).map_or_else(Vec::new, |call| model.call_params(call, instance));
    let mut residents = Vec::new();
    for arg in &body.args {
        let owner = match arg.source {
            Source::Param => Some(arg.value),
            Source::State | Source::Gradient => block.owner_of(arg.value),
            Source::Row | Source::Saved | Source::Scalar => None,
        };
        let Some(owner) = owner else { continue };
        let place = params.iter().position(|&param| param == owner);
        if let Some(&param) = place.and_then(|place| bound.get(place)) {
            let suffix = body.value_name(arg.value).strip_prefix(block.value_name(owner));
            residents.push((arg.value, Resident::Tensor(param, suffix.unwrap_or_default())));
        }
    }
    residents
}

fn stores(body: &Body, value: Value) -> bool {
    body.instrs.iter().any(|instr| instr.defines().contains(&value))
}
