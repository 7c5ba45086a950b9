//! Groups of statements as the pass `fuse` makes them: they treat the same rows alike, and one kernel runs them.
//!
//! Each statement in turn joins the group with which it has most bytes in common, if both fit, and then further ones. The pass takes the
//! best of all groups by an integer program, which takes milliseconds for a body.

use super::site::Site;
use ir::fused::{ROW_BYTES, follows_product};
use ir::graph::Stmt;
use ir::ids::Value;
use ir::ops::Rows;
use ir::types::{DType, Type};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// Indices of the statements of a kernel, in order.
pub(super) type Members = SmallVec<[usize; 8]>;

/// Indices of statements, as bits.
type Bits = SmallVec<[u64; 4]>;

/// A group so far, or a statement that is in none.
struct RowGroup {
    members: Members,
    bits: Bits,
    /// Statements that its members need, directly or not.
    needs: Bits,
    /// Leading dims of a row; `None`: any division of the elements.
    dims: Option<usize>,
    /// Leading dims of the product that it begins with.
    product: Option<usize>,
    /// A tensor that has its rows.
    tensor: Value,
}

/// Statements of each group with more than one.
pub(super) fn row_groups(site: &Site<'_>, stmts: &[&Stmt]) -> Vec<Members> {
    let laws = stmts.iter().map(|stmt| law(site, stmt)).collect();
    let mut builder =
        Builder { site, stmts, laws, groups: Vec::new(), group_of: Vec::new(), touches: FxHashMap::default() };
    let words = stmts.len().div_ceil(64);
    let mut makers: FxHashMap<Value, usize> = FxHashMap::default();
    let mut needs: Vec<Bits> = Vec::new();
    for (at, stmt) in stmts.iter().enumerate() {
        let mut own: Bits = smallvec![0; words];
        for &maker in stmt.operands.iter().filter_map(|value| makers.get(value)) {
            own[maker / 64] |= 1 << (maker % 64);
            own.iter_mut().zip(&needs[maker]).for_each(|(own, before)| *own |= before);
        }
        makers.extend(stmt.results.iter().map(|&value| (value, at)));
        builder.add(at, own.clone());
        needs.push(own);
    }
    builder.groups.into_iter().flatten().map(|group| group.members).filter(|members| members.len() > 1).collect()
}

/// The rows that a statement treats alike, all tensors of which are divided in the same way.
fn law(site: &Site<'_>, stmt: &Stmt) -> Option<Rows> {
    let types: SmallVec<[&Type; 8]> = stmt.operands.iter().map(|&value| site.block().ty(value)).collect();
    let law = stmt.op.def()?.rows(&types)?;
    let fits = if law.sums { site.block().ty(stmt.results[0]).dtype == DType::F32 } else { !stmt.accumulate };
    let first = in_rows(stmt, &law).next()?;
    (fits && in_rows(stmt, &law).all(|other| alike(site, first, other, law.dims))).then_some(law)
}

/// The groups so far.
struct Builder<'a> {
    site: &'a Site<'a>,
    stmts: &'a [&'a Stmt],
    laws: Vec<Option<Rows>>,
    /// One that has joined another is gone.
    groups: Vec<Option<RowGroup>>,
    group_of: Vec<usize>,
    /// The statements that read or write a tensor by rows.
    touches: FxHashMap<Value, SmallVec<[usize; 4]>>,
}

