//! `annotate`: writes the shardings that are known before any rule is applied.
//!
//! A rule `tp: kv_heads, vocabulary` shards every dim of one of these roles on its kind of tensor; of an axis with more ranks than
//! there are key heads, the rest shards the query heads of each. In a file with its own mesh, the
//! forward's stated types are pins. Gradients and optimizer states follow their parameter. ZeRO stores them
//! flat-sharded over those axes of a ZeRO group that do not shard the parameter: states from stage 1, gradients from stage
//! 2, parameters at stage 3 (Rajbhandari et al. 2020). All other dims stay open. A model without open dims is
//! unchanged.

use crate::PlanError;
use crate::heads::{attend_by_heads, divisors, head_axes};
use crate::states::in_blocks;
use cost::Platform;
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, Model};
use ir::heads::{ATTENTION, HeadRoles, Heads, SCAN};
use ir::ids::{BlockId, Value};
use ir::mesh::{Axes, Mesh};
use ir::options::{AnnotationRule, AnnotationTarget, PlanOptions, Sharding};
use ir::types::{Dims, Type};
use transforms::recompute::calls_of;

pub(crate) fn run(model: &mut Model, options: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    if model.is_fully_specified() {
        return Ok(());
    }
    in_blocks(model, &options.parallel)?;
    if options.parallel.devices() > 1 {
        apply_rules(model, options)?;
    }
    if let Sharding::Auto { .. } = options.sharding {
        bind(model, |_, _, _| Axes::none());
        return Ok(());
    }
    close(model, options)
}

/// Closes the declared parameters and inputs, and the values that follow them, as the rules leave them.
pub(crate) fn close(model: &mut Model, options: &PlanOptions) -> Result<(), PlanError> {
    let storage = ZeroStorage::of(model, options);
    // Dims of which no rule has the role stay unsharded; `propagate` decides the open dims of a file with its own mesh.
    if options.parallel.devices() > 1 || model.mesh.tensor_axes().is_empty() {
        model.params.values_mut().for_each(|param| param.ty = param.ty.closed());
        model.inputs.iter_mut().for_each(|input| input.ty = input.ty.closed());
    }
    model.params.values_mut().for_each(|param| store(&mut param.ty, &|ty| storage.since_stage(3, ty)));
    bind(model, |_, _, ty| storage.since_stage(1, ty));
    model.blocks.values_mut().for_each(|block| store_gradients(block, &|ty| storage.since_stage(2, ty)));
    attend_by_heads(model, options)
}

/// Copies declared types to the arguments, and parameter types to gradients and states. `zero` gives the storage axes
/// of a block's parameter of this type.
pub(crate) fn bind(model: &mut Model, zero: impl Fn(BlockId, Value, &Type) -> Axes) {
    for id in model.blocks.keys().collect::<Vec<_>>() {
        bind_params(model, id);
        follow_params(&mut model.blocks[id], |param, ty| zero(id, param, ty));
    }
}

/// Axes over which ZeRO shards.
struct ZeroStorage {
    /// Stage of ZeRO.
    stage: u8,
    /// Axes of a group.
    group: Axes,
    /// Axes of tp, whose ranks may hold copies of experts.
    tensor: Axes,
    dims: Dims,
}

impl ZeroStorage {
    fn of(model: &Model, options: &PlanOptions) -> ZeroStorage {
        let tensor = model.mesh.lookup("tp").unwrap_or_default();
        let (stage, group) = (options.parallel.zero, zero_group(&model.mesh, options));
        ZeroStorage { stage, group, tensor, dims: model.dims.clone() }
    }

    /// Storage axes of a tensor that ZeRO shards from a stage on, for a parameter of this type.
    fn since_stage(&self, first: u8, ty: &Type) -> Axes {
        if self.stage >= first { self.axes(ty) } else { Axes::none() }
    }

    /// Axes of the ranks that hold a parameter of this type, or copies of it.
    fn axes(&self, ty: &Type) -> Axes {
        let of_experts = ty.dims.iter().any(|dim| dim.role(&self.dims) == Some(DimRole::Experts));
        if of_experts { self.group.union(&self.tensor) } else { self.group.clone() }
    }
}

