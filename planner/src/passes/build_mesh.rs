//! `build_mesh`: builds the mesh of a configuration, with each atomic axis within one link level.
//!
//! An axis that spans levels is split, and its name becomes a group: tp = 16 on nodes of 8 devices is `tp=[tp1, tp0]`
//! with tp1 = 2 between nodes and tp0 = 8 within a node. An axis that experts share is also split (`dp=[edp, ep]`), as
//! is the part of dp or cp at the boundary of ZeRO's groups, and the part of tp whose ranks share a key head. Axes of size 1
//! are omitted. A file with its own mesh accepts no other mesh.

use crate::PlanError;
use cost::Platform;
use ir::entity::EntityRef;
use ir::experts::Role;
use ir::graph::Model;
use ir::heads::{self, Heads};
use ir::ids::AxisId;
use ir::mesh::{Axes, Axis, Group, Mesh, PIPELINE};
use ir::options::{ParallelConfig, PlanOptions};
use ir::zero_groups::{UnevenGroups, group_ranks};

pub(crate) fn run(model: &mut Model, options: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    let of_tp: Vec<_> = options.rules.iter().filter(|rule| rule.axis == "tp").flat_map(|rule| &rule.roles).collect();
    let sharded = [heads::ATTENTION, heads::SCAN].into_iter();
    let sharded = sharded.filter(|[keys, _]| !model.has_mesh && of_tp.contains(&keys));
    let heads: Vec<Heads> = sharded.filter_map(|roles| Heads::of_roles(model.dims.values(), roles)).collect();
    let wanted = on_levels(&options.parallel, &heads, &options.levels)?;
    if !model.has_mesh {
        model.mesh = wanted;
        model.has_mesh = true;
        open(model);
    } else if options.parallel.devices() > 1 && (&wanted.axes, &wanted.groups) != (&model.mesh.axes, &model.mesh.groups)
    {
        return Err(PlanError::OwnMesh { mesh: model.mesh.name.clone() });
    }
    Ok(())
}

/// Error for a name in the rank order that is no axis of a configuration.
fn unknown(name: &str) -> PlanError {
    PlanError::UnknownAxis { name: name.to_string(), known: ParallelConfig::AXES.join(", ") }
}

/// Opens all shardings of a file without a mesh line.
fn open(model: &mut Model) {
    let blocks = model.blocks.values_mut().chain(model.step.as_mut().map(|step| &mut step.graph));
    let values = blocks.flat_map(|block| block.values.values_mut()).map(|data| &mut data.ty);
    let params = model.params.values_mut().map(|param| &mut param.ty);
    let inputs = model.inputs.iter_mut().map(|input| &mut input.ty);
    values.chain(params).chain(inputs).flat_map(|ty| &mut ty.dims).for_each(|dim| dim.open = true);
}

/// Contiguous part of an axis.
struct Part {
    axis: &'static str,
    role: Role,
    size: u64,
}

impl Part {
    /// Returns whether ZeRO may shard over the part.
    fn is_of_zero(&self) -> bool {
        matches!(self.axis, "dp" | "cp")
    }
}

/// Builds the mesh of a configuration on links of one level, for a model with these heads.
///
/// # Errors
/// The expert degrees or the groups of ZeRO do not fit, or the rank order names an unknown axis.
pub fn mesh(parallel: &ParallelConfig, heads: &[Heads]) -> Result<Mesh, PlanError> {
    on_levels(parallel, heads, &[])
}