impl Builder<'_> {
    /// Adds a statement, in a group with those that share tensors with it and fit.
    fn add(&mut self, at: usize, needs: Bits) {
        let stmt = self.stmts[at];
        let mut bits: Bits = smallvec![0; needs.len()];
        bits[at / 64] |= 1 << (at % 64);
        let mut group =
            RowGroup { members: smallvec![at], bits, needs, dims: None, product: None, tensor: stmt.results[0] };
        if let Some(law) = &self.laws[at] {
            let tensors: SmallVec<[Value; 8]> = in_rows(stmt, law).collect();
            group = RowGroup { dims: law.dims, product: law.product, tensor: tensors[0], ..group };
            for other in self.near(&tensors) {
                if let Some(both) = self.groups[other].as_ref().map(|before| joined(&group, before))
                    && self.fits(&both)
                    && self.is_apart(&both, other)
                {
                    group = both;
                    self.groups[other] = None;
                }
            }
            tensors.into_iter().for_each(|value| self.touches.entry(value).or_default().push(at));
        }
        self.group_of.push(0);
        group.members.iter().for_each(|&member| self.group_of[member] = self.groups.len());
        self.groups.push(Some(group));
    }

    /// Groups that touch some of these tensors, the one with most bytes of them first.
    fn near(&self, tensors: &[Value]) -> SmallVec<[usize; 4]> {
        let mut near: SmallVec<[(f64, usize); 8]> = SmallVec::new();
        for value in tensors {
            let mut counted: SmallVec<[usize; 4]> = SmallVec::new();
            for &group in self.touches.get(value).into_iter().flatten().map(|&other| &self.group_of[other]) {
                if counted.contains(&group) {
                    continue;
                }
                counted.push(group);
                match near.iter_mut().find(|(_, known)| *known == group) {
                    Some((bytes, _)) => *bytes += self.site.bytes(*value),
                    None => near.push((self.site.bytes(*value), group)),
                }
            }
        }
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        near.into_iter().map(|(_, group)| group).collect()
    }

    /// True if nothing else needs one statement of a group and is needed by another. It is made of the last statement and group `of`.
    fn is_apart(&self, group: &RowGroup, of: usize) -> bool {
        let others = self.groups.iter().enumerate().filter(|(at, _)| *at != of).filter_map(|(_, other)| other.as_ref());
        !others.into_iter().any(|other| meets(&group.needs, &other.bits) && meets(&other.needs, &group.bits))
    }

    /// True if statements have the same rows, read no result of theirs but by rows, and have few bytes in a row.
    fn fits(&self, group: &RowGroup) -> bool {
        let RowGroup { tensor, product, .. } = *group;
        let dims = group.dims.filter(|_| product.is_none());
        let mut results: SmallVec<[Value; 16]> = SmallVec::new();
        let mut products = 0;
        for &at in &group.members {
            let (stmt, Some(law)) = (self.stmts[at], &self.laws[at]) else { return false };
            products += usize::from(law.product.is_some());
            let mut whole = stmt.operands.iter().zip(&law.operands).filter(|(_, has_rows)| !**has_rows);
            let follows = law.product.is_some()
                || follows_product(&stmt.op) && law.dims.is_none_or(|own| product.is_some_and(|dims| own <= dims));
            let is_off = products > 1 || product.is_some() && !follows || law.sums && law.dims != product.or(dims);
            if is_off
                || whole.any(|(value, _)| results.contains(value))
                || in_rows(stmt, law).any(|value| !alike(self.site, tensor, value, dims))
            {
                return false;
            }
            results.extend(stmt.results.iter().copied().filter(|_| !law.sums));
        }
        dims.is_none_or(|dims| {
            let local = &self.site.local;
            let rows: f64 = local.dims(tensor)[..dims].iter().map(|dim| local.size(dim)).product();
            results.iter().map(|&value| self.site.bytes(value)).sum::<f64>() / rows <= ROW_BYTES as f64
        })
    }
}

/// Returns whether two sets have an element in common.
fn meets(a: &Bits, b: &Bits) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

fn union(a: &Bits, b: &Bits) -> Bits {
    a.iter().zip(b).map(|(a, b)| a | b).collect()
}

fn joined(a: &RowGroup, b: &RowGroup) -> RowGroup {
    let mut members: Members = a.members.iter().chain(&b.members).copied().collect();
    members.sort_unstable();
    RowGroup {
        members,
        bits: union(&a.bits, &b.bits),
        needs: union(&a.needs, &b.needs),
        dims: a.dims.into_iter().chain(b.dims).min(),
        product: a.product.or(b.product),
        tensor: if a.product.is_some() { a.tensor } else { b.tensor },
    }
}

/// The operands and results that have rows.
fn in_rows<'s>(stmt: &'s Stmt, law: &'s Rows) -> impl Iterator<Item = Value> + 's {
    let operands = stmt.operands.iter().zip(&law.operands).filter(|(_, has_rows)| **has_rows);
    operands.map(|(value, _)| value).chain(stmt.results.iter().filter(|_| !law.sums)).copied()
}

/// True if two tensors are divided into rows alike.
fn alike(site: &Site<'_>, one: Value, other: Value, dims: Option<usize>) -> bool {
    let (one, other) = (&site.block().ty(one).dims, &site.block().ty(other).dims);
    let count = dims.unwrap_or(one.len().max(other.len()));
    let mut rows = one.iter().zip(other).take(count);
    one.len() >= count && other.len() >= count && rows.all(|(a, b)| a.size == b.size && a.axes == b.axes)
}
