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
    let mut step = |change: Collective| -> Option<()> {
        let operand = steps.last().map_or(from, |step| &step.ty);
        let next = site.step(change, operand)?;
        steps.push(next);
        Some(())
    };
    for change in changes(from, to) {
        step(change).ok_or_else(|| site.no_path(from, to))?;
    }
    let reached = steps.last().map_or(from, |step| &step.ty);
    if reached == to { Ok(steps) } else { Err(site.no_path(from, to)) }
}

fn changes(from: &Type, to: &Type) -> Vec<Collective> {
    let rank = from.rank().min(to.rank());
    let differs: Vec<bool> = (0..rank).map(|dim| from.dims[dim].axes != to.dims[dim].axes).collect();
    let stored = from.storage != to.storage || differs.contains(&true);
    let storage = |ty: &Type| if stored { ty.storage.clone() } else { Axes::none() };
    let moved = |ty: &Type, dim: usize| if differs[dim] { ty.dims[dim].axes.clone() } else { Axes::none() };
    let kept = from.partial_axes().without(&due(from, to));
    let mut changes = vec![Collective::AllGather { dim: None, over: storage(from) }];
    changes.push(Collective::AllReduce { over: due(from, to) });
    changes.extend((0..rank).map(|dim| Collective::AllGather { dim: Some(dim), over: moved(from, dim) }));
    changes.push(Collective::slice((0..rank).map(|dim| moved(to, dim)).collect()));
    changes.push(Collective::all_slice(None, storage(to)));
    changes.push(Collective::ToPartial { dim: None, over: to.partial_axes().without(&kept) });
    changes.retain(|change| !change.over().is_empty());
    changes
}

/// Partial axes that every path must reduce.
fn due(from: &Type, to: &Type) -> Axes {
    let kind = |ty: &Type| ty.partial.as_ref().map(|partial| partial.kind);
    if kind(from) == kind(to) { from.partial_axes().without(&to.partial_axes()) } else { from.partial_axes() }
}
