//! `propagate`: propagates shardings along the rules. It first spreads axes in all directions through all forwards
//! until nothing changes ([`crate::spread`]), then decides block by block in call order, through all sections.
//!
//! Afterwards every type is closed, and every statement's results follow from its rule for some sharding of its
//! operands. A result pinned to another type (a block boundary, a stated type, a stored argument) gets its own
//! `reshard`. The pass `reshard` handles operands with another sharding.

use crate::PlanError;
use crate::fault::Fault;
use crate::passes::annotate;
use crate::ports::{Ports, passed, value_results};
use crate::sections::{Hint, Hints, Site, made, reshard_stmt};
use crate::spread::{Spread, spread};
use cost::Platform;
use ir::graph::{ArgKind, Block, Model, ParamInstance, SectionKind, Stmt};
use ir::ids::{BlockId, Value};
use ir::mesh::Axes;
use ir::ops::{Op, Unary, UnaryKind};
use ir::options::PlanOptions;
use ir::types::{PartialKind, Type};
use rustc_hash::FxHashMap;
use transforms::recompute::calls_of;

pub(crate) fn run(model: &mut Model, _: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    if model.is_fully_specified() {
        return Ok(());
    }
    propagate(model).map_err(|fault| fault.in_pass("propagate"))
}

fn propagate(model: &mut Model) -> Result<(), Fault> {
    let mut ports = Ports::new(model);
    let (mesh, dims) = (model.mesh.clone(), model.dims.clone());
    let site = Site { mesh: &mesh, dims: &dims };
    let spread = spread(&site, model, &ports)?;
    spread.state_ports(model, &mut ports);
    spread.declare(model, &ports);
    annotate::bind(model, |_, _, _| Axes::none());
    let mut order: Vec<BlockId> = model.calls.iter().map(|call| call.block).collect();
    order.extend(model.blocks.keys());
    let mut done: Vec<BlockId> = Vec::new();
    for id in order {
        if !done.contains(&id) {
            plan_block(&site, &mut model.blocks[id], id, &mut ports, &spread)?;
            done.push(id);
        }
    }
    finish(&site, model)
}

/// Decides the once-per-step section, after the gradients are decided.
///
/// # Errors
/// An op's rule does not fit its tensors, which is an internal error.
pub(crate) fn finish(site: &Site<'_>, model: &mut Model) -> Result<(), Fault> {
    join_partial_gradients(model);
    for block in model.blocks.values_mut() {
        pay_gradients(block);
        site.decide(block, SectionKind::U, &Hints::default())?;
    }
    plan_step(site, model)
}

fn plan_block(
    site: &Site<'_>,
    block: &mut Block,
    id: BlockId,
    ports: &mut Ports,
    spread: &Spread,
) -> Result<(), Fault> {
    let hints = spread.hints(id, block);
    for arg in block.args.clone() {
        let ty = spread.argument(id, arg.value).unwrap_or(block.ty(arg.value)).closed();
        block.values[arg.value].ty = ty.named_as(block.ty(arg.value));
    }
    for (place, (value, _)) in passed(block).into_iter().enumerate() {
        let ty = ports.argument(id, place).unwrap_or(block.ty(value)).closed();
        ports.set_argument(id, place, ty.clone());
        block.values[value].ty = ty.named_as(block.ty(value));
    }
    site.decide(block, SectionKind::F, &hints)?;
    return_values(block, id, ports);
    plan_backward(site, block, id, ports)
}

/// Reshards results to the boundary's type; parts that the boundary leaves open follow the first producer.
fn return_values(block: &mut Block, id: BlockId, ports: &mut Ports) {
    for (place, result) in value_results(&block.results).into_iter().enumerate() {
        let value = block[SectionKind::F].ret[result];
        let natural = block.ty(value).clone();
        let wanted = match ports.result(id, place) {
            Some(stated) => fill(stated, &natural),
            None => natural.partial_over(PartialKind::Sum, &Axes::none()),
        };
        ports.set_result(id, place, wanted.clone());
        let moved = moved_to(block, SectionKind::F, value, &wanted);
        block[SectionKind::F].ret[result] = moved;
    }
}

