//! The statements of a body with what each needs, and what a group of them would be.

use crate::apart::Misfit;
use crate::unit::{Target, Unit, Uses};
use ir::fused::{Fused, ROW_BYTES, follows_product};
use ir::graph::Stmt;
use ir::ids::Value;
use ir::mesh::Axes;
use ir::ops::{Op, Rows};
use ir::types::{DType, Type};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Seconds of the start of a kernel on all threads of a rank, and of their join: 1 us for two threads of a processor.
const LAUNCH: f64 = 1e-6;

/// Statements, by their numbers in the order of the body.
pub(super) struct Graph<'a> {
    target: Target<'a>,
    stmts: &'a [Stmt],
    /// The rows that a statement treats alike; `None` if it is in no group.
    rows: Vec<Option<Rows>>,
    /// The statements that one must follow.
    needs: Vec<Vec<usize>>,
    /// Per statement, those that must follow it, directly or not.
    leads: Vec<Vec<bool>>,
    /// Values that exist before or after the statements.
    given: HashSet<Value>,
    readers: HashMap<Value, Vec<usize>>,
    /// Collectives that communicate, with their seconds.
    transfers: Vec<(usize, f64)>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(target: Target<'a>, given: HashSet<Value>, stmts: &'a [Stmt]) -> Graph<'a> {
        let (mut uses, mut needs) = (Uses::default(), Vec::new());
        let (mut readers, mut transfers): (HashMap<Value, Vec<usize>>, _) = (HashMap::new(), Vec::new());
        for (at, stmt) in stmts.iter().enumerate() {
            let unit = Unit::Stmt(stmt.clone());
            needs.push(uses.needs(at, &unit));
            stmt.operands.iter().for_each(|&value| readers.entry(value).or_default().push(at));
            if matches!(&stmt.op, Op::Collective(collective) if collective.communicates()) {
                transfers.push((at, unit.seconds(target)));
            }
        }
        let leads = leads(&needs);
        let mut graph = Graph { target, stmts, rows: Vec::new(), needs, leads, given, readers, transfers };
        graph.rows = stmts.iter().map(|stmt| graph.rows(stmt)).collect();
        graph
    }

    pub(super) fn len(&self) -> usize {
        self.stmts.len()
    }

    /// True if a statement can be in a group.
    pub(super) fn groups(&self, at: usize) -> bool {
        self.rows[at].is_some()
    }

    /// The statements that one must follow.
    pub(super) fn needs(&self, at: usize) -> &[usize] {
        &self.needs[at]
    }

    /// The rows that a statement treats alike, all tensors of which are divided in the same way.
    fn rows(&self, stmt: &Stmt) -> Option<Rows> {
        let types: Vec<&Type> = stmt.operands.iter().map(|&value| self.ty(value)).collect();
        let rows = stmt.op.def()?.rows(&types)?;
        // Sums of chunks are not rounded.
        let fits = if rows.sums { self.ty(stmt.results[0]).dtype == DType::F32 } else { !stmt.accumulate };
        let tensors: Vec<Value> = in_rows(stmt, &rows).collect();
        (fits && stmt.updates_in_place() && self.alike(&tensors, rows.dims)).then_some(rows)
    }

    /// The statements that share a tensor's rows with a group and are not in it.
    pub(super) fn neighbours(&self, group: &[usize]) -> BTreeSet<usize> {
        let tensors: HashSet<Value> = group.iter().flat_map(|&at| self.in_rows(at)).collect();
        let others = (0..self.len()).filter(|at| self.groups(*at) && !group.contains(at));
        others.filter(|&at| self.in_rows(at).any(|value| tensors.contains(&value))).collect()
    }

    fn in_rows(&self, at: usize) -> impl Iterator<Item = Value> + '_ {
        self.rows[at].iter().flat_map(move |rows| in_rows(&self.stmts[at], rows))
    }

    /// The least set with a group in it that nothing else separates, in order; `None` if it cannot be a group.
    pub(super) fn closed(&self, group: &[usize], with: usize) -> Option<Vec<usize>> {
        let closed = self.closure(|at| group.contains(&at) || at == with);
        self.misfit(&closed).is_none().then_some(closed)
    }

    /// The least set with some statements in it that nothing else separates, in order.
    pub(super) fn closure(&self, within: impl Fn(usize) -> bool) -> Vec<usize> {
        let members: Vec<usize> = (0..self.len()).filter(|&at| within(at)).collect();
        (0..self.len()).filter(|&at| within(at) || self.is_between(at, &members)).collect()
    }

    /// True if a statement must follow one of some members and precede another.
    fn is_between(&self, at: usize, members: &[usize]) -> bool {
        let after = members.iter().any(|&member| self.leads[member][at]);
        after && members.iter().any(|&member| self.leads[at][member])
    }

    /// Why statements are no group; `None` if they have the same rows, read no result of theirs but by rows, and have few bytes in a row.
    pub(super) fn misfit(&self, group: &[usize]) -> Option<Misfit> {
        let mut laws: Vec<&Rows> = Vec::new();
        for &at in group {
            match &self.rows[at] {
                Some(law) => laws.push(law),
                None => return Some(Misfit::NoRows(at)),
            }
        }
        let product = laws.iter().find_map(|rows| rows.product);
        let dims = laws.iter().filter_map(|rows| rows.dims).min().filter(|_| product.is_none());
        let tensors: Vec<Value> = group.iter().flat_map(|&at| self.in_rows(at)).collect();
        let (mut sums, mut results): (HashSet<Value>, HashSet<Value>) = (HashSet::new(), HashSet::new());
        for (&at, rows) in group.iter().zip(&laws) {
            if rows.sums { &mut sums } else { &mut results }.extend(&self.stmts[at].results);
        }
        for (&at, rows) in group.iter().zip(&laws) {
            let mut reads = self.stmts[at].operands.iter().zip(&rows.operands);
            if reads.any(|(value, has_rows)| sums.contains(value) || !has_rows && results.contains(value)) {
                return Some(Misfit::ReadsWhole(at));
            }
        }
        if let Some(misfit) = product.and_then(|dims| self.off_product(group, &laws, dims)) {
            return Some(misfit);
        }
        // Chunks of rows are those of the sum alone.
        let mut rows_of_sums = laws.iter().filter(|rows| rows.sums).map(|rows| rows.dims);
        if !rows_of_sums.all(|own| own == product.or(dims)) || !self.alike(&tensors, dims) {
            return Some(Misfit::OtherRows);
        }
        Some(self.row_bytes(&results, dims)).filter(|bytes| *bytes > ROW_BYTES).map(Misfit::RowBytes)
    }

    /// Why statements do not follow a product with a number of leading dims: there is another one, or they do not work on its elements.
    fn off_product(&self, group: &[usize], laws: &[&Rows], dims: usize) -> Option<Misfit> {
        let (products, others): (Vec<_>, Vec<_>) = group.iter().zip(laws).partition(|(_, rows)| rows.product.is_some());
        if products.len() > 1 {
            return Some(Misfit::TwoProducts);
        }
        let mut others = others.into_iter();
        let misfit =
            others.find(|(at, rows)| !follows_product(&self.stmts[**at].op) || rows.dims.is_some_and(|own| own > dims));
        misfit.map(|(at, _)| Misfit::AfterProduct(*at))
    }

    /// True if all tensors are divided into rows as the first of them is.
    fn alike(&self, tensors: &[Value], dims: Option<usize>) -> bool {
        let Some(one) = tensors.first().map(|&value| self.ty(value)) else { return false };
        tensors.iter().map(|&value| self.ty(value)).all(|other| match dims {
            None => leading_dims(one, one.rank()).eq(leading_dims(other, other.rank())) && one.storage == other.storage,
            Some(count) => {
                let are_whole = [one, other].iter().all(|ty| ty.storage.is_empty() && ty.rank() >= count);
                are_whole && leading_dims(one, count).eq(leading_dims(other, count))
            }
        })
    }

    /// Bytes of results in a row, of which interior values are some.
    fn row_bytes(&self, results: &HashSet<Value>, dims: Option<usize>) -> u64 {
        let (Some(count), Some(&one)) = (dims, results.iter().next()) else { return 0 };
        let mesh = self.target.scope.mesh;
        let rows: u64 = self.ty(one).local_bounds(mesh)[..count].iter().product();
        results.iter().map(|&value| self.ty(value).local_bytes(mesh) / rows.max(1)).sum()
    }

    /// The unit that runs the statements of a group, which are in order. A product, which needs none of them, is the first.
    pub(super) fn unit(&self, group: &[usize]) -> Unit {
        let products = group.iter().filter(|&&at| self.is_product(at));
        let others = group.iter().filter(|&&at| !self.is_product(at));
        let stmts: Vec<Stmt> = products.chain(others).map(|&at| self.stmts[at].clone()).collect();
        if let [stmt] = stmts.as_slice() {
            return Unit::Stmt(stmt.clone());
        }
        let results = stmts.iter().flat_map(|stmt| &stmt.results).copied();
        let outs = results.filter(|value| {
            let readers = self.readers.get(value).into_iter().flatten();
            self.given.contains(value) || readers.into_iter().any(|at| !group.contains(at))
        });
        let outs = outs.collect();
        Unit::Group(Fused { stmts, outs })
    }

    fn is_product(&self, at: usize) -> bool {
        self.rows[at].as_ref().is_some_and(|rows| rows.product.is_some())
    }

    /// The name of a statement's op.
    pub(super) fn op_name(&self, at: usize) -> &'static str {
        self.stmts[at].op.name()
    }

    /// Seconds of a group, and the seconds by which it may delay or uncover transfers.
    pub(super) fn seconds(&self, group: &[usize]) -> f64 {
        let own = self.own_seconds(group);
        let delays = self.transfers.iter().map(|&(transfer, seconds)| {
            let before: Vec<usize> = group.iter().copied().filter(|&at| self.leads[at][transfer]).collect();
            let others: Vec<usize> = group.iter().copied().filter(|&at| !self.leads[transfer][at]).collect();
            // The transfer starts when the whole group is over.
            let late = if before.is_empty() { 0.0 } else { own - self.own_seconds(&before) };
            // The group waits for the transfer, and no longer hides it.
            let bare = if others.len() == group.len() { 0.0 } else { self.own_seconds(&others) };
            late.max(0.0).min(seconds) + bare.min(seconds)
        });
        own + delays.sum::<f64>()
    }

    fn own_seconds(&self, group: &[usize]) -> f64 {
        if group.is_empty() { 0.0 } else { LAUNCH + self.unit(group).seconds(self.target) }
    }

    fn ty(&self, value: Value) -> &Type {
        &self.target.scope.values[value].ty
    }
}

/// Sizes and axes of the first dims of a type.
fn leading_dims(ty: &Type, count: usize) -> impl Iterator<Item = (u64, &Axes)> {
    ty.dims.iter().take(count).map(|dim| (dim.size, &dim.axes))
}

/// The operands and results that have rows.
fn in_rows<'s>(stmt: &'s Stmt, rows: &'s Rows) -> impl Iterator<Item = Value> + 's {
    let operands = stmt.operands.iter().zip(&rows.operands).filter(|(_, has_rows)| **has_rows);
    let results = stmt.results.iter().filter(|_| !rows.sums);
    operands.map(|(value, _)| value).chain(results).copied()
}

/// Per statement, those that must follow it, directly or not.
fn leads(needs: &[Vec<usize>]) -> Vec<Vec<bool>> {
    let mut leads = vec![vec![false; needs.len()]; needs.len()];
    for (at, needs) in needs.iter().enumerate() {
        for (before, leads) in leads.iter_mut().enumerate().take(at) {
            leads[at] = needs.iter().any(|&middle| before == middle || leads[middle]);
        }
    }
    leads
}
