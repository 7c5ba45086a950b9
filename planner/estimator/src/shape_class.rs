//! Shape class: everything that the statements of a planned model depend on, except the paths of its reshards.

use super::plan_template::DimSizes;
use ir::dim_role::DimRole;
use ir::entity::EntityRef;
use ir::heads::{self, ATTENTION, HeadRoles, Heads, SCAN};
use ir::mesh::{Axes, Group, Mesh};
use ir::options::ParallelConfig;
use ir::types::DimName;
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
    /// The axes of tp whose ranks share a key head.
    sharing: [Axes; 2],
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
            sharing: [ATTENTION, SCAN]
                .map(|roles| heads(parallel, mesh, dims, roles).map_or_else(Axes::none, |[_, sharing]| sharing)),
        }
    }
}

/// The axes of tp that shard key heads, and those that shard the query heads of each; `None` without heads.
fn heads(parallel: &ParallelConfig, mesh: &Mesh, dims: &DimSizes, roles: HeadRoles) -> Option<[Axes; 2]> {
    let sharing = Heads::of_roles(dims.values(), roles)?.sharing(parallel.tp)?;
    heads::split(mesh, &mesh.lookup("tp").unwrap_or_default(), sharing)
}

/// Per dim: the degrees that divide it, alone and with those that follow, and whether it is 1.
fn of_all(mesh: &Mesh, dims: &DimSizes) -> Vec<(String, Vec<bool>)> {
    let degrees: Vec<u64> = mesh.axes.values().map(|axis| axis.size).collect();
    let products = products(&degrees);
    let of = |(name, dim): (&String, &DimName)| {
        let divided = products.iter().map(|product| dim.size.is_multiple_of(*product));
        (name.clone(), divided.chain([dim.size == 1]).collect())
    };
    dims.iter().map(of).collect()
}

/// Questions until reshards are marked, in a built model. Rules put axes on dims, and statements carry them
/// from a dim to the same dim, or from sequences to the groups that these are split into and their tokens (`reshape`); to no
/// other. The questions are about consecutive axes of a dim, or none. Do they split it evenly? Into at most one part per element?
/// Into exactly one, so that the remaining axes go to the dim within it? A partial sum is sharded over experts before it is
/// reduced if the experts have at most one place per token.
fn of_marks(parallel: &ParallelConfig, mesh: &Mesh, dims: &DimSizes) -> Vec<(String, Vec<bool>)> {
    let mut cut: BTreeMap<DimRole, Axes> = BTreeMap::new();
    for rule in parallel.annotation_rules() {
        let axes = mesh.lookup(&rule.axis).unwrap_or_default();
        for role in rule.roles {
            let all = cut.entry(role).or_default();
            *all = all.union(&axes);
        }
    }
    for roles in [ATTENTION, SCAN] {
        let sharded = heads(parallel, mesh, dims, roles);
        cut.extend(roles.into_iter().zip(sharded.into_iter().flatten()));
    }
    let sequence = cut.get(&DimRole::Sequence).cloned().unwrap_or_default();
    cut.extend([DimRole::RoutingGroups, DimRole::Tokens].map(|role| (role, sequence.clone())));
    let asked = |(name, &DimName { size, role, .. }): (&String, &DimName)| {
        let degrees: Vec<u64> = cut.get(&role?)?.iter().map(|axis| mesh.axes[axis].size).collect();
        let parts = products(&degrees).into_iter().chain([1]);
        let answers = parts.flat_map(|parts| [size.is_multiple_of(parts), size >= parts, size <= parts]);
        Some((name.clone(), answers.collect()))
    };
    let size = |role| dims.values().find(|dim| dim.role == Some(role)).map_or(1, |dim| dim.size);
    let places = size(DimRole::Experts).saturating_mul(size(DimRole::Capacity));
    let places = ("places".to_string(), vec![places > size(DimRole::Tokens)]);
    dims.iter().filter_map(asked).chain([places]).collect()
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