/// `stated` where closed; elsewhere the natural axes that are free, with at least the stated axes.
fn fill(stated: &Type, natural: &Type) -> Type {
    let mut ty = stated.clone();
    for (place, dim) in natural.dims.iter().enumerate() {
        let (used, least) = (ty.used_axes(), &mut ty.dims[place]);
        if least.open && least.axes.is_prefix_of(&dim.axes) {
            let more = dim.axes.iter().skip(least.axes.len()).take_while(|&axis| !used.contains(axis));
            least.axes = least.axes.iter().chain(more).collect();
        }
        least.open = false;
    }
    ty
}

fn plan_backward(site: &Site<'_>, block: &mut Block, id: BlockId, ports: &Ports) -> Result<(), Fault> {
    let results: Vec<(usize, Value)> = block.differentiable_results().collect();
    let places = value_results(&block.results);
    for (cotangent, (result, primal)) in block[SectionKind::I].args.clone().into_iter().zip(results) {
        let place = places.iter().position(|&r| r == result);
        let ty = place.and_then(|place| ports.result(id, place)).cloned().unwrap_or_else(|| block.ty(primal).logical());
        let reduced = ty.partial_over(PartialKind::Sum, &Axes::none());
        block.values[cotangent].ty = reduced.closed().named_as(block.ty(cotangent));
    }
    let args: Vec<Value> = block.differentiable_args().collect();
    let wanted: Vec<Type> =
        args.iter().map(|&arg| block.ty(arg).partial_over(PartialKind::Sum, &Axes::none())).collect();
    let returned = block[SectionKind::I].ret.clone();
    let hints = returned.iter().copied().zip(wanted.iter().map(|ty| Hint::preference(axes_of(ty)))).collect();
    site.decide(block, SectionKind::I, &hints)?;
    for (place, (value, ty)) in returned.into_iter().zip(&wanted).enumerate() {
        let moved = moved_to(block, SectionKind::I, value, ty);
        block[SectionKind::I].ret[place] = moved;
    }
    site.decide(block, SectionKind::W, &Hints::default())
}

/// The value in the wanted type: the value itself, or the result of a reshard at the end of the section.
fn moved_to(block: &mut Block, kind: SectionKind, value: Value, wanted: &Type) -> Value {
    if block.ty(value) == wanted {
        return value;
    }
    let wanted = wanted.closed().named_as(block.ty(value));
    let moved = block.add_value("", wanted);
    block[kind].stmts.push(reshard_stmt(moved, value));
    moved
}

/// Gives the gradients of a parameter shared by several blocks the union of their partial axes.
fn join_partial_gradients(model: &mut Model) {
    let mut unreduced: FxHashMap<ParamInstance, Axes> = FxHashMap::default();
    let bindings = gradient_bindings(model);
    for (instances, id, gradient) in &bindings {
        let axes = model.blocks[*id].ty(*gradient).partial_axes();
        for instance in instances {
            let all = unreduced.entry(*instance).or_insert_with(|| axes.clone());
            if *all != axes {
                *all = all.union(&axes);
            }
        }
    }
    for (instances, id, gradient) in bindings {
        let all = instances.iter().fold(Axes::none(), |all, instance| all.union(&unreduced[instance])).sorted();
        let block = &mut model.blocks[id];
        if block.ty(gradient).partial_axes() != all {
            partial_gradient(block, gradient, &all);
        }
    }
}

type Binding = (Vec<ParamInstance>, BlockId, Value);

fn gradient_bindings(model: &Model) -> Vec<Binding> {
    let mut bindings: Vec<Binding> = Vec::new();
    for (id, block) in &model.blocks {
        let calls = calls_of(model, id);
        let bound: Vec<Vec<ParamInstance>> =
            calls.flat_map(|call| (0..call.instances()).map(move |i| model.call_params(call, i))).collect();
        for (place, param) in block.args_of(ArgKind::Param).enumerate() {
            let Some(gradient) = block.gradient_of(param) else { continue };
            let instances = bound.iter().filter_map(|params| params.get(place).copied());
            bindings.push((instances.collect(), id, gradient));
        }
    }
    bindings
}

