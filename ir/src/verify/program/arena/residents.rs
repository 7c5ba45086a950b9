//! Model states of a class: `residents`, and `arena` for scalars.

use crate::arena::{Arena, Resident, Role};
use crate::graph::{ArgKind, Model};
use crate::ids::ParamId;
use crate::program::{Body, Class, Instr, Program, Source};
use crate::verify::program::{Reporter, Violation};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of parameters, gradients and states.
pub(super) struct Sizes(HashMap<(ParamId, Role), u64>);

impl Sizes {
    /// The types that the blocks that bind the parameters declare.
    pub(super) fn of(model: &Model) -> Sizes {
        let mut sizes = Sizes(HashMap::new());
        for (id, param) in &model.params {
            sizes.add(id, Role::Param, param.ty.local_bytes(&model.mesh));
        }
        for call in &model.calls {
            let block = &model.blocks[call.block];
            for (&(id, _), param) in model.call_params(call, 0).iter().zip(block.args_of(ArgKind::Param)) {
                sizes.add(id, Role::Param, block.ty(param).local_bytes(&model.mesh));
                if let Some(gradient) = block.gradient_of(param) {
                    sizes.add(id, Role::Gradient, block.ty(gradient).local_bytes(&model.mesh));
                }
                for state in block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(param)) {
                    let role = Role::State(suffix(block.value_name(state)));
                    sizes.add(id, role, block.ty(state).local_bytes(&model.mesh));
                }
            }
        }
        sizes
    }

    /// Notes a size; the largest counts.
    fn add(&mut self, param: ParamId, role: Role, bytes: u64) {
        let size = self.0.entry((param, role)).or_default();
        *size = bytes.max(*size);
    }

    pub(super) fn get(&self, param: ParamId, role: &Role) -> Option<u64> {
        self.0.get(&(param, role.clone())).copied()
    }
}

fn suffix(name: &str) -> String {
    name.rsplit_once('.').map_or("", |(_, suffix)| suffix).to_string()
}

/// A tensor that lives from step to step, wherever it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelState {
    param: ParamId,
    instance: u32,
    role: Role,
}

impl ModelState {
    pub(super) fn of(resident: &Resident) -> ModelState {
        ModelState { param: resident.param, instance: resident.instance, role: resident.role.clone() }
    }

    pub(super) fn describe(&self, model: &Model) -> String {
        let name = model.params[self.param].instance_name(self.instance);
        match &self.role {
            Role::Param => format!("%{name}"),
            Role::Gradient => format!("the gradient of %{name}"),
            Role::State(state) => format!("the state `{state}` of %{name}"),
        }
    }
}

/// Model states, each with whether it is in host memory.
type Needed = BTreeMap<ModelState, bool>;

/// Checks that each tensor has exactly one place.
pub(super) fn check(model: &Model, program: &Program, index: usize, arena: &Arena, found: &mut Vec<Violation>) {
    let class = &program.classes[index];
    let mut reporter = Reporter::of_row(found, index);
    let (needed, scalars) = needed(model, program, class);
    let mut times: BTreeMap<ModelState, u32> = BTreeMap::new();
    for resident in &arena.residents {
        *times.entry(ModelState::of(resident)).or_default() += 1;
    }
    for resident in &arena.residents {
        let state = ModelState::of(resident);
        let (here, there) = if resident.host { ("host", "device") } else { ("device", "host") };
        if needed.get(&state).is_some_and(|&host| host != resident.host) {
            let text = format!("{} is in {here} memory, not in {there} memory", state.describe(model));
            reporter.report("residents", text);
        }
    }
    for state in needed.keys().filter(|state| !times.contains_key(state)) {
        reporter.report("residents", format!("{} has no place", state.describe(model)));
    }
    for (state, times) in times.iter().filter(|(_, times)| **times > 1) {
        reporter.report("residents", format!("{} has {times} places", state.describe(model)));
    }
    for name in scalars.iter().filter(|name| !arena.scalars.contains_key(*name)) {
        reporter.report("arena", format!("the scalar `{name}` has no place"));
    }
}

/// The model states that the runs of a row bind, and the scalars that they read.
fn needed(model: &Model, program: &Program, class: &Class) -> (Needed, BTreeSet<String>) {
    let mut needed = Needed::new();
    for &(param, instance) in &class.params {
        needed.insert(ModelState { param, instance, role: Role::Param }, false);
    }
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
                let state = ModelState { param, instance, role };
                *needed.entry(state).or_default() |= body.is_on_host(arg.value);
            }
        }
    }
    (needed, scalars)
}
