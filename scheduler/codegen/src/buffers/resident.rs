//! Values that live across steps: parameters, gradient sums, optimizer states, and the scalars that bodies read by name.

use super::interval::aligned;
use ir::arena::{ALIGNMENT, Arena, Resident, Role};
use ir::graph::{ArgKind, Model, ParamInstance, SectionKind};
use ir::ids::{BodyId, Value};
use ir::program::{Body, BodyKind, Class, Instr, Program, Source};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The tensors that a class holds. Those of one role are contiguous: parameters, then gradients, then states.
pub(super) type ResidentTensors = BTreeMap<(Role, ParamInstance), ResidentTensor>;

/// A tensor that a class holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResidentTensor {
    pub(super) bytes: u64,
    /// True if it is in host memory.
    pub(super) host: bool,
}

impl ResidentTensor {
    /// Makes it at least so large that it holds one of some bytes.
    fn hold(&mut self, bytes: u64, host: bool) {
        self.bytes = aligned(bytes).max(self.bytes);
        self.host |= host;
    }
}

/// All that a class holds from step to step.
pub(super) fn resident_tensors(model: &Model, program: &Program, class: &Class) -> ResidentTensors {
    let mut residents = ResidentTensors::new();
    for &owner in &class.params {
        let bytes = model.params[owner.0].ty.local_bytes(&model.mesh);
        residents.entry((Role::Param, owner)).or_default().hold(bytes, false);
    }
    for (body, call, instance) in runs(class) {
        let body = &program.bodies[body];
        let bound = match model.calls.get(call) {
            Some(call) if body.block.is_some() => model.call_params(call, instance),
            _ => continue,
        };
        for (place, role, value) in bindings(model, body) {
            let bytes = body.values[value].ty.local_bytes(&model.mesh);
            let host = body.is_on_host(value);
            if let Some(&owner) = bound.get(place) {
                residents.entry((role, owner)).or_default().hold(bytes, host);
            }
        }
    }
    residents
}

/// The bodies that a row runs, each with its call and instance, once.
fn runs(class: &Class) -> BTreeSet<(BodyId, usize, u32)> {
    let runs = class.instrs.iter().filter_map(|instr| match instr {
        Instr::Run { body, call, instance, .. } => Some((*body, *call, *instance)),
        _ => None,
    });
    runs.collect()
}

/// Parameter arguments of a body: the index of the parameter among those of the block, the role, and the value.
fn bindings(model: &Model, body: &Body) -> Vec<(usize, Role, Value)> {
    let Some(block) = body.block.map(|id| &model.blocks[id]) else { return Vec::new() };
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let bindings = body.args.iter().filter_map(|arg| {
        let (owner, role) = match arg.source {
            Source::Param => (arg.value, Role::Param),
            Source::Gradient => (block.owner_of(arg.value)?, Role::Gradient),
            Source::State => {
                let suffix = block.value_name(arg.value).rsplit_once('.').map_or("", |(_, suffix)| suffix);
                (block.owner_of(arg.value)?, Role::State(suffix.to_string()))
            }
            Source::Row | Source::Saved | Source::Scalar => return None,
        };
        Some((params.iter().position(|&param| param == owner)?, role, arg.value))
    });
    bindings.collect()
}

/// The bytes of the device and of host memory up to which there are residents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResidentEnds {
    pub(super) device: u64,
    pub(super) host: u64,
}

impl ResidentEnds {
    fn of(&mut self, host: bool) -> &mut u64 {
        if host { &mut self.host } else { &mut self.device }
    }
}

/// One after the other, from the beginning of each arena. Gives where they end.
pub(super) fn lay(catalogue: &ResidentTensors) -> (Vec<Resident>, ResidentEnds) {
    let mut ends = ResidentEnds::default();
    let mut residents = Vec::new();
    for ((role, (param, instance)), &ResidentTensor { bytes, host }) in catalogue {
        let end = ends.of(host);
        residents.push(Resident { param: *param, instance: *instance, role: role.clone(), host, at: *end });
        *end += bytes;
    }
    (residents, ends)
}

/// The places of another program of the same ranks, and where they end.
pub(super) fn same_as(arena: &Arena, catalogue: &ResidentTensors) -> (Vec<Resident>, ResidentEnds) {
    let mut ends = ResidentEnds::default();
    for resident in &arena.residents {
        let tensor = catalogue.get(&(resident.role.clone(), (resident.param, resident.instance)));
        let end = ends.of(resident.host);
        *end = (*end).max(resident.at + tensor.map_or(0, |tensor| tensor.bytes));
    }
    (arena.residents.clone(), ends)
}

/// A place for each scalar that the bodies of a row read by name or that the step graph leaves. Gives where they end.
pub(super) fn scalars(model: &Model, program: &Program, class: &Class, from: u64) -> (BTreeMap<String, u64>, u64) {
    let graph = model.step.as_ref().map(|step| &step.graph);
    let returned: HashSet<&str> = graph
        .map(|graph| graph[SectionKind::F].ret.iter().map(|&value| graph.value_name(value)).collect())
        .unwrap_or_default();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (body, ..) in runs(class) {
        let body = &program.bodies[body];
        let scalars = body.args.iter().filter(|arg| arg.source == Source::Scalar);
        names.extend(scalars.map(|arg| body.values[arg.value].name.as_str()));
        if body.kind == BodyKind::N {
            let results = body.results.iter().map(|&value| body.values[value].name.as_str());
            names.extend(results.filter(|name| returned.contains(name)));
        }
    }
    let places = names.iter().zip(0..).map(|(name, place)| (name.to_string(), from + place * ALIGNMENT)).collect();
    (places, from + names.len() as u64 * ALIGNMENT)
}
