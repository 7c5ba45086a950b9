//! `reshard`: inserts a reshard where an op needs an operand in another sharding.
//!
//! One reshard serves all readers in a section. A value that I gathered also serves W, which runs right after I or
//! receives the value as saved for W. A value that F reduced or sliced is reused by the backward, since it is no larger
//! than its source. A value that F gathered is not saved: W gathers again (Korthikanti et al. 2022, section 4.2.2). A
//! broadcast or view is recomputed instead of moved: its source is resharded, which is smaller or is shared with other
//! users.

use crate::PlanError;
use crate::fault::Fault;
use crate::sections::{count_uses, operand_for, reshard_stmt, wanted_types};
use cost::Platform;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::Op;
use ir::options::PlanOptions;
use ir::types::Type;

pub(crate) fn run(model: &mut Model, _: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    let mesh = model.mesh.clone();
    let step = model.step.as_mut().map(|step| &mut step.graph);
    for block in model.blocks.values_mut().chain(step) {
        let mut moved = Moved::default();
        for kind in SectionKind::ALL {
            match kind {
                SectionKind::I => moved.drop_gathered(block, &mesh),
                SectionKind::U => moved.there.clear(),
                SectionKind::G | SectionKind::F | SectionKind::W => {}
            }
            reshard_section(&mesh, block, kind, &mut moved).map_err(|fault| fault.in_pass("reshard"))?;
        }
        drop_unread(block, &moved.anew);
    }
    Ok(())
}

/// Removes values that nothing reads once they are recomputed in another sharding. Removal runs from last to first,
/// since a removed value may be the only reader of an earlier one. The recomputed value takes over the name.
fn drop_unread(block: &mut Block, anew: &[(Value, Value)]) {
    if anew.is_empty() {
        return;
    }
    let mut uses = count_uses(block);
    for &(value, _) in anew.iter().rev() {
        if uses.get(&value).is_some_and(|&uses| uses > 0) {
            continue;
        }
        for section in &mut block.sections {
            let made = section.stmts.extract_if(.., |stmt| stmt.results == [value]);
            made.flat_map(|stmt| stmt.operands).for_each(|operand| *uses.entry(operand).or_default() -= 1);
        }
        let name = std::mem::take(&mut block.values[value].name);
        let first = anew.iter().find(|(other, _)| *other == value);
        if let Some(&(_, instead)) = first.filter(|_| !name.is_empty()) {
            block.values[instead].name = name;
        }
    }
}

/// Reshards done so far.
#[derive(Default)]
pub(crate) struct Moved {
    /// Triples of value, sharding and resharded value.
    there: Vec<(Value, Type, Value)>,
    /// Pairs of value and recomputed value.
    anew: Vec<(Value, Value)>,
}

impl Moved {
    /// Forgets gathered values, which are larger than their source and are not saved for the backward.
    pub(crate) fn drop_gathered(&mut self, block: &Block, mesh: &Mesh) {
        self.there.retain(|(from, to, _)| to.local_bytes(mesh) <= block.ty(*from).local_bytes(mesh));
    }

    /// Type of a value; for a partial value, the type that it was already reduced to.
    fn type_of<'t>(&'t self, block: &'t Block, value: Value) -> &'t Type {
        let ty = block.ty(value);
        if ty.partial.is_none() {
            return ty;
        }
        let reduced = self.there.iter().find(|(from, to, _)| *from == value && to.partial.is_none());
        reduced.map_or(ty, |(_, to, _)| to)
    }

    /// Resharded or recomputed form of a value in the given type.
    fn result(&self, value: Value, ty: &Type) -> Option<Value> {
        let (_, _, result) = self.there.iter().find(|(from, to, _)| *from == value && to == ty)?;
        Some(*result)
    }

    /// Forgets reshards of an argument that the statement stores to.
    pub(crate) fn forget_stored(&mut self, stmt: &Stmt) {
        self.there.retain(|(value, _, _)| !stmt.results.contains(value));
    }
}

/// Inserts the reshards that the statements of a section need.
///
/// # Errors
/// An op's rule does not fit its tensors.
pub(crate) fn reshard_section(
    mesh: &Mesh,
    block: &mut Block,
    kind: SectionKind,
    moved: &mut Moved,
) -> Result<(), Fault> {
    for mut stmt in std::mem::take(&mut block[kind].stmts) {
        if let Some(wanted) = wanted_types(mesh, block, &stmt, &|value| moved.type_of(block, value))? {
            for (place, ty) in wanted.into_iter().enumerate() {
                make_anew(mesh, block, kind, stmt.operands[place], &ty, moved)?;
                stmt.operands[place] = in_sharding(block, kind, stmt.operands[place], ty, moved);
            }
        }
        if stmt.op == Op::Reshard {
            moved.there.push((stmt.operands[0], block.ty(stmt.results[0]).clone(), stmt.results[0]));
        }
        moved.forget_stored(&stmt);
        block[kind].stmts.push(stmt);
    }
    Ok(())
}

/// Recomputes a broadcast or view from its resharded source, instead of resharding the value. `U` is excluded, since it
/// may have stored to the source.
fn make_anew(
    mesh: &Mesh,
    block: &mut Block,
    kind: SectionKind,
    value: Value,
    ty: &Type,
    moved: &mut Moved,
) -> Result<(), Fault> {
    if kind == SectionKind::U || block.ty(value) == ty || moved.result(value, ty).is_some() {
        return Ok(());
    }
    let Some(maker) = block[kind].stmts.iter().find(|stmt| stmt.results == [value]) else { return Ok(()) };
    let &[operand] = maker.operands.as_slice() else { return Ok(()) };
    if maker.accumulate || !(maker.op.facts().is_view || block.ty(operand).bytes() < block.ty(value).bytes()) {
        return Ok(());
    }
    let Some(wanted) = operand_for(mesh, block, maker, ty)? else { return Ok(()) };
    let maker = maker.clone();
    make_anew(mesh, block, kind, operand, &wanted, moved)?;
    let operands = vec![in_sharding(block, kind, operand, wanted, moved)];
    let result = block.add_value("", ty.clone());
    block[kind].stmts.push(Stmt { results: vec![result], operands, ..maker });
    moved.there.push((value, ty.clone(), result));
    moved.anew.push((value, result));
    Ok(())
}

/// The value in the given type: the value itself, an earlier reshard of it, or a new reshard.
pub(crate) fn in_sharding(block: &mut Block, kind: SectionKind, value: Value, ty: Type, moved: &mut Moved) -> Value {
    if *block.ty(value) == ty {
        return value;
    }
    if let Some(result) = moved.result(value, &ty) {
        return result;
    }
    let result = block.add_value("", ty.clone());
    block[kind].stmts.push(reshard_stmt(result, value));
    moved.there.push((value, ty, result));
    result
}
