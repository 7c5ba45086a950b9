//! Shape class: everything that the statements of a planned model depend on, except the paths of its reshards.

use super::plan_template::DimSizes;
use ir::entity::EntityRef;
use ir::mesh::{Axes, Group, Mesh};
use ir::options::ParallelConfig;
use std::collections::BTreeMap;

/// Key that configurations and sizes share if they have the same statements until reshards are marked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ShapeClass {
    /// The axes of the mesh.
    axes: Vec<String>,
    groups: Vec<(String, Vec<usize>)>,
    sp: bool,
    /// Answers to the questions of the passes on the sizes of named dims.
    answers: Vec<(String, Vec<bool>)>,
}

impl ShapeClass {
    /// That of a configuration on its mesh, for dims of these sizes: those of a model that is built, or of any.
    pub(super) fn of(parallel: &ParallelConfig, mesh: &Mesh, dims: &DimSizes, is_built: bool) -> ShapeClass {
        let places = |group: &Group| group.axes.iter().map(|axis| axis.index()).collect();
        ShapeClass {
            axes: mesh.axes.values().map(|axis| axis.name.clone()).collect(),
            groups: mesh.groups.iter().map(|group| (group.name.clone(), places(group))).collect(),
            sp: parallel.sp,
            answers: if is_built { of_marks(parallel, mesh, dims) } else { of_all(mesh, dims) },
        }
    }
}

/// Per dim: the degrees that divide it, alone and with those that follow, and whether it is 1.
fn of_all(mesh: &Mesh, dims: &DimSizes) -> Vec<(String, Vec<bool>)> {
    let degrees: Vec<u64> = mesh.axes.values().map(|axis| axis.size).collect();
    let products = products(&degrees);
    let of = |(name, size): (&String, &u64)| {
        let divided = products.iter().map(|product| size.is_multiple_of(*product));
        (name.clone(), divided.chain([*size == 1]).collect())
    };
    dims.iter().map(of).collect()
}

/// Questions until reshards are marked, in a built model. Rules put axes on dims, and statements carry them
/// from a dim to the same dim, or from sequences to the groups that these are split into and their tokens (`reshape`); to no
/// other. The questions are about consecutive axes of a dim, or none. Do they split it evenly? Into at most one part per element?
/// Into exactly one, so that the remaining axes go to the dim within it? A partial sum is sharded over experts before it is
/// reduced if the experts have at most one place per token.
fn of_marks(parallel: &ParallelConfig, mesh: &Mesh, dims: &DimSizes) -> Vec<(String, Vec<bool>)> {
    let mut cut: BTreeMap<String, Axes> = BTreeMap::new();
    for rule in parallel.annotation_rules() {
        let axes = mesh.lookup(&rule.axis).unwrap_or_default();
        for dim in rule.dims {
            let all = cut.entry(dim).or_default();
            *all = all.union(&axes);
        }
    }
    let sequence = cut.get("s").cloned().unwrap_or_default();
    cut.extend(["q", "t"].map(|dim| (dim.to_string(), sequence.clone())));
    let asked = |(dim, axes): (String, Axes)| {
        let size = *dims.get(&dim)?;
        let degrees: Vec<u64> = axes.iter().map(|axis| mesh.axes[axis].size).collect();
        let parts = products(&degrees).into_iter().chain([1]);
        Some((dim, parts.flat_map(|parts| [size.is_multiple_of(parts), size >= parts, size <= parts]).collect()))
    };
    let size = |dim: &str| dims.get(dim).copied().unwrap_or(1);
    let places = ("c".to_string(), vec![size("e").saturating_mul(size("c")) > size("t")]);
    cut.into_iter().filter_map(asked).chain([places]).collect()
}

/// Products of degrees that follow each other.
fn products(degrees: &[u64]) -> Vec<u64> {
    let from = |first: usize| {
        degrees[first..].iter().scan(1, |product, degree| {
            *product *= degree;
            Some(*product)
        })
    };
    (0..degrees.len()).flat_map(from).collect()
}
