//! `refine`: makes the mesh that the layout asks for, each atomic axis within one link level.
//!
//! An axis that spans levels is split, and its name becomes a group: tp = 16 on nodes of 8 devices is
//! `tp=[tp1, tp0]` with tp1 = 2 between nodes and tp0 = 8 within one. Axes of size 1 are left out. A file that brings its
//! own mesh takes no other.

use crate::PlanError;
use cost::Cluster;
use ir::goal::{Goal, Layout};
use ir::graph::Model;
use ir::mesh::{Axes, Axis, Group, Mesh, PIPELINE};

pub(crate) fn run(model: &mut Model, goal: &Goal, _: &Cluster) -> Result<(), PlanError> {
    let mut degrees = Vec::new();
    for name in &goal.layout.order {
        let degree = goal.layout.degree(name).ok_or_else(|| unknown(name))?;
        if degree > 1 {
            degrees.push((name.as_str(), degree));
        }
    }
    let wanted = mesh(&degrees, &goal.levels)?;
    if !model.has_mesh {
        model.mesh = wanted;
        model.has_mesh = true;
        open(model);
    } else if goal.layout.devices() > 1 && (&wanted.axes, &wanted.groups) != (&model.mesh.axes, &model.mesh.groups) {
        return Err(PlanError::OwnMesh { mesh: model.mesh.name.clone() });
    }
    Ok(())
}

/// The error for a name in the rank order that is none of the axes that a layout has.
fn unknown(name: &str) -> PlanError {
    PlanError::UnknownAxis { name: name.to_string(), known: Layout::AXES.join(", ") }
}

/// Without a mesh line all shardings are open.
fn open(model: &mut Model) {
    let blocks = model.blocks.values_mut().chain(model.step.as_mut().map(|step| &mut step.graph));
    let values = blocks.flat_map(|block| block.values.values_mut()).map(|data| &mut data.ty);
    let params = model.params.values_mut().map(|param| &mut param.ty);
    let inputs = model.inputs.iter_mut().map(|input| &mut input.ty);
    values.chain(params).chain(inputs).flat_map(|ty| &mut ty.dims).for_each(|dim| dim.open = true);
}

/// The mesh of the degrees (outermost first) on links whose levels hold so many devices each (innermost first).
fn mesh(degrees: &[(&str, u64)], levels: &[u64]) -> Result<Mesh, PlanError> {
    let mut inner = 1;
    let mut parts: Vec<(&str, Vec<u64>)> = Vec::new();
    for &(name, degree) in degrees.iter().rev() {
        // The pipeline axis stays atomic: stages talk to neighbours only, whatever links lie between.
        let sizes = if name == PIPELINE { vec![degree] } else { split(name, degree, inner, levels)? };
        parts.push((name, sizes));
        inner *= degree;
    }
    let mut mesh = Mesh { name: "mesh".to_string(), ..Mesh::default() };
    for (name, sizes) in parts.into_iter().rev() {
        if let [size] = sizes.as_slice() {
            mesh.axes.push(Axis { name: name.to_string(), size: *size });
            continue;
        }
        let axes: Axes = (sizes.iter().enumerate().rev())
            .map(|(place, &size)| mesh.axes.push(Axis { name: format!("{name}{place}"), size }))
            .collect();
        mesh.groups.push(Group { name: name.to_string(), axes });
    }
    Ok(mesh)
}

/// The sizes of the parts of an axis, innermost first, when `inner` devices lie inside it.
fn split(name: &str, degree: u64, inner: u64, levels: &[u64]) -> Result<Vec<u64>, PlanError> {
    let mut sizes = Vec::new();
    let (mut rest, mut inner) = (degree, inner);
    for &level in levels {
        if inner >= level || rest == 1 {
            continue;
        }
        if inner * rest <= level {
            break;
        }
        let room = level / inner;
        if !level.is_multiple_of(inner) || !rest.is_multiple_of(room) {
            return Err(PlanError::Levels { axis: name.to_string(), degree, levels: levels.to_vec() });
        }
        sizes.push(room);
        rest /= room;
        inner = level;
    }
    if rest > 1 || sizes.is_empty() {
        sizes.push(rest);
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::CPU;

    fn axes(mesh: &Mesh) -> Vec<(String, u64)> {
        mesh.axes.values().map(|axis| (axis.name.clone(), axis.size)).collect()
    }

    #[test]
    fn an_axis_over_two_levels_is_split() {
        let mesh = mesh(&[("pp", 4), ("dp", 2), ("tp", 16)], &[8]).unwrap();
        let want = [("pp", 4), ("dp", 2), ("tp1", 2), ("tp0", 8)].map(|(name, size)| (name.to_string(), size));
        assert_eq!(axes(&mesh), want);
        assert_eq!(mesh.groups[0].name, "tp");
        assert_eq!(mesh.size(&mesh.groups[0].axes), 16);
    }

    #[test]
    fn a_rank_order_with_a_stranger_is_told_which_axes_there_are() {
        let order = ["pp", "dp", "xp"].map(str::to_string).to_vec();
        let goal = Goal::of(Layout { order, ..Layout::default() });
        let error = run(&mut Model::default(), &goal, &CPU).unwrap_err();
        assert_eq!(error.to_string(), "there is no axis `xp`; the mesh has pp, dp, tp");
    }

    #[test]
    fn an_axis_that_straddles_a_level_is_refused() {
        assert!(mesh(&[("dp", 2), ("tp", 6)], &[4]).is_err());
        assert!(mesh(&[("dp", 3), ("tp", 4)], &[8]).is_err());
        assert_eq!(axes(&mesh(&[("dp", 4), ("tp", 4)], &[8]).unwrap()).len(), 3);
    }
}