/// Axes of a group of ZeRO: the innermost axes of dp and cp in rank order, whose ranks `build_mesh` has made `shard`.
pub(crate) fn zero_group(mesh: &Mesh, options: &PlanOptions) -> Axes {
    let [dp, cp] = ["dp", "cp"].map(|name| mesh.lookup(name).unwrap_or_default());
    let all = dp.union(&cp);
    let (shard, ranked) = (options.parallel.shard.unwrap_or_else(|| mesh.size(&all)), all.sorted());
    let mut inner = (0..=ranked.len()).rev().map(|outer| ranked.iter().skip(outer).collect::<Axes>());
    let group = inner.find(|group| mesh.size(group) >= shard);
    all.intersection(&group.unwrap_or_default())
}

fn apply_rules(model: &mut Model, options: &PlanOptions) -> Result<(), PlanError> {
    let rules = options
        .rules
        .iter()
        .filter(|rule| options.parallel.degree(&rule.axis).is_none_or(|degree| degree > 1))
        .map(|rule| RuleAxes::of(model, rule))
        .collect::<Result<Vec<_>, _>>()?;
    let annotations = Annotations { rules, mesh: &model.mesh, dims: &model.dims };
    for input in &mut model.inputs {
        annotations.shard(&mut input.ty, AnnotationTarget::Inputs)?;
    }
    for param in model.params.values_mut() {
        annotations.shard(&mut param.ty, AnnotationTarget::Params)?;
    }
    for block in model.blocks.values_mut() {
        for arg in block.args.iter().filter(|arg| arg.kind == ArgKind::Value) {
            annotations.shard(&mut block.values[arg.value].ty, AnnotationTarget::Values)?;
        }
    }
    Ok(())
}

/// The annotation rules of a configuration on the mesh of its model.
struct Annotations<'a> {
    rules: Vec<RuleAxes<'a>>,
    mesh: &'a Mesh,
    dims: &'a Dims,
}

impl Annotations<'_> {
    /// Applies the rules for one kind of tensor to a type.
    fn shard(&self, ty: &mut Type, on: AnnotationTarget) -> Result<(), PlanError> {
        let open: Vec<bool> = ty.dims.iter().map(|dim| dim.open).collect();
        for axes in self.rules.iter().filter(|axes| axes.rule.on == on) {
            shard(ty, &open, axes, self.mesh, self.dims)?;
        }
        Ok(())
    }
}

/// A rule with its axes.
struct RuleAxes<'a> {
    rule: &'a AnnotationRule,
    all: Axes,
    /// Axes that shard key heads, and those whose ranks share a key head: of attention, and of scans.
    heads: [(HeadRoles, [Axes; 2]); 2],
}

