//! Layout changes: what moves data between ranks, and the two that each rank does alone: `shard` drops some of the data,
//! `owe` makes a pending sum.
//!
//! A collective adds or removes axes at the minor end of a dim; only a permute puts them in another order. `over` is in the
//! order of the dim, major to minor; without `dim` it is about storage: `f32[h, f]/{dp}`. A tensor in storage keeps the
//! sharding of its dims, since its runs are cut from what the dims leave. Several operands are a bucket: one transfer, each
//! tensor on its own.

use super::{Attr, Attrs};
use crate::mesh::{Axes, Mesh};
use crate::types::{Dim, PartialKind, Type};

/// A change of layout. The tensor stays the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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
    /// Hands blocks from rank to rank: other axes, or the same in another order, cut the tensor into as many shards as
    /// before. Where each dim has as many shards as before and all are even, each rank's new block comes whole from one rank,
    /// and each rank sends one; elsewhere it comes in pieces from the few that have them.
    Permute {
        /// The axes of each dim afterwards.
        dims: Vec<Axes>,
        /// The axes along which blocks move, in mesh order: those from the first on that differs, before and afterwards.
        over: Axes,
    },
    /// Keeps the rank's own part: puts axes on the minor end of dims (or on the storage). Moves nothing.
    AllSlice {
        /// The axes that each dim gains, up to the last dim that gains some; no dim at all is the storage.
        dims: Vec<Axes>,
        /// The axes that come, dim after dim.
        over: Axes,
    },
    /// Makes a pending sum without moving anything: keeps the value on the first rank along the axes and zero on the others,
    /// or takes axes off the minor end of a dim, where each rank has its own part and zero for those of the others.
    ToPartial {
        /// The dim that loses the axes; `None` where they are not on the tensor.
        dim: Option<usize>,
        /// The axes that will be owed.
        over: Axes,
    },
}

