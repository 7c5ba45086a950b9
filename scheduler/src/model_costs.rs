//! Costs of a planned model on a cluster, block by block.

use crate::partition::runs_of;
use cost::{Cluster, seconds_of_message, seconds_of_section, seconds_of_stmt, seconds_of_sum};
use ir::costs::{BlockCosts, CallCosts, Held, Lanes, ModelCosts, SharedCosts};
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Model, ParamInstance, ResultKind, SectionKind, Stmt};
use ir::ids::{ModelValue, Value};
use ir::keep::{forward_args, kept, reads, results};
use ir::mesh::{Axes, Mesh};
use ir::ops::{Collective, Op};
use std::collections::{BTreeMap, HashSet};

/// Computes the costs of a step of `microbatches` micro-batches from the ops of each section.
pub fn model_costs(model: &Model, cluster: &Cluster, microbatches: u32) -> ModelCosts {
    let calls = model.calls.iter();
    let mut shared = shared(model);
    shared.values_mut().for_each(|shared| shared.copy = copy(model, cluster, &shared.held));
    let alone = |param: &ParamInstance| !shared.contains_key(param);
    let norm = model.step.as_ref().map(|step| seconds_of_section(cluster, &model.mesh, &step.graph, SectionKind::F));
    let mut blocks: Vec<BlockCosts> = model.blocks.values().map(|block| block_costs(model, block, cluster)).collect();
    for (call, instance) in runs_of(model).filter(|(_, instance)| *instance == 0) {
        let bound: Vec<Held> = held_of(model, call, instance)
            .into_iter()
            .filter(|(param, _)| alone(param))
            .map(|(_, held)| held)
            .collect();
        let costs = &mut blocks[model.calls[call].block.index()];
        costs.copy = bound.iter().map(|held| copy(model, cluster, held)).sum();
        costs.held = bound.into_iter().fold(Held::default(), sum);
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
fn copy(model: &Model, cluster: &Cluster, held: &Held) -> f64 {
    let link = model.mesh.pipeline().map(|axis| cluster.link(&model.mesh, &Axes::one(axis)));
    link.map_or(0.0, |link| seconds_of_sum(link, held.gradients, 2) + seconds_of_message(link, held.parameters))
}

fn block_costs(model: &Model, block: &Block, cluster: &Cluster) -> BlockCosts {
    let bytes = |values: &[Value]| values.iter().map(|&v| block.ty(v).local_bytes(&model.mesh)).sum::<u64>();
    let seconds = |stmts: &mut dyn Iterator<Item = &Stmt>| {
        stmts.map(|stmt| seconds_of_stmt(cluster, &model.mesh, &block.values, stmt)).sum::<f64>()
    };
    let is_change = |stmt: &&Stmt| matches!(stmt.op, Op::Collective(_));
    let lanes = |section: SectionKind| Lanes {
        compute: seconds(&mut block[section].stmts.iter().filter(|stmt| !is_change(stmt))),
        wire: seconds(&mut block[section].stmts.iter().filter(is_change)),
    };
    let is_gather = |stmt: &&Stmt| matches!(stmt.op, Op::Collective(Collective::AllGather { .. }));
    let changes = lanes(SectionKind::U);
    let gather = seconds(&mut block[SectionKind::U].stmts.iter().filter(is_gather));
    let passed: Vec<Value> = block
        .results
        .iter()
        .zip(&block[SectionKind::F].ret)
        .filter(|(k, _)| **k == ResultKind::Value)
        .map(|r| *r.1)
        .collect();
    let boundary = bytes(&passed);
    let link = model.mesh.pipeline().map(|axis| cluster.link(&model.mesh, &Axes::one(axis)));
    let kept = kept(block);
    BlockCosts {
        name: block.name.clone(),
        f: lanes(SectionKind::F),
        i: lanes(SectionKind::I),
        w: lanes(SectionKind::W),
        gather,
        reduce: changes.wire - gather,
        update: changes.compute,
        kept: bytes(&kept.forward) - bytes(&held_earlier(model, block, &kept.forward)),
        crossing: bytes(&kept.input),
        transient: transient(block, &model.mesh),
        held: Held::default(),
        copy: 0.0,
        boundary,
        hop: link.filter(|_| boundary > 0).map_or(0.0, |link| seconds_of_message(link, boundary)),
    }
}

/// Returns those saved values of a block that earlier slices pass on to it. The earlier slices account for their memory.
fn held_earlier(model: &Model, block: &Block, kept: &[Value]) -> Vec<Value> {
    let maker = |value: &ModelValue| model.calls.iter().find(|call| call.results.contains(value));
    let Some(call) =
        model.calls.iter().find(|call| call.slice.is_some() && model.blocks[call.block].name == block.name)
    else {
        return Vec::new();
    };
    let args = forward_args(block).zip(&call.args);
    let earlier = args.filter(|(_, value)| maker(value).is_some_and(|maker| maker.slice != call.slice));
    earlier.map(|(arg, _)| arg).filter(|arg| kept.contains(arg)).collect()
}

/// Returns the peak bytes of a section's values that it neither returns nor saves. I and W count as one section.
fn transient(block: &Block, mesh: &Mesh) -> u64 {
    let kept = kept(block);
    let backward = block[SectionKind::I].stmts.iter().chain(&block[SectionKind::W].stmts).collect();
    let forward = block[SectionKind::F].stmts.iter().collect();
    let of = |stmts: Vec<&Stmt>, given: &mut dyn Iterator<Item = Value>| {
        let given: HashSet<Value> = given.collect();
        let inner: HashSet<Value> = (stmts.iter().filter(|stmt| !stmt.accumulate))
            .flat_map(|stmt| results([*stmt]))
            .filter(|value| !given.contains(value))
            .collect();
        most_live(block, mesh, &stmts, &inner)
    };
    let forward = of(forward, &mut block[SectionKind::F].ret.iter().chain(&kept.forward).copied());
    forward.max(of(backward, &mut block[SectionKind::I].ret.iter().copied()))
}

fn most_live(block: &Block, mesh: &Mesh, stmts: &[&Stmt], inner: &HashSet<Value>) -> u64 {
    let touched = |stmt: &Stmt| reads([stmt], &stmt.results).into_iter().filter(|value| inner.contains(value));
    let mut last: BTreeMap<Value, usize> = BTreeMap::new();
    for (at, stmt) in stmts.iter().enumerate() {
        last.extend(touched(stmt).map(|value| (value, at)));
    }
    let bytes = |value: Value| block.ty(value).local_bytes(mesh);
    let (mut live, mut most) = (0, 0);
    for (at, stmt) in stmts.iter().enumerate() {
        live += results([*stmt]).filter(|value| inner.contains(value)).map(bytes).sum::<u64>();
        most = most.max(live);
        live -= touched(stmt).filter(|value| last[value] == at).map(bytes).sum::<u64>();
    }
    most
}

fn sum(a: Held, b: Held) -> Held {
    Held { parameters: a.parameters + b.parameters, gradients: a.gradients + b.gradients, states: a.states + b.states }
}

/// Returns the model states on one rank of each parameter that a block instance binds.
fn held_of(model: &Model, call: usize, instance: u32) -> BTreeMap<ParamInstance, Held> {
    let block = &model.blocks[model.calls[call].block];
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let mut held: BTreeMap<ParamInstance, Held> = BTreeMap::new();
    for (&param, id) in params.iter().zip(model.call_params(&model.calls[call], instance)) {
        let bytes = |value: Value| block.ty(value).local_bytes(&model.mesh);
        let states = block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(param));
        let of = Held {
            parameters: bytes(param),
            gradients: block.gradient_of(param).map_or(0, bytes),
            states: states.map(bytes).sum(),
        };
        let most = held.entry(id).or_default();
        *most = larger(*most, of);
    }
    held
}

fn larger(a: Held, b: Held) -> Held {
    Held {
        parameters: a.parameters.max(b.parameters),
        gradients: a.gradients.max(b.gradients),
        states: a.states.max(b.states),
    }
}

/// Returns the parameters that several block instances bind.
fn shared(model: &Model) -> BTreeMap<ParamInstance, SharedCosts> {
    let mut binders: BTreeMap<ParamInstance, SharedCosts> = BTreeMap::new();
    for (number, (call, instance)) in runs_of(model).enumerate() {
        for (param, held) in held_of(model, call, instance) {
            let costs = binders.entry(param).or_default();
            if held.states > 0 || costs.runs.is_empty() {
                costs.updated_by = number;
            }
            costs.held = larger(costs.held, held);
            costs.runs.push(number);
        }
    }
    binders.retain(|_, costs| costs.runs.len() > 1);
    binders
}
