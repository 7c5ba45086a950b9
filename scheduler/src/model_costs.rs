//! Costs of a planned model on a platform, block by block.

use crate::partition::runs_of;
use crate::section_seconds::SectionTimer;
use cost::{Platform, Scope};
use ir::costs::{BlockCosts, CallCosts, ModelCosts, ModelStates, SharedCosts};
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Model, ParamInstance, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{Collective, Op};
use ir::saved::{forward_args, gathered_values, reads, results, saved_values};
use std::collections::{BTreeMap, HashSet};

/// Computes the costs of a step of `microbatches` micro-batches from the ops of each section, which run in groups with `fusion`.
///
/// Both gradients of a block count as one body, B. Where a schedule runs them apart, groups across the two take a little longer.
pub fn model_costs(model: &Model, platform: &Platform<'_>, microbatches: u32, fusion: bool) -> ModelCosts {
    let timer = SectionTimer { platform, model, fusion };
    let calls = model.calls.iter();
    let mut shared = shared(model);
    shared.values_mut().for_each(|shared| shared.copy = copy(model, platform, &shared.model_states));

    let norm = model.step.as_ref().map(|step| timer.forward(&step.graph).total());
    let mut blocks: Vec<BlockCosts> = model.blocks.values().map(|block| block_costs(model, block, timer)).collect();
    for (call, instance) in runs_of(model).filter(|(_, instance)| *instance == 0) {
        let bound: Vec<ModelStates> = states_of(model, call, instance)
            .into_iter()
            .filter(|(param, _)| !shared.contains_key(param))
            .map(|(_, states)| states)
            .collect();
        let costs = &mut blocks[model.calls[call].block.index()];
        costs.copy = bound.iter().map(|states| copy(model, platform, states)).sum();
        costs.model_states = bound.into_iter().fold(ModelStates::default(), sum);
    }
    ModelCosts {
        microbatches,
        calls: calls.map(|call| CallCosts { block: call.block.index(), instances: call.instances() }).collect(),
        blocks,
        shared: shared.into_values().collect(),
        norm: norm.unwrap_or(0.0),
        limit: None,
        slices: if model.slices() > 1 { model.slices() } else { 0 },
    }
}

/// Returns the seconds in which two pipeline ranks sum a gradient, and one of them sends the new parameter to the other.
fn copy(model: &Model, platform: &Platform<'_>, states: &ModelStates) -> f64 {
    match model.mesh.pipeline() {
        Some(_) => platform.sum(&model.mesh, states.gradients, 2) + platform.message(&model.mesh, states.parameters),
        None => 0.0,
    }
}

fn block_costs(model: &Model, block: &Block, timer: SectionTimer<'_>) -> BlockCosts {
    let [i, w] = timer.backward(block);
    let update = timer.update(block);
    let updates = block[SectionKind::U].stmts.iter();
    let gathers = updates.filter(|stmt| matches!(stmt.op, Op::Collective(Collective::AllGather { .. })));
    let gather = gathers.map(|stmt| timer.platform.stmt(Scope::of(model, &block.values), stmt)).sum::<f64>();
    let passed: Vec<Value> = block
        .results
        .iter()
        .zip(&block[SectionKind::F].ret)
        .filter(|(k, _)| **k == ResultKind::Value)
        .map(|r| *r.1)
        .collect();
    let output = local_bytes(block, &model.mesh, passed);
    let hops = model.mesh.pipeline().is_some() && output > 0;
    let saved = saved_values(block);
    BlockCosts {
        name: block.name.clone(),
        f: timer.forward(block),
        i,
        w,
        gather,
        reduce: update.collectives - gather,
        update: update.compute,
        saved: local_bytes(block, &model.mesh, saved.forward.iter().copied())
            - local_bytes(block, &model.mesh, saved_earlier(model, block, &saved.forward)),
        saved_for_w: local_bytes(block, &model.mesh, saved.input),
        transient: transient(block, &model.mesh),
        gather_once: timer.gather(block).total(),
        gathered: local_bytes(block, &model.mesh, gathered_values(block)),
        model_states: ModelStates::default(),
        copy: 0.0,
        output,
        hop: if hops { timer.platform.message(&model.mesh, output) } else { 0.0 },
    }
}