impl Collective {
    /// The names.
    pub const NAMES: [&'static str; 7] =
        ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute", "all_slice", "to_partial"];

    /// Whether it moves shards of a tensor from one dim to another: as an all-to-all, or as a permute that changes how many
    /// shards a dim has.
    pub fn exchanges(&self, operand: &Type, mesh: &Mesh) -> bool {
        let changes = |(before, after): (&Dim, &Axes)| mesh.size(&before.axes) != mesh.size(after);
        match self {
            Collective::AllToAll { .. } => true,
            Collective::Permute { dims, .. } => operand.dims.iter().zip(dims).any(changes),
            _ => false,
        }
    }

    /// The permute that gives the dims of a tensor these axes.
    pub fn permute(operand: &Type, dims: Vec<Axes>) -> Collective {
        let over = moving_axes(operand, &dims);
        Collective::Permute { dims, over }
    }

    /// The local slice of one dim, or of the storage.
    pub fn all_slice(dim: Option<usize>, over: Axes) -> Collective {
        let mut dims = vec![Axes::none(); dim.map_or(0, |dim| dim + 1)];
        dims.iter_mut().last().into_iter().for_each(|last| *last = over.clone());
        Collective::AllSlice { dims, over }
    }

    /// The local slice of several dims at once: the axes that each gains.
    pub fn slice(mut dims: Vec<Axes>) -> Collective {
        let len = dims.iter().rposition(|axes| !axes.is_empty()).map_or(0, |last| last + 1);
        dims.truncate(len);
        Collective::AllSlice { over: all_of(&dims), dims }
    }

    /// The name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Collective::AllGather { .. } => "all_gather",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllReduce { .. } => "all_reduce",
            Collective::AllToAll { .. } => "all_to_all",
            Collective::Permute { .. } => "collective_permute",
            Collective::AllSlice { .. } => "all_slice",
            Collective::ToPartial { .. } => "to_partial",
        }
    }

    /// The axes that it works over.
    pub fn over(&self) -> &Axes {
        match self {
            Collective::AllGather { over, .. }
            | Collective::ReduceScatter { over, .. }
            | Collective::AllReduce { over }
            | Collective::AllToAll { over, .. }
            | Collective::Permute { over, .. }
            | Collective::AllSlice { over, .. }
            | Collective::ToPartial { over, .. } => over,
        }
    }

    /// Whether ranks must meet for it.
    pub fn communicates(&self) -> bool {
        !matches!(self, Collective::AllSlice { .. } | Collective::ToPartial { .. })
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
            "collective_permute" => Collective::Permute { dims: attrs.axes_list("dims")?, over },
            "all_slice" => match (dim()?, attrs.optional_axes_list("dims")?) {
                (None, Some(dims)) if all_of(&dims) == over => Collective::slice(dims),
                (None, Some(_)) => return Err("`over` must be the axes of `dims`, dim after dim".to_string()),
                (Some(_), Some(_)) => return Err("`dim` and `dims` exclude each other".to_string()),
                (dim, None) => Collective::all_slice(dim, over),
            },
            _ => Collective::ToPartial { dim: dim()?, over },
        })
    }

    /// The attributes in the text form.
    pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = Vec::new();
        let of_dim = |dim: usize| ("dim", Attr::int(dim as u64));
        match self {
            Collective::AllGather { dim, .. }
            | Collective::ReduceScatter { dim, .. }
            | Collective::ToPartial { dim, .. } => attrs.extend(dim.map(of_dim)),
            Collective::AllSlice { dims, .. } => match dims.iter().rposition(|axes| !axes.is_empty()) {
                None => {}
                Some(dim) if dims[..dim].iter().all(Axes::is_empty) => attrs.push(of_dim(dim)),
                Some(_) => attrs.push(("dims", Attr::List(dims.clone()))),
            },
            Collective::AllToAll { from, to, .. } => {
                attrs.extend([("from", Attr::int(*from as u64)), ("to", Attr::int(*to as u64))]);
            }
            Collective::Permute { dims, .. } => attrs.push(("dims", Attr::List(dims.clone()))),
            Collective::AllReduce { .. } => {}
        }
        attrs.push(("over", Attr::Axes(self.over().clone())));
        attrs
    }

    /// The type of the result of one operand.
    ///
    /// # Errors
    /// The operand has not what the change takes away (axes at the minor end, or the debt), an axis would stand twice in
    /// the result, or the tensor is in storage and its dims would change.
    pub fn result_type(&self, operand: &Type) -> Result<Type, String> {
        let mut ty = operand.clone();
        match self {
            Collective::AllGather { dim, over } => take_axes(place(&mut ty, *dim)?, over)?,
            Collective::ReduceScatter { dim, over } => {
                pay(&mut ty, over)?;
                put_axes(&mut ty, *dim, over)?;
            }
            Collective::AllReduce { over } => pay(&mut ty, over)?,
            Collective::AllToAll { from, to, over } => {
                take_axes(place(&mut ty, Some(*from))?, over)?;
                put_axes(&mut ty, Some(*to), over)?;
            }
            Collective::Permute { dims, over } => permute(&mut ty, dims, over)?,
            Collective::AllSlice { dims, over } => slice(&mut ty, dims, over)?,
            Collective::ToPartial { dim, over } => {
                dim.map_or(Ok(()), |dim| take_axes(place(&mut ty, Some(dim))?, over))?;
                owe(&mut ty, over)?;
            }
        }
        let stored = !(operand.storage.is_empty() && ty.storage.is_empty());
        if stored && ty.dims.iter().zip(&operand.dims).any(|(a, b)| a.axes != b.axes) {
            return Err("a tensor in storage cannot change the sharding of its dims".to_string());
        }
        Ok(ty)
    }

    /// Whether the sizes of the axes permit the change of an operand that [`Collective::result_type`] takes.
    ///
    /// # Errors
    /// A permute would cut the tensor into more or fewer shards.
    pub fn check_sizes(&self, mesh: &Mesh, operand: &Type) -> Result<(), String> {
        let Collective::Permute { dims, .. } = self else { return Ok(()) };
        let before: u64 = operand.dims.iter().map(|dim| mesh.size(&dim.axes)).product();
        let after: u64 = dims.iter().map(|axes| mesh.size(axes)).product();
        if before == after || dims.len() != operand.rank() {
            return Ok(());
        }
        Err(format!("the tensor is cut into {before} shards, and would be into {after}"))
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

fn put_axes(ty: &mut Type, dim: Option<usize>, over: &Axes) -> Result<(), String> {
    if !over.is_disjoint(&ty.used_axes()) {
        return Err("the tensor already has one of the axes".to_string());
    }
    let axes = place(ty, dim)?;
    *axes = axes.union(over);
    Ok(())
}

fn slice(ty: &mut Type, dims: &[Axes], over: &Axes) -> Result<(), String> {
    if dims.is_empty() {
        return put_axes(ty, None, over);
    }
    let mut gains = dims.iter().enumerate().filter(|(_, axes)| !axes.is_empty());
    gains.try_for_each(|(dim, axes)| put_axes(ty, Some(dim), axes))
}

fn all_of(dims: &[Axes]) -> Axes {
    dims.iter().fold(Axes::none(), |all, axes| all.union(axes))
}

fn pay(ty: &mut Type, over: &Axes) -> Result<(), String> {
    let Some(partial) = ty.partial.clone() else { return Err("nothing is owed".to_string()) };
    if over.iter().any(|axis| !partial.axes.contains(axis)) {
        return Err("not all of the axes are owed".to_string());
    }
    *ty = ty.partial_over(partial.kind, &partial.axes.without(over));
    Ok(())
}

fn owe(ty: &mut Type, over: &Axes) -> Result<(), String> {
    if ty.partial.as_ref().is_some_and(|partial| partial.kind == PartialKind::Max) {
        return Err("a maximum is pending; a sum cannot be owed beside it".to_string());
    }
    if !over.is_disjoint(&ty.used_axes()) {
        return Err("the tensor already has one of the axes".to_string());
    }
    *ty = ty.partial_over(PartialKind::Sum, &ty.partial_axes().union(over));
    Ok(())
}

fn permute(ty: &mut Type, dims: &[Axes], over: &Axes) -> Result<(), String> {
    if dims.len() != ty.rank() {
        return Err(format!("it states the axes of {} dims; the rank is {}", dims.len(), ty.rank()));
    }
    if moving_axes(ty, dims) != *over {
        return Err(
            "`over` must be the axes from the first that differs on, before and after, in mesh order".to_string()
        );
    }
    let mut taken = ty.storage.union(&ty.partial_axes());
    for (dim, axes) in ty.dims.iter_mut().zip(dims) {
        if !axes.is_disjoint(&taken) {
            return Err("an axis would stand twice in the type".to_string());
        }
        taken = taken.union(axes);
        dim.axes = axes.clone();
    }
    Ok(())
}

/// The axes that some dim has otherwise than the target, from the first that differs on, in mesh order. Below a major axis
/// that moves all others move too: blocks are nested.
fn moving_axes(operand: &Type, dims: &[Axes]) -> Axes {
    let ends = operand.dims.iter().zip(dims).flat_map(|(dim, axes)| {
        let kept = dim.axes.common_prefix(axes);
        [dim.axes.without(&kept), axes.without(&kept)]
    });
    ends.fold(Axes::none(), |all, end| all.union(&end)).sorted()
}
