//! Resharding ops: the collectives, and two local ops. `all_slice` takes the local part of a tensor; `to_partial` turns a
//! replicated or sharded tensor into a partial sum. A `collective_shift` alone changes the tensor and not its sharding.
//!
//! A collective adds or removes axes at the minor end of a dim; only a permute reorders them. `over` is in the
//! order of the dim, major to minor; without `dim` it lists flat-shard axes: `f32[h, f]/{dp}`. The dims of a flat shard keep
//! their sharding, since its ranges split the local tensor. Several operands form a bucket: one transfer, in which each
//! tensor stays separate.

use super::experts::ragged::Ragged;
use super::{Attr, Attrs};
use crate::mesh::{Axes, Mesh};
use crate::types::{Dim, PartialKind, Type};

/// A reshard: it changes the sharding of a tensor, not its logical value. A shift changes the value, and not the sharding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Collective {
    /// Removes axes from the minor end of a dim (or flat-shard axes).
    AllGather {
        /// The dim; `None` is the storage.
        dim: Option<usize>,
        /// The removed axes.
        over: Axes,
    },
    /// Reduces a partial tensor and adds the reduced axes at the minor end of a dim (or as flat-shard axes).
    ReduceScatter {
        /// The dim; `None` is the storage.
        dim: Option<usize>,
        /// The axes to reduce over.
        over: Axes,
    },
    /// Reduces a partial tensor.
    AllReduce {
        /// The axes to reduce over.
        over: Axes,
    },
    /// Moves axes from the minor end of one dim to the minor end of another.
    AllToAll {
        /// The dim that loses the axes.
        from: usize,
        /// The dim that gains them.
        to: usize,
        /// The axes that move.
        over: Axes,
        /// Only the filled rows of chunks move: see [`Ragged`].
        ragged: Option<Ragged>,
    },
    /// Moves shards between ranks: other axes, or the same in another order, split the tensor into the same number of shards.
    /// If every dim keeps its number of shards and all shards are even, each rank sends one shard to one rank. Otherwise a
    /// rank receives pieces of its shard from the ranks that hold them.
    Permute {
        /// The axes of each dim afterwards.
        dims: Vec<Axes>,
        /// The axes along which shards move, in mesh order: those after the common prefix of a dim, before and afterwards.
        over: Axes,
    },
    /// Rotates a dim by whole shards, as between the rounds of a ring: element `i` moves to `i + by`, and from the end to the front.
    /// The rank at place `p` of the axes gets the shard of the rank at place `p - by / shard`.
    Shift {
        /// The dim, which these axes alone shard, evenly.
        dim: usize,
        /// The elements by which it turns, a multiple of a shard's.
        by: u64,
        /// The axes of the dim.
        over: Axes,
    },
    /// Takes the rank's own part: adds axes at the minor end of dims (or as flat-shard axes). It communicates nothing.
    AllSlice {
        /// The axes that each dim gains, up to the last dim that gains some; empty for a flat shard.
        dims: Vec<Axes>,
        /// The added axes, dim after dim.
        over: Axes,
    },
    /// Makes a tensor a partial sum without communication. The first rank along the axes has the value, the others zero. With
    /// `dim` the axes are removed from the minor end of the dim: each rank has its own part, and zero elsewhere.
    ToPartial {
        /// The dim that loses the axes; `None` if they do not shard the tensor.
        dim: Option<usize>,
        /// The axes that the result is partial over.
        over: Axes,
    },
}

impl Collective {
    /// The names.
    pub const NAMES: [&'static str; 8] = [
        "all_gather",
        "reduce_scatter",
        "all_reduce",
        "all_to_all",
        "collective_permute",
        "collective_shift",
        "all_slice",
        "to_partial",
    ];

    /// True if it moves shards from one dim to another: an all-to-all, or a permute that changes the number of shards of a
    /// dim.
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

    /// An `all_slice` of one dim, or of the flat tensor.
    pub fn all_slice(dim: Option<usize>, over: Axes) -> Collective {
        let mut dims = vec![Axes::none(); dim.map_or(0, |dim| dim + 1)];
        dims.iter_mut().last().into_iter().for_each(|last| *last = over.clone());
        Collective::AllSlice { dims, over }
    }

