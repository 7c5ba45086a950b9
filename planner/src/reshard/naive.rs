//! Naive reshard path: reduce, all-gather, slice. It exists wherever any path exists, and serves as a baseline.

use super::{NoPath, ReshardStep, Site};
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;

/// Gathers the full tensor on every rank and slices it. The path (1) gathers the storage, (2) reduces the axes that the
/// target is not partial over, (3) gathers each dim, (4) slices, and (5) makes the tensor partial over the target's
/// remaining axes. Dims whose axes already match are not changed.
///
/// # Errors
/// No sequence of collectives produces `to` from `from`.
pub fn naive(site: &Site<'_>, from: &Type, to: &Type) -> Result<Vec<ReshardStep>, NoPath> {
    let mut steps: Vec<ReshardStep> = Vec::new();
    for change in changes(from, to) {
        let operand = steps.last().map_or(from, |step| &step.ty);
        let step = site.step(change, operand).ok_or_else(|| site.no_path(from, to))?;
        steps.push(step);
    }
    let reached = steps.last().map_or(from, |step| &step.ty);
    if reached == to { Ok(steps) } else { Err(site.no_path(from, to)) }
}

fn changes(from: &Type, to: &Type) -> Vec<Collective> {
    let rank = from.rank().min(to.rank());
    let moves = (0..rank).any(|dim| from.dims[dim].axes != to.dims[dim].axes) || from.storage != to.storage;
    let [gathered, stored] = [from, to].map(|ty| if moves { ty.storage.clone() } else { Axes::none() });
    let kept = from.partial_axes().without(&due(from, to));
    let mut changes = vec![Collective::AllGather { dim: None, over: gathered }];
    changes.push(Collective::AllReduce { over: due(from, to) });
    changes.extend((0..rank).map(|dim| Collective::AllGather { dim: Some(dim), over: moved(from, to, dim) }));
    changes.push(Collective::slice((0..rank).map(|dim| moved(to, from, dim)).collect()));
    changes.push(Collective::all_slice(None, stored));
    changes.push(Collective::ToPartial { dim: None, over: to.partial_axes().without(&kept) });
    changes.retain(|change| !change.over().is_empty());
    changes
}

/// Axes of a dim, if the other type has other axes there.
fn moved(ty: &Type, other: &Type, dim: usize) -> Axes {
    let axes = &ty.dims[dim].axes;
    if *axes == other.dims[dim].axes { Axes::none() } else { axes.clone() }
}

/// Partial axes that every path must reduce.
fn due(from: &Type, to: &Type) -> Axes {
    let [before, after] = [from, to].map(|ty| ty.partial.as_ref().map(|partial| partial.kind));
    if before == after { from.partial_axes().without(&to.partial_axes()) } else { from.partial_axes() }
}
