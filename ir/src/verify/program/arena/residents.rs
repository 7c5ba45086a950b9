//! Model states of a class: `residents`, and `arena` for scalars.

use crate::arena::{Arena, Role};
use crate::graph::{ArgKind, Model};
use crate::ids::ParamId;
use crate::program::{Body, Class, Instr, Program, Source};
use crate::verify::program::Violation;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of parameters, gradients and states.
pub(super) struct Sizes(HashMap<(ParamId, Role), u64>);

impl Sizes {
    /// The types that the blocks that bind the parameters declare.
    pub(super) fn of(model: &Model) -> Sizes {
        let mut sizes = HashMap::new();
        let mut most = |param: ParamId, role: Role, bytes: u64| {
            let size: &mut u64 = sizes.entry((param, role)).or_default();
            *size = bytes.max(*size);
        };
        for (id, param) in &model.params {
            most(id, Role::Param, param.ty.local_bytes(&model.mesh));
        }
        for call in &model.calls {
            let block = &model.blocks[call.block];
            for (&(id, _), param) in model.call_params(call, 0).iter().zip(block.args_of(ArgKind::Param)) {
                let bytes = |value| block.ty(value).local_bytes(&model.mesh);
                most(id, Role::Param, bytes(param));
                block.gradient_of(param).into_iter().for_each(|value| most(id, Role::Gradient, bytes(value)));
                for state in block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(param)) {
                    most(id, Role::State(suffix(block.value_name(state))), bytes(state));
                }
            }
        }
        Sizes(sizes)
    }

    pub(super) fn get(&self, param: ParamId, role: &Role) -> Option<u64> {
        self.0.get(&(param, role.clone())).copied()
    }
}

fn suffix(name: &str) -> String {
    name.rsplit_once('.').map_or("", |(_, suffix)| suffix).to_string()
}

/// Model states, each with whether it is in host memory.
type Needed = BTreeMap<(ParamId, u32, Role), bool>;

/// Checks that each tensor has exactly one place.
pub(super) fn check(model: &Model, program: &Program, index: usize, arena: &Arena, found: &mut Vec<Violation>) {
    let class = &program.classes[index];
    let mut say = |name, text| {
        found.push(Violation { position: None, ..Violation::in_row(name, index, 0, text) });
    };
    let (needed, scalars) = needed(model, program, class);
    let mut times: BTreeMap<(ParamId, u32, Role), u32> = BTreeMap::new();
    for resident in &arena.residents {
        *times.entry((resident.param, resident.instance, resident.role.clone())).or_default() += 1;
    }
    for resident in &arena.residents {
        let key = (resident.param, resident.instance, resident.role.clone());
        let (here, there) = if resident.host { ("host", "device") } else { ("device", "host") };
        if needed.get(&key).is_some_and(|&host| host != resident.host) {
            say("residents", format!("{} is in {here} memory, not in {there} memory", describe(model, &key)));
        }
    }
    for key in needed.keys().filter(|key| !times.contains_key(key)) {
        say("residents", format!("{} has no place", describe(model, key)));
    }
    for (key, times) in times.iter().filter(|(_, times)| **times > 1) {
        say("residents", format!("{} has {times} places", describe(model, key)));
    }
    for name in scalars.iter().filter(|name| !arena.scalars.contains_key(*name)) {
        say("arena", format!("the scalar `{name}` has no place"));
    }
}

pub(super) fn describe(model: &Model, (param, instance, role): &(ParamId, u32, Role)) -> String {
    let name = model.params[*param].instance_name(*instance);
    match role {
        Role::Param => format!("%{name}"),
        Role::Gradient => format!("the gradient of %{name}"),
        Role::State(state) => format!("the state `{state}` of %{name}"),
    }
}

/// The model states that the runs of a row bind, and the scalars that they read.
fn needed(model: &Model, program: &Program, class: &Class) -> (Needed, BTreeSet<String>) {
    let mut needed: Needed =
        class.params.iter().map(|&(param, instance)| ((param, instance, Role::Param), false)).collect();
    let mut scalars = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for instr in &class.instrs {
        let &Instr::Run { body, call, instance, .. } = instr else { continue };
        if !seen.insert((body, call, instance)) {
            continue;
        }
        let body: &Body = &program.bodies[body];
        let Some(block) = body.block.map(|id| &model.blocks[id]) else { continue };
        let params: Vec<_> = block.args_of(ArgKind::Param).collect();
        let bound = model.call_params(&model.calls[call], instance);
        for arg in &body.args {
            let (owner, role) = match arg.source {
                Source::Param => (Some(arg.value), Role::Param),
                Source::Gradient => (block.owner_of(arg.value), Role::Gradient),
                Source::State => (block.owner_of(arg.value), Role::State(suffix(block.value_name(arg.value)))),
                Source::Scalar => {
                    scalars.insert(body.values[arg.value].name.clone());
                    continue;
                }
                Source::Row | Source::Saved => continue,
            };
            let place = owner.and_then(|owner| params.iter().position(|&param| param == owner));
            if let Some(&(param, instance)) = place.and_then(|place| bound.get(place)) {
                *needed.entry((param, instance, role)).or_default() |= body.is_on_host(arg.value);
            }
        }
    }
    (needed, scalars)
}
