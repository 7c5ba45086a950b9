//! All that one collective can do to a tensor.

use super::{Site, Step};
use ir::ids::AxisId;
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;

/// The steps from a type over the given axes that may stand on a cheapest way to the target, in a fixed order.
///
/// Left out is what cannot: to owe what the target does not. It would have to be paid, and all that can be done in between
/// can be done without it.
pub(super) fn moves(site: &Site<'_>, axes: &Axes, ty: &Type, to: &Type) -> Vec<Step> {
    let free = axes.without(&ty.used_axes());
    let mut changes = Vec::new();
    reductions(ty, &mut changes);
    gathers(ty, &mut changes);
    exchanges(ty, &mut changes);
    if ty.storage.is_empty() {
        changes.extend(renamings(site, axes, ty).into_iter().map(|dims| Collective::permute(ty, dims)));
    }
    for over in sequences(&free) {
        changes.extend(places(ty).map(|dim| Collective::Shard { dim, over: over.clone() }));
    }
    let owed = to.debt_axes().intersection(&free);
    changes.extend(subsets(&owed).map(|over| Collective::Owe { over }));
    changes.into_iter().filter_map(|change| site.step(change, ty)).collect()
}

fn reductions(ty: &Type, changes: &mut Vec<Collective>) {
    let debt = ty.debt_axes();
    changes.extend(subsets(&debt).map(|over| Collective::AllReduce { over }));
    for over in sequences(&debt) {
        changes.extend(places(ty).map(|dim| Collective::ReduceScatter { dim, over: over.clone() }));
    }
}

fn gathers(ty: &Type, changes: &mut Vec<Collective>) {
    changes.extend(minor_ends(&ty.storage).map(|over| Collective::AllGather { dim: None, over }));
    for (dim, data) in ty.dims.iter().enumerate() {
        changes.extend(minor_ends(&data.axes).map(|over| Collective::AllGather { dim: Some(dim), over }));
    }
}

fn exchanges(ty: &Type, changes: &mut Vec<Collective>) {
    for (from, data) in ty.dims.iter().enumerate() {
        for over in minor_ends(&data.axes) {
            let others = (0..ty.rank()).filter(|&to| to != from);
            changes.extend(others.map(|to| Collective::AllToAll { from, to, over: over.clone() }));
        }
    }
}

/// The dims and the storage.
fn places(ty: &Type) -> impl Iterator<Item = Option<usize>> + use<> {
    (0..ty.rank()).map(Some).chain([None])
}

/// The runs of axes that end at the minor end.
fn minor_ends(axes: &Axes) -> impl Iterator<Item = Axes> {
    (0..axes.len()).map(|start| axes.iter().skip(start).collect())
}

/// The choices of some of the axes, in their order.
fn subsets(axes: &Axes) -> impl Iterator<Item = Axes> {
    (1..1usize << axes.len()).map(|bits| {
        let chosen = axes.iter().enumerate().filter(move |(place, _)| bits >> place & 1 == 1);
        chosen.map(|(_, axis)| axis).collect()
    })
}

/// The choices of some of the axes in all orders, shorter ones first.
fn sequences(axes: &Axes) -> Vec<Axes> {
    let mut all = vec![Axes::none()];
    let mut next = 0;
    while let Some(sequence) = all.get(next).cloned() {
        all.extend(axes.without(&sequence).iter().map(|axis| longer(&sequence, axis)));
        next += 1;
    }
    all.split_off(1)
}

fn longer(axes: &Axes, axis: AxisId) -> Axes {
    let mut axes = axes.clone();
    axes.push(axis);
    axes
}

/// The other ways to cut each dim into as many shards as it has.
fn renamings(site: &Site<'_>, axes: &Axes, ty: &Type) -> Vec<Vec<Axes>> {
    let usable = axes.without(&ty.debt_axes());
    let mut all = vec![Vec::new()];
    for dim in &ty.dims {
        let shards = site.mesh.size(&dim.axes);
        let mut longer = Vec::new();
        for dims in &all {
            let free = dims.iter().fold(usable.clone(), |free, taken| free.without(taken));
            let cuts = std::iter::once(Axes::none()).chain(sequences(&free));
            let equal = cuts.filter(|axes| site.mesh.size(axes) == shards);
            longer.extend(equal.map(|axes| [dims.as_slice(), &[axes]].concat()));
        }
        all = longer;
    }
    all.retain(|dims| dims.iter().zip(&ty.dims).any(|(axes, dim)| *axes != dim.axes));
    all
}
