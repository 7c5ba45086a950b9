//! `collectives`: makes each reshard a sequence of collectives, and combines those of `U` into buckets.

use crate::PlanError;
use ir::goal::Goal;
use ir::graph::{ArgKind, Block, Model, SectionKind, Span, Stmt};
use ir::ids::{AxisId, Value};
use ir::mesh::{Axes, Mesh};
use ir::ops::{Collective, Op};
use ir::types::{DebtKind, Type};

pub(crate) fn run(model: &mut Model, goal: &Goal) -> Result<(), PlanError> {
    let mesh = model.mesh.clone();
    let step = model.step.as_mut().map(|step| &mut step.graph);
    for block in model.blocks.values_mut().chain(step) {
        for kind in SectionKind::ALL {
            lower_section(block, kind).map_err(|why| PlanError::Fault { pass: "collectives", why })?;
        }
        combine(block, &mesh, goal.bucket_bytes);
    }
    Ok(())
}

fn lower_section(block: &mut Block, kind: SectionKind) -> Result<(), String> {
    let mut stmts: Vec<Stmt> = Vec::new();
    for stmt in std::mem::take(&mut block[kind].stmts) {
        let lowered = if stmt.op == Op::Reshard { lower(block, &stmts, &stmt)? } else { vec![stmt] };
        stmts.extend(lowered);
    }
    block[kind].stmts = stmts;
    Ok(())
}

/// The steps of one reshard. Where two ways begin alike, the second goes on from what the first has made.
fn lower(block: &mut Block, before: &[Stmt], stmt: &Stmt) -> Result<Vec<Stmt>, String> {
    let (from, to) = (stmt.operands[0], stmt.results[0]);
    let path = path(block.ty(from), block.ty(to))?;
    let (mut stmts, mut value) = (Vec::new(), from);
    let last = path.len().saturating_sub(1);
    for (place, collective) in path.into_iter().enumerate() {
        let op = Op::Collective(collective.clone());
        if let (true, Some(made)) = (place < last, made_before(block, before, &op, value)) {
            value = made;
            continue;
        }
        let ty = collective.result_type(block.ty(value))?;
        let result = if place == last { to } else { block.add_value("", ty) };
        stmts.push(Stmt {
            results: vec![result],
            accumulate: false,
            op,
            operands: vec![value],
            comments: if stmts.is_empty() { stmt.comments.clone() } else { Vec::new() },
            span: Span::default(),
        });
        value = result;
    }
    Ok(stmts)
}

/// What the same step has made of the value in this section, unless either is stored to.
fn made_before(block: &Block, before: &[Stmt], op: &Op, value: Value) -> Option<Value> {
    let same = |stmt: &&Stmt| stmt.op == *op && stmt.operands == [value];
    let made = before.iter().find(same)?.results[0];
    let stored = |value| matches!(block.arg_kind(value), Some(ArgKind::Param | ArgKind::State));
    (!stored(value) && !stored(made)).then_some(made)
}

/// The collectives that lead from one layout to another: storage is gathered, the local part is taken over axes that are
/// free (all that follows moves less), debts are paid (scattered where the target has their axes next), axes move or are
/// gathered off the minor ends, the rest of the local part is taken, new debts are claimed.
pub(crate) fn path(from: &Type, to: &Type) -> Result<Vec<Collective>, String> {
    let mut path = Path { ty: from.clone(), steps: Vec::new() };
    path.unstore(to)?;
    path.shard(to)?;
    path.pay(to)?;
    path.move_axes(to)?;
    path.shard(to)?;
    path.store(to)?;
    let owed = to.debt_axes().without(&path.ty.debt_axes());
    if !owed.is_empty() {
        path.step(Collective::Owe { over: owed })?;
    }
    if path.ty != *to {
        return Err(format!("no way leads from {from:?} to {to:?}"));
    }
    Ok(path.steps)
}

struct Path {
    ty: Type,
    steps: Vec<Collective>,
}

impl Path {
    fn step(&mut self, collective: Collective) -> Result<(), String> {
        self.ty = collective.result_type(&self.ty)?;
        self.steps.push(collective);
        Ok(())
    }

    /// Stored runs are cut from the local elements, so they must be whole before these change.
    fn unstore(&mut self, to: &Type) -> Result<(), String> {
        let over = self.ty.storage.clone();
        let same = over == to.storage && self.dims_equal(to);
        if over.is_empty() || same { Ok(()) } else { self.step(Collective::AllGather { dim: None, over }) }
    }

    fn dims_equal(&self, to: &Type) -> bool {
        self.ty.dims.iter().zip(&to.dims).all(|(a, b)| a.axes == b.axes)
    }

    fn pay(&mut self, to: &Type) -> Result<(), String> {
        let mut due = self.ty.debt_axes().without(&to.debt_axes());
        if self.ty.debt.as_ref().is_some_and(|debt| to.debt.as_ref().is_some_and(|owed| owed.kind != debt.kind)) {
            due = self.ty.debt_axes();
        }
        for dim in 0..to.dims.len() {
            let over = next_axes(&self.ty.dims[dim].axes, &to.dims[dim].axes, &due);
            if !over.is_empty() {
                due = due.without(&over);
                self.step(Collective::ReduceScatter { dim: Some(dim), over })?;
            }
        }
        let stored = next_axes(&self.ty.storage, &to.storage, &due);
        if !stored.is_empty() && self.dims_equal(to) && stored == to.storage {
            due = due.without(&stored);
            self.step(Collective::ReduceScatter { dim: None, over: stored })?;
        }
        if due.is_empty() { Ok(()) } else { self.step(Collective::AllReduce { over: due }) }
    }

