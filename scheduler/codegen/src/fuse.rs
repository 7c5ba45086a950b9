//! Fusion: neighbouring statements of a body that treat the same rows alike become one group, so that what only they read never
//! leaves the cache.
//!
//! A group takes the place of its first to its last statement, which no collective and no other kernel separates. Hence no transfer
//! starts later and none is waited for earlier.

use ir::fused::{Fused, ROW_BYTES};
use ir::graph::{Model, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::Rows;
use ir::program::{Body, BodyInstr, Program};
use ir::types::Type;
use std::collections::HashSet;

/// Groups the statements of all bodies.
pub fn fuse(model: &Model, program: &mut Program) {
    for body in program.bodies.values_mut() {
        let mut fusion = Fusion { mesh: &model.mesh, body, instrs: Vec::new(), open: None };
        for instr in &body.instrs {
            fusion.instr(instr);
        }
        fusion.close();
        body.instrs = fusion.instrs;
    }
}

struct Fusion<'a> {
    mesh: &'a Mesh,
    body: &'a Body,
    instrs: Vec<BodyInstr>,
    open: Option<Group>,
}

/// A group that may still grow.
struct Group {
    stmts: Vec<Stmt>,
    /// The leading dims that number its rows; `None`: any division of the elements.
    dims: Option<usize>,
    /// The tensors that have its rows.
    in_rows: HashSet<Value>,
    /// Values that are freed after their last reader in the group.
    freed: Vec<Value>,
}

impl Fusion<'_> {
    fn instr(&mut self, instr: &BodyInstr) {
        match (instr, &mut self.open) {
            (BodyInstr::Compute(stmt), _) => self.statement(stmt),
            (BodyInstr::Free(values), Some(group)) => group.freed.extend(values),
            _ => {
                self.close();
                self.instrs.push(instr.clone());
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        let Some(rows) = self.rows(stmt) else {
            self.close();
            return self.instrs.push(BodyInstr::Compute(stmt.clone()));
        };
        if let Some(group) = self.open.take() {
            match self.joined(group, stmt, &rows) {
                Ok(group) => return self.open = Some(group),
                Err(group) => self.open = Some(group),
            }
            self.close();
        }
        let in_rows = tensors_in_rows(stmt, &rows).collect();
        self.open = Some(Group { stmts: vec![stmt.clone()], dims: rows.dims, in_rows, freed: Vec::new() });
    }

    /// The rows that a statement treats alike.
    fn rows(&self, stmt: &Stmt) -> Option<Rows> {
        let types: Vec<&Type> = stmt.operands.iter().map(|&value| self.ty(value)).collect();
        let rows = stmt.op.def()?.rows(&types).filter(|_| !stmt.accumulate)?;
        let first = *tensors_in_rows(stmt, &rows).collect::<Vec<_>>().first()?;
        self.alike(first, tensors_in_rows(stmt, &rows), rows.dims).then_some(rows)
    }

    /// The group with a statement that reads or reads beside what it has, if their rows are the same.
    fn joined(&self, mut group: Group, stmt: &Stmt, rows: &Rows) -> Result<Group, Group> {
        let dims = group.dims.into_iter().chain(rows.dims).min();
        let in_rows: HashSet<Value> = tensors_in_rows(stmt, rows).collect();
        let mut whole = stmt.operands.iter().zip(&rows.operands).filter(|(_, has_rows)| !**has_rows);
        let made = |value: Value| group.stmts.iter().any(|stmt| stmt.results.contains(&value));
        let first = stmt.results[0];
        let fits = in_rows.iter().any(|value| group.in_rows.contains(value))
            && !whole.any(|(&value, _)| made(value))
            && self.alike(first, in_rows.iter().chain(&group.in_rows).copied(), dims)
            && self.row_bytes(group.stmts.iter().chain([stmt]), first, dims) <= ROW_BYTES;
        if !fits {
            return Err(group);
        }
        group.stmts.push(stmt.clone());
        group.in_rows.extend(in_rows);
        group.dims = dims;
        Ok(group)
    }

    /// True if all tensors are divided into rows as one of them is.
    fn alike(&self, one: Value, mut others: impl Iterator<Item = Value>, dims: Option<usize>) -> bool {
        let one = self.ty(one);
        match dims {
            None => others.all(|other| {
                let other = self.ty(other);
                let dims = |ty: &Type| ty.dims.iter().map(|dim| (dim.size, dim.axes.clone())).collect::<Vec<_>>();
                dims(one) == dims(other) && one.storage == other.storage
            }),
            Some(count) => {
                let has = |ty: &Type| ty.storage.is_empty() && ty.rank() >= count;
                let same = |ty: &Type| {
                    one.dims[..count].iter().zip(&ty.dims).all(|(a, b)| (a.size, &a.axes) == (b.size, &b.axes))
                };
                has(one) && others.all(|other| has(self.ty(other)) && same(self.ty(other)))
            }
        }
    }

    /// Bytes of all results in a row, of which interior values are some.
    fn row_bytes<'s>(&self, stmts: impl Iterator<Item = &'s Stmt>, first: Value, dims: Option<usize>) -> u64 {
        let Some(count) = dims else { return 0 };
        let rows: u64 = self.ty(first).local_bounds(self.mesh)[..count].iter().product();
        let bytes = |&value: &Value| self.ty(value).local_bytes(self.mesh) / rows.max(1);
        stmts.flat_map(|stmt| &stmt.results).map(bytes).sum()
    }

    /// Ends the group.
    fn close(&mut self) {
        let Some(Group { mut stmts, freed, .. }) = self.open.take() else { return };
        let made: Vec<Value> = stmts.iter().flat_map(|stmt| &stmt.results).copied().collect();
        let mut left = freed;
        match stmts.len() {
            1 => self.instrs.extend(stmts.pop().map(BodyInstr::Compute)),
            _ => {
                let outs = made.iter().copied().filter(|value| !left.contains(value)).collect();
                left.retain(|value| !made.contains(value));
                self.instrs.push(BodyInstr::Fused(Fused { stmts, outs }));
            }
        }
        if !left.is_empty() {
            self.instrs.push(BodyInstr::Free(left));
        }
    }

    fn ty(&self, value: Value) -> &Type {
        &self.body.values[value].ty
    }
}

/// The operands that have rows, and the results.
fn tensors_in_rows<'s>(stmt: &'s Stmt, rows: &'s Rows) -> impl Iterator<Item = Value> + 's {
    let operands = stmt.operands.iter().zip(&rows.operands).filter(|(_, has_rows)| **has_rows);
    operands.map(|(&value, _)| value).chain(stmt.results.iter().copied())
}