    /// An `all_slice` of several dims at once, given the axes that each gains.
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
            Collective::Shift { .. } => "collective_shift",
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
            | Collective::Shift { over, .. }
            | Collective::AllSlice { over, .. }
            | Collective::ToPartial { over, .. } => over,
        }
    }

    /// True if it communicates between ranks.
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
                Collective::AllToAll { from, to, over, ragged: Ragged::parse(attrs)? }
            }
            "collective_permute" => Collective::Permute { dims: attrs.axes_list("dims")?, over },
            "collective_shift" => Collective::Shift { dim: attrs.int("dim")? as usize, by: attrs.int("by")?, over },
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
            Collective::AllToAll { from, to, ragged, .. } => {
                attrs.extend([("from", Attr::int(*from as u64)), ("to", Attr::int(*to as u64))]);
                attrs.extend(ragged.iter().flat_map(Ragged::attrs));
            }
            Collective::Permute { dims, .. } => attrs.push(("dims", Attr::List(dims.clone()))),
            Collective::Shift { dim, by, .. } => attrs.extend([of_dim(*dim), ("by", Attr::int(*by))]),
            Collective::AllReduce { .. } => {}
        }
        attrs.push(("over", Attr::Axes(self.over().clone())));
        attrs
    }

    /// The type of the result of one operand.
    ///
    /// # Errors
    /// The operand lacks the axes that are removed or reduced, an axis would appear twice in the result, or the dims of a
    /// flat shard would change.
    pub fn result_type(&self, operand: &Type) -> Result<Type, String> {
        let mut ty = operand.clone();
        match self {
            Collective::AllGather { dim, over } => take_axes(place(&mut ty, *dim)?, over)?,
            Collective::ReduceScatter { dim, over } => {
                pay(&mut ty, over)?;
                put_axes(&mut ty, *dim, over)?;
            }
            Collective::AllReduce { over } => pay(&mut ty, over)?,
            Collective::AllToAll { from, to, over, .. } => {
                take_axes(place(&mut ty, Some(*from))?, over)?;
                put_axes(&mut ty, Some(*to), over)?;
            }
            Collective::Permute { dims, over } => permute(&mut ty, dims, over)?,
            Collective::Shift { dim, over, .. } => {
                if *place(&mut ty, Some(*dim))? != *over || !ty.storage.is_empty() {
                    return Err("the axes do not shard the dim alone".to_string());
                }
            }
            Collective::AllSlice { dims, over } => slice(&mut ty, dims, over)?,
            Collective::ToPartial { dim, over } => {
                dim.map_or(Ok(()), |dim| take_axes(place(&mut ty, Some(dim))?, over))?;
                owe(&mut ty, over)?;
            }
        }
        let stored = !(operand.storage.is_empty() && ty.storage.is_empty());
        if stored && ty.dims.iter().zip(&operand.dims).any(|(a, b)| a.axes != b.axes) {
            return Err("the sharding of the dims of a flat shard cannot change".to_string());
        }
        Ok(ty)
    }

    /// Checks the sizes of the axes for an operand that [`Collective::result_type`] accepts.
    ///
    /// # Errors
    /// A permute would change the number of shards of the tensor, or a shift would split a shard.
    pub fn check_sizes(&self, mesh: &Mesh, operand: &Type) -> Result<(), String> {
        let dims = match self {
            Collective::Permute { dims, .. } => dims,
            Collective::Shift { dim, by, over } => return check_shift(mesh, operand, (*dim, *by), over),
            _ => return Ok(()),
        };
        let before: u64 = operand.dims.iter().map(|dim| mesh.size(&dim.axes)).product();
        let after: u64 = dims.iter().map(|axes| mesh.size(axes)).product();
        if before == after || dims.len() != operand.rank() {
            return Ok(());
        }
        Err(format!("the tensor has {before} shards, and would have {after}"))
    }
}

/// Checks that a dim is sharded evenly, and that it turns by whole shards, but not all the way round.
fn check_shift(mesh: &Mesh, operand: &Type, (dim, by): (usize, u64), over: &Axes) -> Result<(), String> {
    let size = operand.dims.get(dim).map_or(0, |dim| dim.size);
    let (ranks, shard) = (mesh.size(over), size / mesh.size(over));
    if !mesh.is_even(size, over) {
        return Err(format!("{ranks} ranks do not share {size} elements evenly"));
    }
    match shard > 0 && by.is_multiple_of(shard) && (1..size).contains(&by) {
        true => Ok(()),
        false => Err(format!("`by` is {by}, where shards have {shard} of {size} elements")),
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
        return Err("the tensor already uses one of the axes".to_string());
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
    let Some(partial) = ty.partial.clone() else { return Err("the operand is not partial".to_string()) };
    if over.iter().any(|axis| !partial.axes.contains(axis)) {
        return Err("the operand is not partial over all of the axes".to_string());
    }
    *ty = ty.partial_over(partial.kind, &partial.axes.without(over));
    Ok(())
}

fn owe(ty: &mut Type, over: &Axes) -> Result<(), String> {
    if ty.partial.as_ref().is_some_and(|partial| partial.kind == PartialKind::Max) {
        return Err("the operand is a partial maximum; it cannot become a partial sum too".to_string());
    }
    if !over.is_disjoint(&ty.used_axes()) {
        return Err("the tensor already uses one of the axes".to_string());
    }
    *ty = ty.partial_over(PartialKind::Sum, &ty.partial_axes().union(over));
    Ok(())
}

fn permute(ty: &mut Type, dims: &[Axes], over: &Axes) -> Result<(), String> {
    if dims.len() != ty.rank() {
        return Err(format!("`dims` lists axes for {} dims; the rank is {}", dims.len(), ty.rank()));
    }
    if moving_axes(ty, dims) != *over {
        return Err("`over` must list the axes after the common prefix of each dim, before and after, in mesh order"
            .to_string());
    }
    let mut taken = ty.storage.union(&ty.partial_axes());
    for (dim, axes) in ty.dims.iter_mut().zip(dims) {
        if !axes.is_disjoint(&taken) {
            return Err("an axis would appear twice in the type".to_string());
        }
        taken = taken.union(axes);
        dim.axes = axes.clone();
    }
    Ok(())
}

/// The axes after the common prefix of each dim and its target, in mesh order. If a major axis moves, all axes below it move
/// too, because shards are nested.
fn moving_axes(operand: &Type, dims: &[Axes]) -> Axes {
    let ends = operand.dims.iter().zip(dims).flat_map(|(dim, axes)| {
        let kept = dim.axes.common_prefix(axes);
        [dim.axes.without(&kept), axes.without(&kept)]
    });
    ends.fold(Axes::none(), |all, end| all.union(&end)).sorted()
}
