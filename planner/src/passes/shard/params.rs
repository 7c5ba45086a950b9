//! Sharding of parameters and of their optimizer states (ZeRO, Rajbhandari et al. 2020). Parameters that calls pass to
//! one argument of a block have equal shardings.

use super::candidates;
use super::prices::Prices;
use super::turns::Turn;
use super::weights::Weights;
use crate::reshard::sharding::Sharding;
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::{BlockId, ParamId, Value};
use ir::mesh::Axes;
use ir::types::Type;
use petgraph::unionfind::UnionFind;
use transforms::recompute;

/// Storage option of a parameter.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Kept {
    /// Sharding of the parameter and its gradient.
    pub(crate) sharding: Sharding,
    /// Axes over which its states are stored.
    pub(crate) states: Axes,
}

impl Kept {
    /// Sharding of its states, and of its reduced gradient.
    pub(super) fn updated(&self) -> Sharding {
        Sharding { storage: self.states.clone(), ..self.sharding.clone() }
    }
}

/// Equivalence classes of parameters with equal shardings.
pub(super) struct Classes(UnionFind<usize>);

impl Classes {
    pub(super) fn of(model: &Model) -> Classes {
        let mut union = UnionFind::new(model.params.len());
        for block in model.blocks.keys() {
            let calls: Vec<Vec<(ParamId, u32)>> = calls_of(model, block).collect();
            for (first, other) in calls.iter().zip(calls.iter().skip(1)) {
                for ((a, _), (b, _)) in first.iter().zip(other) {
                    union.union(a.index(), b.index());
                }
            }
        }
        Classes(union)
    }

    /// Class of a parameter.
    pub(super) fn class(&self, param: ParamId) -> usize {
        self.0.find(param.index())
    }

    /// Parameter that the calls of a block pass for an argument.
    pub(super) fn passed(&self, model: &Model, block: BlockId, value: Value) -> Option<ParamId> {
        let place = model.blocks[block].args_of(ArgKind::Param).position(|param| param == value)?;
        calls_of(model, block).next()?.get(place).map(|&(param, _)| param)
    }
}

fn calls_of(model: &Model, block: BlockId) -> impl Iterator<Item = Vec<(ParamId, u32)>> + '_ {
    recompute::calls_of(model, block).map(|call| model.call_params(call, 0))
}

/// Properties of a parameter class.
pub(super) struct Class {
    /// Type of the first member.
    pub(super) ty: Type,
    /// Number of member tensors.
    pub(super) instances: u64,
    /// Blocks that take a member, with the argument.
    pub(super) taken: Vec<(BlockId, Value)>,
}

impl Class {
    /// Type of a tensor of the update: stored as the states if it has the sizes of the parameter, else replicated.
    fn stored(&self, ty: &Type, updated: &Sharding) -> Type {
        if ty.sizes() == self.ty.sizes() { updated.on(ty) } else { Sharding::whole(ty).on(ty) }
    }
}

/// All classes, by number.
pub(super) fn classes(model: &Model, classes: &Classes) -> Vec<(usize, Class)> {
    let mut found: Vec<(usize, Class)> = Vec::new();
    for (param, data) in &model.params {
        let class = classes.class(param);
        match found.iter_mut().find(|(number, _)| *number == class) {
            Some((_, known)) => known.instances += u64::from(data.instances()),
            None => {
                let instances = u64::from(data.instances());
                found.push((class, Class { ty: data.ty.clone(), instances, taken: Vec::new() }));
            }
        }
    }
    for (id, block) in &model.blocks {
        for value in block.args_of(ArgKind::Param) {
            let number = classes.passed(model, id, value).map(|param| classes.class(param));
            if let Some((_, class)) = found.iter_mut().find(|(class, _)| Some(*class) == number) {
                class.taken.push((id, value));
            }
        }
    }
    found
}

