//! Layout changes: what moves data between ranks, and the two that only drop some of it (`shard`) or claim a debt (`owe`).
//!
//! A collective adds or removes axes at the minor end of a dim. `over` is in the order of the dim, major to minor; without
//! `dim` it is about storage: `f32[h, f]/{dp}`. Several operands are a bucket: one transfer, each tensor on its own.

use super::{Attr, Attrs};
use crate::mesh::Axes;
use crate::types::{DebtKind, Type};

/// A change of layout. The tensor stays the same.
#[derive(Clone, PartialEq, Debug)]
pub enum Collective {
    /// Takes axes off the minor end of a dim (or off the storage).
    AllGather {
        /// The dim; `None` is the storage.
        dim: Option<usize>,
        /// The axes that go.
        over: Axes,
    },
    /// Pays a debt and puts its axes on the minor end of a dim (or on the storage).
    ReduceScatter {
        /// The dim; `None` is the storage.
        dim: Option<usize>,
        /// The axes that are paid.
        over: Axes,
    },
    /// Pays a debt.
    AllReduce {
        /// The axes that are paid.
        over: Axes,
    },
    /// Takes axes off the minor end of one dim and puts them on that of another.
    AllToAll {
        /// The dim that loses the axes.
        from: usize,
        /// The dim that gains them.
        to: usize,
        /// The axes that move.
        over: Axes,
    },
    /// Keeps the rank's own part: puts axes on the minor end of a dim (or on the storage). Moves nothing.
    Shard {
        /// The dim; `None` is the storage.
        dim: Option<usize>,
        /// The axes that come.
        over: Axes,
    },
    /// Keeps the value on the first rank along the axes and zero on the others, so that a sum over them is owed.
    Owe {
        /// The axes that will be owed.
        over: Axes,
    },
}

impl Collective {
    /// The names.
    pub const NAMES: [&'static str; 6] = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "shard", "owe"];

    /// The name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Collective::AllGather { .. } => "all_gather",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllReduce { .. } => "all_reduce",
            Collective::AllToAll { .. } => "all_to_all",
            Collective::Shard { .. } => "shard",
            Collective::Owe { .. } => "owe",
        }
    }

    /// The axes that it works over.
    pub fn over(&self) -> &Axes {
        match self {
            Collective::AllGather { over, .. }
            | Collective::ReduceScatter { over, .. }
            | Collective::AllReduce { over }
            | Collective::AllToAll { over, .. }
            | Collective::Shard { over, .. }
            | Collective::Owe { over } => over,
        }
    }

    /// Whether ranks must meet for it.
    pub fn communicates(&self) -> bool {
        !matches!(self, Collective::Shard { .. } | Collective::Owe { .. })
    }

    pub(super) fn parse(name: &str, attrs: &mut Attrs) -> Option<Result<Collective, String>> {
        Collective::NAMES.contains(&name).then(|| Collective::parse_named(name, attrs))
    }

    fn parse_named(name: &str, attrs: &mut Attrs) -> Result<Collective, String> {
        let over = attrs.axes("over")?;
        let mut dim = || attrs.optional_int("dim").map(|dim| dim.map(|dim| dim as usize));
        Ok(match name {
            "all_gather" => Collective::AllGather { dim: dim()?, over },
            "reduce_scatter" => Collective::ReduceScatter { dim: dim()?, over },
            "all_reduce" => Collective::AllReduce { over },
            "all_to_all" => {
                let (from, to) = (attrs.int("from")? as usize, attrs.int("to")? as usize);
                Collective::AllToAll { from, to, over }
            }
            "shard" => Collective::Shard { dim: dim()?, over },
            _ => Collective::Owe { over },
        })
    }

    /// The attributes in the text form.
    pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = Vec::new();
        match self {
            Collective::AllGather { dim, .. }
            | Collective::ReduceScatter { dim, .. }
            | Collective::Shard { dim, .. } => {
                attrs.extend(dim.map(|dim| ("dim", Attr::int(dim as u64))));
            }
            Collective::AllToAll { from, to, .. } => {
                attrs.extend([("from", Attr::int(*from as u64)), ("to", Attr::int(*to as u64))]);
            }
            Collective::AllReduce { .. } | Collective::Owe { .. } => {}
        }
        attrs.push(("over", Attr::Axes(self.over().clone())));
        attrs
    }

    /// The type of the result of one operand.
    ///
    /// # Errors
    /// The operand has not what the change takes away: axes at the minor end, or the debt.
    pub fn result_type(&self, operand: &Type) -> Result<Type, String> {
        let mut ty = operand.clone();
        match self {
            Collective::AllGather { dim, over } => take_axes(place(&mut ty, *dim)?, over)?,
            Collective::ReduceScatter { dim, over } => {
                pay(&mut ty, over)?;
                put_axes(place(&mut ty, *dim)?, over)?;
            }
            Collective::AllReduce { over } => pay(&mut ty, over)?,
            Collective::AllToAll { from, to, over } => {
                take_axes(place(&mut ty, Some(*from))?, over)?;
                put_axes(place(&mut ty, Some(*to))?, over)?;
            }
            Collective::Shard { dim, over } => put_axes(place(&mut ty, *dim)?, over)?,
            Collective::Owe { over } => {
                if ty.debt.as_ref().is_some_and(|debt| debt.kind == DebtKind::Max) {
                    return Err("a maximum is pending; a sum cannot be owed beside it".to_string());
                }
                ty = ty.owing(DebtKind::Sum, &ty.debt_axes().union(over));
            }
        }
        Ok(ty)
    }
}

fn place(ty: &mut Type, dim: Option<usize>) -> Result<&mut Axes, String> {
    let rank = ty.rank();
    match dim {
        None => Ok(&mut ty.storage),
        Some(dim) => ty
            .dims
            .get_mut(dim)
            .map(|dim| &mut dim.axes)
            .ok_or_else(|| format!("there is no dim {dim}; the rank is {rank}")),
    }
}

fn take_axes(axes: &mut Axes, over: &Axes) -> Result<(), String> {
    let kept = axes.len().saturating_sub(over.len());
    if axes.as_slice()[kept..] != *over.as_slice() {
        return Err("the axes are not at the minor end of the dim".to_string());
    }
    *axes = axes.iter().take(kept).collect();
    Ok(())
}

fn put_axes(axes: &mut Axes, over: &Axes) -> Result<(), String> {
    if !axes.is_disjoint(over) {
        return Err("the dim already has one of the axes".to_string());
    }
    *axes = axes.union(over);
    Ok(())
}

fn pay(ty: &mut Type, over: &Axes) -> Result<(), String> {
    let Some(debt) = ty.debt.clone() else { return Err("nothing is owed".to_string()) };
    if over.iter().any(|axis| !debt.axes.contains(axis)) {
        return Err("not all of the axes are owed".to_string());
    }
    *ty = ty.owing(debt.kind, &debt.axes.without(over));
    Ok(())
}