/// Builds the mesh on links whose levels have `levels` devices, innermost first.
fn on_levels(parallel: &ParallelConfig, heads: &[Heads], levels: &[u64]) -> Result<Mesh, PlanError> {
    let (folded, mut inner) = (parallel.fold()?, 1);
    let mut parts: Vec<Part> = Vec::new();
    for name in parallel.rank_order.iter().rev() {
        let axis = *ParallelConfig::AXES.iter().find(|axis| *axis == name).ok_or_else(|| unknown(name))?;
        if axis == PIPELINE {
            // The axis stays atomic: stages communicate with neighbours only, whatever links are between them.
            parts.extend((parallel.pp > 1).then_some(Part { axis, role: Role::Copies, size: parallel.pp }));
            inner *= parallel.pp;
        }
        for &(role, degree) in folded.iter().filter(|(folded, _)| *folded == axis).flat_map(|(_, parts)| parts) {
            let sizes = split(axis, degree, inner, levels)?;
            parts.extend(sizes.into_iter().map(|size| Part { axis, role, size }));
            inner *= degree;
        }
    }
    if parallel.zero > 0 {
        parts = with_groups(parts, parallel.shard)?;
    }
    let mut sharings: Vec<u64> = heads.iter().filter_map(|heads| heads.sharing(parallel.tp)).collect();
    // The smaller number first: the larger one then goes through its parts, if it is a multiple.
    sharings.sort_unstable();
    for sharing in sharings {
        parts = with_shared_heads(parts, sharing);
    }
    parts.reverse();
    Ok(named(&parts))
}

/// Mesh of the parts, outermost first.
fn named(parts: &[Part]) -> Mesh {
    let mut mesh = Mesh { name: "mesh".to_string(), ..Mesh::default() };
    for (place, part) in parts.iter().enumerate() {
        mesh.axes.push(Axis { name: axis_name(parts, place), size: part.size });
    }
    let expert = [
        ("ep", axes_of(parts, |part| part.role == Role::Differs)),
        ("etp", axes_of(parts, |part| part.role == Role::Shares)),
    ];
    let groups = ParallelConfig::AXES.map(|name| (name, axes_of(parts, |part| part.axis == name)));
    for (name, axes) in groups.into_iter().chain(expert) {
        if !axes.is_empty() && mesh.axes.values().all(|axis| axis.name != name) {
            mesh.groups.push(Group { name: name.to_string(), axes });
        }
    }
    mesh
}

/// Name of a part. A part that is its entire axis takes that name, as does the ep part of dp and the rest of dp. Other
/// parts are numbered.
fn axis_name(parts: &[Part], place: usize) -> String {
    let part = &parts[place];
    let of_axis: Vec<&Part> = parts.iter().filter(|other| other.axis == part.axis).collect();
    let alike = of_axis.iter().filter(|other| other.role == part.role).count();
    let of_role = parts.iter().filter(|other| other.role == part.role).count();
    match (of_axis.len(), part.role) {
        (1, _) => part.axis.to_string(),
        (2, Role::Copies) if part.axis == "dp" && alike == 1 => "edp".to_string(),
        (2, Role::Differs) if part.axis == "dp" && of_role == 1 => "ep".to_string(),
        _ => format!("{}{}", part.axis, parts[place + 1..].iter().filter(|other| other.axis == part.axis).count()),
    }
}

/// Axes of the chosen parts, major to minor in the order of tokens: sequences first, then parts of a sequence.
fn axes_of(parts: &[Part], is_chosen: impl Fn(&Part) -> bool) -> Axes {
    let mut axes = Axes::none();
    for name in ParallelConfig::AXES {
        let chosen = parts.iter().enumerate().filter(|(_, part)| part.axis == name && is_chosen(part));
        chosen.for_each(|(place, _)| axes.push(AxisId::new(place)));
    }
    axes
}

/// Sizes of the parts of an axis, innermost first, with `inner` devices inside the axis.
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

/// The parts, innermost first, with those of tp split in two of which only some ranks share a key head.
fn with_shared_heads(parts: Vec<Part>, sharing: u64) -> Vec<Part> {
    let sizes: Vec<u64> = parts.iter().filter(|part| part.axis == "tp").map(|part| part.size).collect();
    let mut sides = heads::parts(sizes, sharing);
    let mut split = Vec::with_capacity(parts.len());
    for part in parts {
        let sides = if part.axis == "tp" { sides.next() } else { None };
        let sizes = sides.unwrap_or([part.size, 1]).into_iter().filter(|&size| size > 1);
        split.extend(sizes.map(|size| Part { size, ..part }));
    }
    split
}

