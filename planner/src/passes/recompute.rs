//! `recompute`: recomputes the configured values in the backward instead of saving them (`transforms::recompute`), and
//! activations whose recomputation is free. `recompute=auto` leaves the choice to an estimate, and nothing is recomputed here.
//!
//! It also marks the calls whose saved activations are offloaded to host memory. Of layers counted by stage (`all:2`) it marks the
//! first of the model, and stage assignment then those of each stage. Optimizer states in host memory are a mark of the model.
//!
//! The pass is idempotent, so any dump can continue. If only the first layers of each stage are recomputed (`full:2`),
//! a layer has two variants from here on. Stage assignment later decides which calls use which variant; until then the
//! model's first calls recompute.

use crate::PlanError;
use cost::Platform;
use ir::dim_role::DimRole;
use ir::graph::{Block, Model, SectionKind};
use ir::ops::OpClass;
use ir::options::{Offload, PlanOptions, Recompute};
use ir::types::Dims;
use std::collections::BTreeSet;
use transforms::offload::{offload_all, offload_layers, offloaded_layers};
use transforms::recompute::{
    add_variants, call_variants, check_names, is_layer, is_module, of_module, of_value, recompute, recomputed_layers,
    remade,
};

pub(crate) fn run(model: &mut Model, options: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    if model.is_fully_specified() && model.has_mesh {
        return Ok(());
    }
    model.offload_states |= options.parallel.offload_optimizer;
    match options.parallel.offload {
        Offload::None | Offload::Auto => {}
        Offload::All(None) => offload_all(model),
        Offload::All(Some(layers)) if offloaded_layers(model).is_none() => offload_layers(model, layers, &[0]),
        Offload::All(Some(_)) => {}
    }
    check_names(model, &options.parallel.recompute)?;
    match &options.parallel.recompute {
        Recompute::Auto => return Ok(()),
        Recompute::None | Recompute::Full(Some(0)) => {}
        Recompute::Full(Some(layers)) if *layers < layers_of(model) => {
            if recomputed_layers(model).is_none() {
                for variant in add_variants(model) {
                    full(&mut model.blocks[variant]);
                }
                call_variants(model, *layers, &[0]);
            }
        }
        Recompute::Full(_) => model.blocks.values_mut().filter(|block| is_layer(block)).for_each(full),
        Recompute::Selective(names) => {
            for block in model.blocks.values_mut().filter(|block| is_layer(block)) {
                let recomputed = selected(block, &model.dims, names, options);
                recompute(block, &recomputed);
            }
        }
    }
    for block in model.blocks.values_mut() {
        let free = remade(block);
        recompute(block, &free);
    }
    Ok(())
}

/// Number of layer instances, with all slices of one instance counted once.
fn layers_of(model: &Model) -> u32 {
    let layers = model.calls.iter().filter(|call| is_layer(&model.blocks[call.block]) && call.slice.unwrap_or(0) == 0);
    layers.map(|call| call.instances()).sum()
}

fn full(block: &mut Block) {
    let all = (0..block[SectionKind::F].stmts.len()).collect();
    recompute(block, &all);
}

/// Unsaved values of the named modules and values. Core attention is excluded: its kernel saves neither scores nor
/// softmax.
fn selected(block: &Block, dims: &Dims, names: &[String], options: &PlanOptions) -> BTreeSet<usize> {
    let mut recomputed: BTreeSet<usize> = BTreeSet::new();
    for name in names {
        let mut places = of_module(block, dims, name);
        if name == "op" {
            places.retain(|&place| !is_summed(block, dims, place, options));
        }
        recomputed.extend(places);
        recomputed.extend(of_value(block, name).filter(|_| !is_module(name)));
    }
    recomputed
}

/// Returns whether a product will be a partial sum: it contracts a dim that a rule shards in parameters.
fn is_summed(block: &Block, dims: &Dims, place: usize, options: &PlanOptions) -> bool {
    let stmt = &block[SectionKind::F].stmts[place];
    if stmt.op.facts().class != OpClass::Product {
        return false;
    }
    let names = stmt.operands.iter().flat_map(|&value| &block.ty(value).dims).filter_map(|dim| dim.name);
    let made: BTreeSet<_> =
        stmt.results.iter().flat_map(|&value| &block.ty(value).dims).filter_map(|dim| dim.name).collect();
    let mut contracted = names.filter(|name| !made.contains(name));
    contracted.any(|name| dims[name].role.is_some_and(|role| is_sharded(role, options)))
}

/// Returns whether a rule shards dims of a role over several ranks.
fn is_sharded(role: DimRole, options: &PlanOptions) -> bool {
    let rules = options.rules.iter().filter(|rule| rule.roles.contains(&role));
    rules.filter_map(|rule| options.parallel.degree(&rule.axis)).any(|degree| degree > 1)
}