/// Returns those saved values of a block that earlier slices pass on to it. The earlier slices account for their memory.
fn saved_earlier(model: &Model, block: &Block, saved: &[Value]) -> Vec<Value> {
    let Some(call) =
        model.calls.iter().find(|call| call.slice.is_some() && model.blocks[call.block].name == block.name)
    else {
        return Vec::new();
    };
    let args = forward_args(block).zip(&call.args);
    let earlier = args.filter(|(_, value)| {
        let maker = model.calls.iter().find(|call| call.results.contains(value));
        maker.is_some_and(|maker| maker.slice != call.slice)
    });
    earlier.map(|(arg, _)| arg).filter(|arg| saved.contains(arg)).collect()
}

/// Returns the peak bytes of a section's values that it neither returns nor saves. I and W count as one section.
fn transient(block: &Block, mesh: &Mesh) -> u64 {
    let saved = saved_values(block);
    let backward = block[SectionKind::I].stmts.iter().chain(&block[SectionKind::W].stmts).collect();
    let forward = block[SectionKind::F].stmts.iter().collect();
    let forward = most_live(block, mesh, forward, block[SectionKind::F].ret.iter().chain(&saved.forward));
    forward.max(most_live(block, mesh, backward, block[SectionKind::I].ret.iter()))
}

/// Returns the peak bytes of the values that statements make, but for those that they give away.
fn most_live<'a>(block: &Block, mesh: &Mesh, stmts: Vec<&Stmt>, given_away: impl Iterator<Item = &'a Value>) -> u64 {
    let given_away: HashSet<Value> = given_away.copied().collect();
    let made = stmts.iter().filter(|stmt| !stmt.accumulate).flat_map(|stmt| results([*stmt]));
    let inner: HashSet<Value> = made.filter(|value| !given_away.contains(value)).collect();
    let mut last: BTreeMap<Value, usize> = BTreeMap::new();
    for (at, stmt) in stmts.iter().enumerate() {
        last.extend(touched(stmt, &inner).map(|value| (value, at)));
    }
    let (mut live, mut most) = (0, 0);
    for (at, stmt) in stmts.iter().enumerate() {
        live += local_bytes(block, mesh, results([*stmt]).filter(|value| inner.contains(value)));
        most = most.max(live);
        live -= local_bytes(block, mesh, touched(stmt, &inner).filter(|value| last[value] == at));
    }
    most
}

/// Returns the values of a set that a statement reads or makes.
fn touched(stmt: &Stmt, inner: &HashSet<Value>) -> impl Iterator<Item = Value> {
    reads([stmt], &stmt.results).into_iter().filter(|value| inner.contains(value))
}

/// Returns the bytes of values on one rank.
fn local_bytes(block: &Block, mesh: &Mesh, values: impl IntoIterator<Item = Value>) -> u64 {
    values.into_iter().map(|value| block.ty(value).local_bytes(mesh)).sum()
}

fn sum(a: ModelStates, b: ModelStates) -> ModelStates {
    ModelStates {
        parameters: a.parameters + b.parameters,
        gradients: a.gradients + b.gradients,
        states: a.states + b.states,
    }
}

/// Returns the model states on one rank of each parameter that a block instance binds.
fn states_of(model: &Model, call: usize, instance: u32) -> BTreeMap<ParamInstance, ModelStates> {
    let block = &model.blocks[model.calls[call].block];
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let mut all: BTreeMap<ParamInstance, ModelStates> = BTreeMap::new();
    for (&param, id) in params.iter().zip(model.call_params(&model.calls[call], instance)) {
        let states = block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(param));
        let own = ModelStates {
            parameters: local_bytes(block, &model.mesh, [param]),
            gradients: local_bytes(block, &model.mesh, block.gradient_of(param)),
            states: local_bytes(block, &model.mesh, states),
        };
        let most = all.entry(id).or_default();
        *most = larger(*most, own);
    }
    all
}

fn larger(a: ModelStates, b: ModelStates) -> ModelStates {
    ModelStates {
        parameters: a.parameters.max(b.parameters),
        gradients: a.gradients.max(b.gradients),
        states: a.states.max(b.states),
    }
}

/// Returns the parameters that several block instances bind.
fn shared(model: &Model) -> BTreeMap<ParamInstance, SharedCosts> {
    let mut binders: BTreeMap<ParamInstance, SharedCosts> = BTreeMap::new();
    for (number, (call, instance)) in runs_of(model).enumerate() {
        for (param, states) in states_of(model, call, instance) {
            let costs = binders.entry(param).or_default();
            if states.states > 0 || costs.runs.is_empty() {
                costs.updated_by = number;
            }
            costs.model_states = larger(costs.model_states, states);
            costs.runs.push(number);
        }
    }
    binders.retain(|_, costs| costs.runs.len() > 1);
    binders
}
