//! Lower bound on the cost of any choice, for meshes with too many axes to decide at once.
//!
//! The axes are partitioned into groups, and each group has its own relaxed problem. In that problem the other axes
//! shard every tensor and all compute evenly, at no cost. Each group is charged an equal part of the compute, and the
//! communication of its own axes. A collective over axes of several groups moves at least the sum of its parts, each on
//! tensors that all other axes shard. For all-to-alls this holds up to a factor ([`exchange`]). The minimum costs of the groups therefore sum to at most the cost of any choice.

use super::Task;
use super::prices::{Prices, Shares};
use super::turns::Turn;
use crate::fault::Fault;
use crate::reshard::Site;
use crate::reshard::hops::Least;
use ir::graph::Model;
use ir::mesh::{Axes, Mesh};
use ir::types::{Partial, Type};
use solver::assign::Budget;

/// Lower bound in seconds; `None` if time ran out. Each group is solved within a budget.
///
/// # Errors
/// An op's rule does not fit its tensors, which is an internal error.
pub(super) fn bound(task: &Task<'_>, site: Site<'_>, at_once: usize, budget: &Budget) -> Result<Option<f64>, Fault> {
    let (mesh, all) = (site.mesh, site.mesh.tensor_axes());
    let groups: Vec<Axes> = all.as_slice().chunks(at_once).map(|group| group.iter().copied().collect()).collect();
    let (exchange, message) = (exchange(mesh, &all, &groups), 1.0 / all.len() as f64);
    let mut sum = 0.0;
    for group in &groups {
        let others = mesh.size(&all) as f64 / mesh.size(group) as f64;
        let least = Least { others, exchange, message };
        let mut prices = Prices::relaxed(site, Shares { least, compute: 1.0 / groups.len() as f64 });
        let model = on_group(task.model, group);
        let turn = Turn { units: group.iter().map(Axes::one).collect(), fixed: Axes::none() };
        let relaxed = Task { model: &model, ..*task };
        let Some(found) = relaxed.solve(&mut prices, &turn, None, u64::MAX, budget)? else { return Ok(None) };
        sum += found.solution.bound.max(0.0);
    }
    Ok(Some(sum))
}

/// Fraction of an all-to-all that its parts over groups of axes have at least. Over n ranks an all-to-all moves 1 - 1/n
/// of a rank's bytes.
fn exchange(mesh: &Mesh, all: &Axes, groups: &[Axes]) -> f64 {
    let parts: f64 = groups.iter().map(|group| moved(mesh, group)).sum();
    (moved(mesh, all) / parts.max(f64::MIN_POSITIVE)).min(1.0)
}

/// Fraction of a rank's bytes that an all-to-all over some axes moves.
fn moved(mesh: &Mesh, axes: &Axes) -> f64 {
    1.0 - 1.0 / mesh.size(axes) as f64
}

/// Model in which only the axes of a group shard any tensor.
fn on_group(model: &Model, group: &Axes) -> Model {
    let mut model = model.clone();
    let params = model.params.values_mut().map(|param| &mut param.ty);
    let inputs = model.inputs.iter_mut().map(|input| &mut input.ty);
    let values = model.blocks.values_mut().flat_map(|block| block.values.values_mut()).map(|data| &mut data.ty);
    for ty in params.chain(inputs).chain(values) {
        keep(ty, group);
    }
    model
}

fn keep(ty: &mut Type, group: &Axes) {
    ty.storage = ty.storage.intersection(group);
    ty.dims.iter_mut().for_each(|dim| dim.axes = dim.axes.intersection(group));
    let left = ty.partial.as_ref().map(|partial| Partial { axes: partial.axes.intersection(group), ..partial.clone() });
    ty.partial = left.filter(|partial| !partial.axes.is_empty());
}