fn partial_gradient(block: &mut Block, gradient: Value, axes: &Axes) {
    let section = &block[SectionKind::W];
    let Some(place) = section.stmts.iter().position(|stmt| stmt.results.contains(&gradient)) else { return };
    let accumulated = block.values[gradient].ty.clone();
    let natural = made(block, gradient, &accumulated);
    let moved = block.add_value("", natural.partial_over(PartialKind::Sum, axes));
    let fresh = block.add_value("", natural);
    block.values[gradient].ty = accumulated.partial_over(PartialKind::Sum, axes);
    let stmts = &mut block[SectionKind::W].stmts;
    stmts[place].results = vec![fresh];
    stmts[place].accumulate = false;
    let copy = Op::from(Unary(UnaryKind::Scale(1.0)));
    let add = Stmt { accumulate: true, op: copy, ..reshard_stmt(gradient, moved) };
    stmts.splice(place + 1..place + 1, [reshard_stmt(moved, fresh), add]);
}

/// Starts `U` with the reduction of each gradient, into the sharding of its parameter's state.
fn pay_gradients(block: &mut Block) {
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let mut reduced = Vec::new();
    for param in params {
        let Some(gradient) = block.gradient_of(param) else { continue };
        if !block[SectionKind::U].stmts.iter().any(|stmt| stmt.operands.contains(&gradient)) {
            continue;
        }
        let states = block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(param));
        let storage = states.map(|state| block.ty(state).storage.clone()).next().unwrap_or_default();
        let wanted = Type { storage, ..block.ty(gradient).partial_over(PartialKind::Sum, &Axes::none()) };
        if wanted == *block.ty(gradient) {
            continue;
        }
        let whole = block.add_value("", wanted);
        for stmt in &mut block[SectionKind::U].stmts {
            stmt.operands.iter_mut().filter(|operand| **operand == gradient).for_each(|operand| *operand = whole);
        }
        reduced.push(reshard_stmt(whole, gradient));
    }
    block[SectionKind::U].stmts.splice(0..0, reduced);
}

/// Makes the sums that blocks pass to the step graph partial over the same axes, so that their total is reduced once.
fn plan_step(site: &Site<'_>, model: &mut Model) -> Result<(), Fault> {
    let mut unreduced = Axes::none();
    for block in model.blocks.values() {
        let Some(&value) = block[SectionKind::U].ret.first() else { continue };
        unreduced = unreduced.union(&block.ty(value).partial_axes());
    }
    let unreduced = unreduced.sorted();
    for block in model.blocks.values_mut() {
        let Some(&value) = block[SectionKind::U].ret.first() else { continue };
        let wanted = block.ty(value).partial_over(PartialKind::Sum, &unreduced);
        let moved = moved_to(block, SectionKind::U, value, &wanted);
        block[SectionKind::U].ret[0] = moved;
    }
    let Some(step) = &mut model.step else { return Ok(()) };
    let args: Vec<Value> = step.graph.args.iter().map(|arg| arg.value).collect();
    for value in args {
        step.graph.values[value].ty = step.graph.ty(value).partial_over(PartialKind::Sum, &unreduced);
    }
    site.decide(&mut step.graph, SectionKind::F, &Hints::default())?;
    for place in 0..step.graph[SectionKind::F].ret.len() {
        let value = step.graph[SectionKind::F].ret[place];
        let reduced = step.graph.ty(value).partial_over(PartialKind::Sum, &Axes::none());
        let moved = moved_to(&mut step.graph, SectionKind::F, value, &reduced);
        step.graph[SectionKind::F].ret[place] = moved;
    }
    Ok(())
}

fn axes_of(ty: &Type) -> Vec<Axes> {
    ty.dims.iter().map(|dim| dim.axes.clone()).collect()
}