impl<'a> RuleAxes<'a> {
    fn of(model: &Model, rule: &'a AnnotationRule) -> Result<RuleAxes<'a>, PlanError> {
        let Some(all) = model.mesh.lookup(&rule.axis) else {
            let known = model.mesh.axes.values().map(|axis| axis.name.clone()).collect::<Vec<_>>().join(", ");
            return Err(PlanError::UnknownAxis { name: rule.axis.clone(), known });
        };
        if rule.roles.iter().any(|&role| model.dim_of(role).is_some()) {
            let heads = [ATTENTION, SCAN]
                .map(|roles| (roles, head_axes(&model.mesh, &all, Heads::of_roles(model.dims.values(), roles))));
            return Ok(RuleAxes { rule, all, heads });
        }
        let known = model.dims.values().map(|dim| dim.name.clone()).collect::<Vec<_>>().join(", ");
        Err(PlanError::NoDimOfRole { axis: rule.axis.clone(), roles: rule.roles.clone(), known })
    }

    /// Axes that shard dims of a role.
    fn of_role(&self, role: DimRole) -> Option<&Axes> {
        let roles = &self.rule.roles;
        for ([of_keys, of_queries], [keys, queries]) in self.heads.iter().filter(|(pair, _)| roles.contains(&pair[0])) {
            if role == *of_keys {
                return Some(keys);
            }
            if role == *of_queries && !queries.is_empty() {
                return Some(queries);
            }
        }
        roles.contains(&role).then_some(&self.all)
    }
}

/// Adds the rule's axes to the open dims of its roles, after the axes of earlier rules.
fn shard(ty: &mut Type, open: &[bool], rule: &RuleAxes<'_>, mesh: &Mesh, dims: &Dims) -> Result<(), PlanError> {
    let used = ty.sharded_axes();
    for (dim, _) in ty.dims.iter_mut().zip(open).filter(|(_, open)| **open) {
        let Some(name) = dim.name.map(|name| &dims[name]) else { continue };
        let Some(axes) = name.role.and_then(|role| rule.of_role(role)) else { continue };
        if !used.is_disjoint(axes) {
            continue;
        }
        let all = dim.axes.union(axes);
        let (axis, degree, dim_name, size) = (rule.rule.axis.clone(), mesh.size(&all), name.name.clone(), dim.size);
        if name.indivisible && !mesh.is_even(size, &all) {
            let roles = [ATTENTION, SCAN].into_iter().find(|[keys, _]| name.role == Some(*keys) && dim.axes.is_empty());
            let heads = roles.and_then(|roles| Heads::of_roles(dims.values(), roles));
            let degrees = heads.map_or_else(|| divisors(size), |heads| heads.degrees());
            return Err(PlanError::NotDivisible { axis, degree, dim: dim_name, size, degrees });
        }
        if degree > size {
            return Err(PlanError::TooManyShards { axis, degree, dim: dim_name, size });
        }
        (dim.axes, dim.open) = (all, false);
    }
    Ok(())
}

/// Copies the declared types to a block's parameters and inputs.
fn bind_params(model: &mut Model, id: BlockId) {
    let Some(call) = calls_of(model, id).next() else { return close_params(&mut model.blocks[id]) };
    let params = model.call_params(call, 0);
    let inputs: Vec<Option<Type>> = call
        .args
        .iter()
        .map(|value| model.inputs.iter().find(|input| input.value == *value).map(|input| input.ty.clone()))
        .collect();
    let block = &mut model.blocks[id];
    let types: Vec<Type> = params.iter().map(|&(param, _)| model.params[param].ty.clone()).collect();
    let bound: Vec<(Value, Type)> = block.args_of(ArgKind::Param).zip(types).collect();
    let values = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
    let fed: Vec<(Value, Type)> = values.zip(inputs).filter_map(|(arg, ty)| ty.map(|ty| (arg.value, ty))).collect();
    for (value, ty) in bound.into_iter().chain(fed) {
        block.values[value].ty = Type { dims: renamed(&ty, block.ty(value)), ..ty };
    }
}

/// Closes parameters of a block that no call reaches.
fn close_params(block: &mut Block) {
    for param in block.args_of(ArgKind::Param).collect::<Vec<_>>() {
        block.values[param].ty = block.ty(param).closed();
    }
}

/// Dims of `ty` with the block's dim names.
fn renamed(ty: &Type, named: &Type) -> Vec<ir::types::Dim> {
    let pairs = ty.dims.iter().zip(&named.dims);
    pairs.map(|(dim, own)| ir::types::Dim { name: own.name.or(dim.name), ..dim.clone() }).collect()
}

/// Adds those storage axes that are free, unless the type states its storage.
fn store(ty: &mut Type, axes: &dyn Fn(&Type) -> Axes) {
    if ty.storage.is_empty() && ty.rank() > 0 {
        ty.storage = axes(ty).without(&ty.sharded_axes());
    }
}

/// Gives states their parameter's sharding, stored flat over the free ZeRO axes.
fn follow_params(block: &mut Block, zero: impl Fn(Value, &Type) -> Axes) {
    for state in block.args_of(ArgKind::State).collect::<Vec<_>>() {
        let Some(owner) = block.owner_of(state) else { continue };
        let stated = block.ty(state);
        let mut ty = Type { dtype: stated.dtype, storage: stated.storage.clone(), ..block.ty(owner).clone() };
        store(&mut ty, &|ty| zero(owner, ty));
        block.values[state].ty = ty;
    }
}

/// Gives gradients their own storage axes; their sharding is the parameter's.
fn store_gradients(block: &mut Block, axes: &dyn Fn(&Type) -> Axes) {
    for param in block.args_of(ArgKind::Param).collect::<Vec<_>>() {
        let Some(gradient) = block.gradient_of(param) else { continue };
        let used = block.ty(param).sharded_axes();
        let ty = &mut block.values[gradient].ty;
        if ty.storage.is_empty() && ty.rank() > 0 {
            ty.storage = axes(ty).without(&used);
        }
    }
}