/// The parts, innermost first, with that of dp or cp split in two that contains the boundary of ZeRO's groups.
fn with_groups(parts: Vec<Part>, shard: Option<u64>) -> Result<Vec<Part>, UnevenGroups> {
    let sharding: Vec<_> = parts.iter().filter(|part| part.is_of_zero()).map(|part| (part.axis, part.size)).collect();
    let mut ranks = group_ranks(&sharding, shard)?.into_iter();
    let mut split = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        let inside = if part.is_of_zero() { ranks.next().unwrap_or(1) } else { 1 };
        if inside == 1 || inside == part.size {
            split.push(part);
        } else {
            split.extend([inside, part.size / inside].map(|size| Part { size, ..part }));
        }
    }
    Ok(split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::PROGRAM;

    /// The mesh as a line of the text form.
    fn line(parallel: &ParallelConfig, levels: &[u64]) -> String {
        with_heads(parallel, None, levels)
    }

    /// The same for a model with these heads.
    fn with_heads(parallel: &ParallelConfig, heads: Option<Heads>, levels: &[u64]) -> String {
        let mesh = on_levels(parallel, heads.as_slice(), levels).unwrap();
        let axes: Vec<String> = mesh.axes.values().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
        let names = |axes: &Axes| axes.iter().map(|axis| mesh.axes[axis].name.clone()).collect::<Vec<_>>().join(",");
        let groups = mesh.groups.iter().map(|group| format!(" {}=[{}]", group.name, names(&group.axes)));
        axes.join(" ") + &groups.collect::<String>()
    }

    #[test]
    fn an_axis_over_two_levels_is_split() {
        let parallel = ParallelConfig { pp: 4, dp: 2, tp: 16, ..ParallelConfig::default() };
        assert_eq!(line(&parallel, &[8]), "pp=4 dp=2 tp1=2 tp0=8 tp=[tp1,tp0]");
    }

    #[test]
    fn a_group_of_zero_is_the_innermost_part_of_dp() {
        let parallel =
            |shard| ParallelConfig { dp: 16, tp: 2, zero: 3, shard: Some(shard), ..ParallelConfig::default() };
        assert_eq!(line(&parallel(4), &[]), "dp1=4 dp0=4 tp=2 dp=[dp1,dp0]");
        assert_eq!(line(&parallel(2), &[8]), "dp2=4 dp1=2 dp0=2 tp=2 dp=[dp2,dp1,dp0]");
        assert_eq!(line(&parallel(16), &[]), "dp=16 tp=2");
        assert_eq!(line(&ParallelConfig { zero: 0, ..parallel(4) }, &[]), "dp=16 tp=2");
    }

    #[test]
    fn ranks_of_tp_that_share_a_key_head_are_innermost() {
        let parallel = |tp, etp| ParallelConfig { dp: 2, tp, etp, ..ParallelConfig::default() };
        let heads = |keys, queries| Some(Heads { keys, queries, whole: true });
        assert_eq!(with_heads(&parallel(8, 1), heads(8, 4), &[]), "dp=2 tp=8");
        assert_eq!(with_heads(&parallel(8, 1), heads(2, 4), &[]), "dp=2 tp1=2 tp0=4 tp=[tp1,tp0]");
        assert_eq!(with_heads(&parallel(8, 1), heads(1, 8), &[]), "dp=2 tp=8");
        assert_eq!(with_heads(&parallel(8, 2), heads(2, 4), &[]), "dp=2 tp2=2 tp1=2 tp0=2 tp=[tp2,tp1,tp0] etp=[tp0]");
        assert_eq!(with_heads(&parallel(16, 1), heads(8, 4), &[8]), "dp=2 tp2=2 tp1=4 tp0=2 tp=[tp2,tp1,tp0]");
        assert_eq!(with_heads(&parallel(8, 1), heads(2, 2), &[]), "dp=2 tp=8", "these heads fit no mesh");
    }

    /// Heads of attention and of scans.
    #[test]
    fn two_kinds_of_heads_split_tp_twice() {
        let parallel = ParallelConfig { tp: 8, ..ParallelConfig::default() };
        let heads = |keys, queries| Heads { keys, queries, whole: true };
        let line = |all: &[Heads]| {
            let mesh = on_levels(&parallel, all, &[]).unwrap();
            mesh.axes.values().map(|axis| axis.size).collect::<Vec<_>>()
        };
        assert_eq!(line(&[heads(2, 8), heads(16, 2)]), [2, 4]);
        assert_eq!(line(&[heads(2, 8), heads(4, 2)]), [2, 2, 2]);
        assert_eq!(line(&[heads(8, 4), heads(1, 128)]), [8]);
    }

    #[test]
    fn a_group_of_zero_takes_cp_first_and_goes_through_parts_of_experts() {
        let parallel = |[dp, cp, ep]: [u64; 3], shard| ParallelConfig {
            dp,
            cp,
            ep,
            zero: 1,
            shard: Some(shard),
            ..ParallelConfig::default()
        };
        assert_eq!(line(&parallel([4, 2, 1], 2), &[]), "dp=4 cp=2");
        assert_eq!(line(&parallel([4, 2, 1], 4), &[]), "dp1=2 dp0=2 cp=2 dp=[dp1,dp0]");
        assert_eq!(line(&parallel([2, 4, 1], 2), &[]), "dp=2 cp1=2 cp0=2 cp=[cp1,cp0]");
        assert_eq!(line(&parallel([8, 1, 4], 2), &[]), "dp2=2 dp1=2 dp0=2 dp=[dp2,dp1,dp0] ep=[dp1,dp0]");
        assert_eq!(line(&parallel([8, 1, 4], 4), &[]), "edp=2 ep=4 dp=[edp,ep]");
        assert_eq!(line(&parallel([8, 1, 2], 4), &[]), "dp2=2 dp1=2 dp0=2 dp=[dp2,dp1,dp0] ep=[dp0]");
        assert_eq!(line(&parallel([2, 2, 4], 2), &[]), "dp=2 cp=2 ep=[dp,cp]");
        let levels = on_levels(&parallel([12, 1, 1], 6), &[], &[4]).unwrap_err();
        let why = "`shard=6` cuts through 4 neighbours of dp: neither number divides the other";
        assert_eq!(levels.to_string(), why);
    }

    #[test]
    fn experts_take_parts_of_axes() {
        let parallel = |dp, cp, tp, ep, etp| ParallelConfig { dp, cp, tp, ep, etp, ..ParallelConfig::default() };
        assert_eq!(line(&parallel(8, 1, 2, 4, 2), &[]), "edp=2 ep=4 tp=2 dp=[edp,ep] etp=[tp]");
        assert_eq!(line(&parallel(4, 1, 2, 8, 1), &[]), "dp=4 tp=2 ep=[dp,tp]");
        assert_eq!(line(&parallel(4, 1, 2, 4, 1), &[]), "edp=2 dp0=2 tp=2 dp=[edp,dp0] ep=[dp0,tp]");
        assert_eq!(line(&parallel(2, 2, 4, 4, 2), &[]), "dp=2 cp=2 tp1=2 tp0=2 tp=[tp1,tp0] ep=[cp,tp1] etp=[tp0]");
        assert_eq!(line(&parallel(16, 1, 1, 16, 1), &[8]), "dp1=2 dp0=8 dp=[dp1,dp0] ep=[dp1,dp0]");
    }

    #[test]
    fn a_rank_order_with_a_stranger_is_told_which_axes_there_are() {
        let rank_order = ["pp", "dp", "xp"].map(str::to_string).into();
        let options = PlanOptions::of(ParallelConfig { rank_order, ..ParallelConfig::default() });
        let error = run(&mut Model::default(), &options, &PROGRAM).unwrap_err();
        assert_eq!(error.to_string(), "there is no axis `xp`; the mesh has pp, dp, cp, tp");
    }

    #[test]
    fn an_axis_that_straddles_a_level_is_refused() {
        let parallel = |dp, tp| ParallelConfig { dp, tp, ..ParallelConfig::default() };
        assert!(on_levels(&parallel(2, 6), &[], &[4]).is_err());
        assert!(on_levels(&parallel(3, 4), &[], &[8]).is_err());
        assert_eq!(on_levels(&parallel(4, 4), &[], &[8]).unwrap().axes.len(), 3);
    }
}
