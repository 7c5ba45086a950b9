//! `reshard`: inserts a reshard where an op needs an operand in another layout than it lies.
//!
//! One reshard serves all readers in the same section; what I has gathered serves W too (it runs right after, or the value
//! crosses). What F has paid or cut serves the backward, for it is no larger than what it was made of; what F has gathered
//! is not kept: W gathers again (Korthikanti et al. 2022, section 4.2.2).

use crate::PlanError;
use crate::sections::{reshard_stmt, wanted_types};
use cost::Cluster;
use ir::goal::Goal;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::Op;
use ir::types::Type;

pub(crate) fn run(model: &mut Model, _: &Goal, _: &Cluster) -> Result<(), PlanError> {
    let mesh = model.mesh.clone();
    let step = model.step.as_mut().map(|step| &mut step.graph);
    for block in model.blocks.values_mut().chain(step) {
        let mut moved = Moved::default();
        for kind in SectionKind::ALL {
            match kind {
                SectionKind::I => moved.drop_gathered(block, &mesh),
                SectionKind::U => moved = Moved::default(),
                SectionKind::F | SectionKind::W => {}
            }
            reshard_section(&mesh, block, kind, &mut moved).map_err(|why| PlanError::Fault { pass: "reshard", why })?;
        }
    }
    Ok(())
}

/// What has been resharded so far: (value, in which layout, result).
#[derive(Default)]
pub(crate) struct Moved(Vec<(Value, Type, Value)>);

impl Moved {
    /// What the backward shall not find: what is larger than what it was made of.
    pub(crate) fn drop_gathered(&mut self, block: &Block, mesh: &Mesh) {
        self.0.retain(|(from, to, _)| to.local_bytes(mesh) <= block.ty(*from).local_bytes(mesh));
    }

    /// The type of a value; of one that owes, that in which it is paid already.
    fn lies<'t>(&'t self, block: &'t Block, value: Value) -> &'t Type {
        let ty = block.ty(value);
        let is_paid = |(from, to, _): &&(Value, Type, Value)| *from == value && to.debt.is_none();
        let paid = if ty.debt.is_some() { self.0.iter().find(is_paid) } else { None };
        paid.map_or(ty, |(_, to, _)| to)
    }

    /// A store changes what an argument holds.
    pub(crate) fn forget_stored(&mut self, stmt: &Stmt) {
        self.0.retain(|(value, _, _)| !stmt.results.contains(value));
    }
}

/// Marks the changes of layout that the statements of a section need.
///
/// # Errors
/// An op's rule does not fit its tensors.
pub(crate) fn reshard_section(
    mesh: &Mesh,
    block: &mut Block,
    kind: SectionKind,
    moved: &mut Moved,
) -> Result<(), String> {
    for mut stmt in std::mem::take(&mut block[kind].stmts) {
        if let Some(wanted) = wanted_types(mesh, block, &stmt, &|value| moved.lies(block, value))? {
            for (place, ty) in wanted.into_iter().enumerate() {
                stmt.operands[place] = in_layout(block, kind, stmt.operands[place], ty, moved);
            }
        }
        if stmt.op == Op::Reshard {
            moved.0.push((stmt.operands[0], block.ty(stmt.results[0]).clone(), stmt.results[0]));
        }
        moved.forget_stored(&stmt);
        block[kind].stmts.push(stmt);
    }
    Ok(())
}

/// The value in a layout: itself, what it has been moved to before, or the result of a reshard.
pub(crate) fn in_layout(block: &mut Block, kind: SectionKind, value: Value, ty: Type, moved: &mut Moved) -> Value {
    if *block.ty(value) == ty {
        return value;
    }
    if let Some((_, _, result)) = moved.0.iter().find(|(from, to, _)| *from == value && *to == ty) {
        return *result;
    }
    let result = block.add_value("", ty.clone());
    block[kind].stmts.push(reshard_stmt(result, value));
    moved.0.push((value, ty, result));
    result
}
