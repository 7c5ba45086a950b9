//! The plain way: pay, gather all, cut. It exists wherever a way exists, and nobody would take it.

use super::{NoWay, Site, Step};
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;

/// Makes the tensor whole on every rank and takes the wanted part of it: storage is gathered, what the target does not owe
/// is paid, each dim is gathered, then all is cut, and what the target owes beyond is claimed. What is right already stays.
///
/// # Errors
/// There is no way.
pub fn plain(site: &Site<'_>, from: &Type, to: &Type) -> Result<Vec<Step>, NoWay> {
    let mut steps: Vec<Step> = Vec::new();
    let mut step = |change: Collective| -> Option<()> {
        let operand = steps.last().map_or(from, |step| &step.ty);
        let next = site.step(change, operand)?;
        steps.push(next);
        Some(())
    };
    for change in changes(from, to) {
        step(change).ok_or_else(|| site.no_way(from, to))?;
    }
    let reached = steps.last().map_or(from, |step| &step.ty);
    if reached == to { Ok(steps) } else { Err(site.no_way(from, to)) }
}

fn changes(from: &Type, to: &Type) -> Vec<Collective> {
    let mut changes = Vec::new();
    let mut add = |axes: &Axes, change: fn(Option<usize>, Axes) -> Collective, dim: Option<usize>| {
        if !axes.is_empty() {
            changes.push(change(dim, axes.clone()));
        }
    };
    let gather = |dim, over| Collective::AllGather { dim, over };
    let shard = |dim, over| Collective::Shard { dim, over };
    let differs = |dim: usize| from.dims[dim].axes != to.dims[dim].axes;
    let dims: Vec<usize> = (0..from.rank().min(to.rank())).filter(|&dim| differs(dim)).collect();
    let stored = from.storage != to.storage || !dims.is_empty();
    if stored {
        add(&from.storage, gather, None);
    }
    add(&due(from, to), |_, over| Collective::AllReduce { over }, None);
    dims.iter().for_each(|&dim| add(&from.dims[dim].axes, gather, Some(dim)));
    dims.iter().for_each(|&dim| add(&to.dims[dim].axes, shard, Some(dim)));
    if stored {
        add(&to.storage, shard, None);
    }
    let kept = from.debt_axes().without(&due(from, to));
    add(&to.debt_axes().without(&kept), |_, over| Collective::Owe { over }, None);
    changes
}

/// The axes whose debt must be paid on any way.
fn due(from: &Type, to: &Type) -> Axes {
    let kind = |ty: &Type| ty.debt.as_ref().map(|debt| debt.kind);
    if kind(from) == kind(to) { from.debt_axes().without(&to.debt_axes()) } else { from.debt_axes() }
}