    /// Takes off each dim the axes that the target has not there, from the minor end: to the dim that has them next, or
    /// gathered.
    fn move_axes(&mut self, to: &Type) -> Result<(), String> {
        for from in 0..to.dims.len() {
            loop {
                let axes = &self.ty.dims[from].axes;
                let leaving = axes.without(&axes.common_prefix(&to.dims[from].axes));
                if leaving.is_empty() {
                    break;
                }
                let minor = |start: usize| leaving.iter().skip(start).collect::<Axes>();
                let moved =
                    (0..leaving.len()).find_map(|start| Some((minor(start), self.next_dim(&minor(start), to)?)));
                match moved {
                    Some((over, dim)) => self.step(Collective::AllToAll { from, to: dim, over })?,
                    None => {
                        let wanted = |axis: AxisId| self.next_dim(&Axes::one(axis), to).is_some();
                        let start = leaving.iter().rposition(wanted).map_or(0, |place| place + 1);
                        self.step(Collective::AllGather { dim: Some(from), over: minor(start) })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The dim on which the target has these axes next.
    fn next_dim(&self, axes: &Axes, to: &Type) -> Option<usize> {
        (0..to.dims.len()).find(|&dim| self.ty.dims[dim].axes.union(axes).is_prefix_of(&to.dims[dim].axes))
    }

    /// Cuts dims over the axes that come next on them, as far as these are free.
    fn shard(&mut self, to: &Type) -> Result<(), String> {
        for dim in 0..to.dims.len() {
            let (now, wanted) = (&self.ty.dims[dim].axes, &to.dims[dim].axes);
            let free = wanted.without(&self.ty.sharded_axes()).without(&self.ty.debt_axes());
            let over = next_axes(now, wanted, &free);
            if !over.is_empty() {
                self.step(Collective::Shard { dim: Some(dim), over })?;
            }
        }
        Ok(())
    }

    fn store(&mut self, to: &Type) -> Result<(), String> {
        let over = to.storage.without(&self.ty.storage);
        if over.is_empty() { Ok(()) } else { self.step(Collective::Shard { dim: None, over }) }
    }
}

/// The longest run of the `given` axes that comes next on the way from `now` to `to`.
fn next_axes(now: &Axes, to: &Axes, given: &Axes) -> Axes {
    if !now.is_prefix_of(to) {
        return Axes::none();
    }
    to.iter().skip(now.len()).take_while(|&axis| given.contains(axis)).collect()
}

/// Collectives of `U` that do the same over the same axes become buckets of at most `limit` bytes: the payments of the
/// gradients at its beginning, and the gathers of updated parameters, which nothing in `U` reads, at its end.
fn combine(block: &mut Block, mesh: &Mesh, limit: u64) {
    let moves = |stmt: &Stmt| matches!(&stmt.op, Op::Collective(c) if c.communicates());
    let mut rest = std::mem::take(&mut block[SectionKind::U].stmts);
    let mut combined = Vec::new();
    loop {
        let computed: Vec<Value> = rest.iter().flat_map(|stmt| stmt.results.clone()).collect();
        let starts = |stmt: &Stmt| moves(stmt) && stmt.operands.iter().all(|value| !computed.contains(value));
        let (ready, others): (Vec<Stmt>, Vec<Stmt>) = rest.into_iter().partition(starts);
        rest = others;
        if ready.is_empty() {
            break;
        }
        combined.extend(buckets(block, mesh, ready, limit));
    }
    let read: Vec<Value> =
        rest.iter().flat_map(|stmt| stmt.operands.clone()).chain(block[SectionKind::U].ret.clone()).collect();
    let ends =
        |stmt: &Stmt| moves(stmt) && stmt.results.iter().all(|value| !read.contains(value) || is_arg(block, *value));
    let (last, middle): (Vec<Stmt>, Vec<Stmt>) = rest.into_iter().partition(ends);
    combined.extend(middle);
    combined.extend(buckets(block, mesh, last, limit));
    block[SectionKind::U].stmts = combined;
}

fn is_arg(block: &Block, value: Value) -> bool {
    block.arg_kind(value).is_some()
}

fn buckets(block: &Block, mesh: &Mesh, stmts: Vec<Stmt>, limit: u64) -> Vec<Stmt> {
    let bytes = |stmt: &Stmt| stmt.operands.iter().map(|&v| block.ty(v).local_bytes(mesh)).sum::<u64>();
    let kind = |stmt: &Stmt| stmt.operands.first().and_then(|&v| block.ty(v).debt.clone()).map(|debt| debt.kind);
    let mut buckets: Vec<(Stmt, u64, Option<DebtKind>)> = Vec::new();
    for stmt in stmts {
        let (size, owed) = (bytes(&stmt), kind(&stmt));
        let fits = |(bucket, filled, bucket_owed): &&mut (Stmt, u64, Option<DebtKind>)| {
            bucket.op == stmt.op && *bucket_owed == owed && *filled + size <= limit
        };
        match buckets.iter_mut().find(fits) {
            Some((bucket, filled, _)) => {
                bucket.results.extend(stmt.results);
                bucket.operands.extend(stmt.operands);
                *filled += size;
            }
            None => buckets.push((stmt, size, owed)),
        }
    }
    buckets.into_iter().map(|(stmt, _, _)| stmt).collect()
}