/// Storage options of a class in a turn, given its previous option. Each of the parameter's shardings is combined with
/// states stored over any of the unused axes; over `zero` where those are unused.
pub(super) fn ways(
    prices: &Prices<'_>,
    model: &Model,
    class: &Class,
    zero: &Axes,
    turn: &Turn,
    before: Option<&Kept>,
) -> Vec<Kept> {
    let (mesh, dims) = (prices.site.mesh, prices.site.dims);
    let stated = stated_storage(model, class);
    let has_states = class.taken.iter().any(|&(id, param)| states(&model.blocks[id], param).next().is_some());
    let mut found = Vec::new();
    for sharding in candidates::shardings(mesh, dims, &class.ty, turn, before.map(|before| &before.sharding)) {
        let left = mesh.tensor_axes().without(&sharding.used());
        if let Some(states) = &stated {
            // A unit of axes may contain more axes than the file states.
            if states.iter().all(|axis| left.contains(axis)) {
                found.push(Kept { sharding, states: states.clone() });
            }
            continue;
        }
        let forced: Axes = zero.iter().filter(|&axis| has_states && left.contains(axis)).collect();
        for states in stored(&left, turn, before, has_states) {
            let kept = Kept { sharding: sharding.clone(), states: states.union(&forced).sorted() };
            if !found.contains(&kept) {
                found.push(kept);
            }
        }
    }
    found.extend(before.filter(|before| !found.contains(before)).cloned());
    found
}

/// Possible storage axes of states: the previous axes where fixed, and all or none of the unused axes of each unit.
fn stored(left: &Axes, turn: &Turn, before: Option<&Kept>, has_states: bool) -> Vec<Axes> {
    let stays = before.map_or_else(Axes::none, |before| before.states.intersection(&turn.fixed).intersection(left));
    if !has_states {
        return vec![stays];
    }
    let units: Vec<Axes> =
        turn.units.iter().map(|unit| unit.intersection(left)).filter(|unit| !unit.is_empty()).collect();
    let mut stored = Vec::with_capacity(1 << units.len());
    for bits in 0..1usize << units.len() {
        let chosen = units.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
        stored.push(chosen.fold(stays.clone(), |all, (_, unit)| all.union(unit)).sorted());
    }
    stored
}

/// Storage of states as stated in the file.
fn stated_storage(model: &Model, class: &Class) -> Option<Axes> {
    let mut stated = class.taken.iter().flat_map(|&(id, param)| {
        let block = &model.blocks[id];
        states(block, param).map(move |state| block.ty(state).storage.clone())
    });
    stated.find(|storage| !storage.is_empty())
}

/// States of a parameter.
fn states(block: &Block, param: Value) -> impl Iterator<Item = Value> + '_ {
    block.args_of(ArgKind::State).filter(move |&state| block.owner_of(state) == Some(param))
}

/// Seconds per step of the update of a class, including the gather of the new values.
pub(super) fn seconds(prices: &mut Prices<'_>, model: &Model, class: &Class, weights: &Weights, kept: &Kept) -> f64 {
    let updated = kept.updated();
    let mut seconds = 0.0;
    for &(id, param) in &class.taken {
        let block = &model.blocks[id];
        let runs = weights.runs(id);
        for stmt in block[SectionKind::U].stmts.iter().filter(|stmt| is_of(block, stmt, param)) {
            let [operands, results] = [&stmt.operands, &stmt.results]
                .map(|values| values.iter().map(|&value| class.stored(block.ty(value), &updated)).collect::<Vec<_>>());
            seconds += runs * prices.op(&stmt.op, &operands, &results, false);
            if stmt.results.contains(&param) {
                seconds += runs * prices.path_seconds(&class.ty, &updated, &kept.sharding);
            }
        }
    }
    seconds
}

/// Returns whether a statement of `U` uses the parameter, its gradient or its states.
fn is_of(block: &Block, stmt: &Stmt, param: Value) -> bool {
    let mut values = stmt.operands.iter().chain(&stmt.results);
    values.any(|&value| value == param || block.owner_of(value) == Some(param))
}

/// Persistent bytes per rank of a class: parameters, gradients and states.
pub(super) fn bytes(prices: &Prices<'_>, model: &Model, class: &Class, weights: &Weights, kept: &Kept) -> u64 {
    let mesh = prices.site.mesh;
    let mut one = kept.sharding.bytes(&class.ty, mesh);
    let gradient = class.taken.iter().find_map(|&(id, param)| {
        let block = &model.blocks[id];
        block.gradient_of(param).map(|gradient| kept.sharding.bytes(block.ty(gradient), mesh))
    });
    one += gradient.unwrap_or(0);
    // Each block that takes a parameter names its states, which exist once.
    let states = class.taken.iter().map(|&(id, param)| {
        let block = &model.blocks[id];
        states(block, param).map(|state| kept.updated().bytes(block.ty(state), mesh)).sum::<u64>()
    });
    one += states.max().unwrap_or(0);
    one.saturating_mul(weights.held(class.instances))
}
