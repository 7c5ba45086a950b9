//! Start of the search: the result of `propagate` on the same model, inferred from its types.

use super::graph::{DECIDED, ShardedValue, boundary};
use super::params::{Classes, Kept};
use super::turns::Before;
use crate::assign::{Assignment, Operand};
use crate::passes::{annotate, propagate};
use crate::ports::{Ports, passed, value_results};
use crate::recover::recover;
use crate::reshard::sharding::Sharding;
use crate::sections::{instance_of, is_stored, types_of};
use cost::Platform;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::BlockId;
use ir::mesh::Axes;
use ir::options::PlanOptions;
use ir::types::Type;

/// Use of all axes under rule-based propagation; `None` if the rules do not fit the model.
pub(super) fn propagated(
    model: &Model,
    options: &PlanOptions,
    platform: &Platform<'_>,
    ports: &Ports,
    classes: &Classes,
) -> Option<Before> {
    let (mut planned, rules) = (model.clone(), PlanOptions::of(options.parallel.clone()));
    annotate::run(&mut planned, &rules, platform).ok()?;
    propagate::run(&mut planned, &rules, platform).ok()?;
    let mut before = Before::default();
    for (id, block) in &model.blocks {
        let types = &planned.blocks[id];
        for kind in DECIDED {
            for (place, stmt) in block[kind].stmts.iter().enumerate() {
                let assignment = assignment(&planned, types, stmt)?;
                before.stmts.insert((id, kind, place), assignment);
            }
        }
        boundaries(&mut before, ports, id, types);
        for param in block.args_of(ArgKind::Param) {
            let Some(class) = classes.passed(model, id, param).map(|param| classes.class(param)) else { continue };
            let state = block.args_of(ArgKind::State).find(|&state| block.owner_of(state) == Some(param));
            let states = state.map_or_else(Axes::none, |state| types.ty(state).storage.sorted());
            before.params.entry(class).or_insert_with(|| Kept { sharding: plain(types.ty(param)), states });
        }
    }
    Some(before)
}

/// Shardings of values passed between blocks, and of their cotangents.
fn boundaries(before: &mut Before, ports: &Ports, id: BlockId, block: &Block) {
    for (place, (value, _)) in passed(block).into_iter().enumerate() {
        before.values.insert(ShardedValue::Port(ports.of_argument(id, place)), plain(block.ty(value)));
    }
    for kind in DECIDED {
        for (at, what) in boundary(ports, id, block, kind) {
            before.values.insert(what, plain(block.ty(block[kind].ret[at])));
        }
    }
    let (places, results) = (value_results(&block.results), block.differentiable_results());
    for (&cotangent, (result, _)) in block[SectionKind::I].args.iter().zip(results) {
        if let Some(place) = places.iter().position(|&place| place == result) {
            before.values.insert(ShardedValue::Cotangent(ports.of_result(id, place)), plain(block.ty(cotangent)));
        }
    }
}

/// Sharding of a type's dims alone, without partial and storage axes.
fn plain(ty: &Type) -> Sharding {
    Sharding { storage: Axes::none(), unreduced: Axes::none(), ..Sharding::of(ty) }
}

fn assignment(model: &Model, block: &Block, stmt: &Stmt) -> Option<Assignment> {
    let (instance, def) = (instance_of(block, stmt).ok()??, stmt.op.def()?);
    let operands = stmt.operands.iter();
    let operands: Vec<Operand<'_>> =
        operands.map(|&value| Operand { ty: block.ty(value), param: is_stored(block, value), uses: 1 }).collect();
    let results = types_of(block, &stmt.results);
    let assignment = recover(&model.mesh, def, &instance, &operands, &results);
    Some(Assignment { storage: Axes::none(), ..assignment })
}
