//! The passes as a table, and the runner.

use crate::passes::{annotate, build_mesh, collectives, decompose, propagate, recompute, reshard, shard};
use crate::reshard::Ways;
use crate::shard::Watch;
use cost::Cluster;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::experts::Unfolded;
use ir::goal::Goal;
use ir::graph::Model;
use ir::limits;
use ir::recompute::UnknownName;
use ir::renumber::renumber;

/// Why a model could not be planned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// A degree is asked for on a mesh that the file already has.
    #[error("the file brings its own mesh `@{mesh}`; it takes no other")]
    OwnMesh {
        /// The file's mesh.
        mesh: String,
    },
    /// A seed rule or an order names what is not there.
    #[error("there is no axis `{name}`; the mesh has {known}")]
    UnknownAxis {
        /// The name.
        name: String,
        /// The axes of the mesh.
        known: String,
    },
    /// A seed rule names a dim that the model has not.
    #[error("no dim is named {names}; the model has {known}")]
    UnknownDim {
        /// The names that would do.
        names: String,
        /// The dims of the model.
        known: String,
    },
    /// An exact dim would be cut unevenly.
    #[error("`{axis}` = {degree} does not divide dim `{dim}` = {size}, which must be cut evenly")]
    NotDivisible {
        /// The axis or group.
        axis: String,
        /// Its size.
        degree: u64,
        /// The dim.
        dim: String,
        /// Its size.
        size: u64,
    },
    /// More shards than elements.
    #[error("`{axis}` = {degree} is more than dim `{dim}` has elements ({size})")]
    TooManyShards {
        /// The axis or group.
        axis: String,
        /// Its size.
        degree: u64,
        /// The dim.
        dim: String,
        /// Its size.
        size: u64,
    },
    /// A degree that cannot be made of whole link levels.
    #[error("`{axis}` = {degree} does not fit the link levels {levels:?}: a level is filled by whole axes")]
    Levels {
        /// The axis.
        axis: String,
        /// Its size.
        degree: u64,
        /// Devices within each level.
        levels: Vec<u64>,
    },
    /// Experts cannot be shared out so.
    #[error(transparent)]
    Experts(#[from] Unfolded),
    /// The layout names what is to be made again, and it is not there.
    #[error(transparent)]
    Recompute(#[from] UnknownName),
    /// No shardings that the rules allow fit into the memory.
    #[error("no sharding {} the model in {bytes} bytes on each device", held(.is_proved))]
    NoRoom {
        /// Bytes of a device.
        bytes: u64,
        /// Whether there is none; else none was found.
        is_proved: bool,
    },
    /// A fault of ours.
    #[error("fault in pass `{pass}`: {why}")]
    Fault {
        /// The pass.
        pass: &'static str,
        /// What it met.
        why: String,
    },
}

fn held(is_proved: &bool) -> &'static str {
    if *is_proved { "holds" } else { "was found that holds" }
}

impl Coded for PlanError {
    fn code(&self) -> Option<Code> {
        match self {
            PlanError::OwnMesh { .. } => Some(Code::ConflictingOptions),
            PlanError::UnknownAxis { .. } => Some(Code::UnknownAxis),
            PlanError::UnknownDim { .. } => Some(Code::UnknownAnnotatedDim),
            PlanError::NotDivisible { .. } => Some(Code::UnevenIndivisible),
            PlanError::TooManyShards { .. } => Some(Code::AxesAboveDim),
            PlanError::Levels { .. } | PlanError::Experts(_) => Some(Code::ImpossibleDegrees),
            PlanError::Recompute(error) => error.code(),
            PlanError::NoRoom { .. } => Some(Code::NoRoom),
            PlanError::Fault { .. } => None,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            PlanError::OwnMesh { .. } => Some("leave out --mesh, or the file's `mesh` line".to_string()),
            PlanError::UnknownAxis { .. } => Some("use an axis of the mesh".to_string()),
            PlanError::UnknownDim { .. } => Some(
                "leave out the degree that cuts it, or name dims as built models do: b, s, g, f, u, v, of experts e, m"
                    .to_string(),
            ),
            PlanError::NotDivisible { axis, size, .. } => {
                let degrees = 1..=(*size).min(limits::DEVICES);
                let fitting: Vec<String> = degrees.filter(|n| size.is_multiple_of(*n)).map(|n| n.to_string()).collect();
                Some(format!("degrees of `{axis}` that divide it: {}", fitting.join(", ")))
            }
            PlanError::TooManyShards { axis, size, .. } => {
                Some(format!("choose a degree of `{axis}` of at most {size}"))
            }
            PlanError::Levels { .. } => Some("choose degrees that fill whole levels".to_string()),
            PlanError::Experts(_) => Some("let ep x etp divide dp x cp x tp, each part within one of them".to_string()),
            PlanError::Recompute(error) => error.help(),
            PlanError::NoRoom { .. } => {
                Some("take more devices or smaller micro-batches, or state more --memory".to_string())
            }
            PlanError::Fault { .. } => None,
        }
    }
}

/// A step from level 1 to level 1.
pub struct Pass {
    /// Its name: the file, `--stop-after`, the dump, the folder of cases.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Why it stands where it stands.
    pub why_here: &'static str,
    run: Run,
}

/// What a pass does to a model.
enum Run {
    /// Without a word.
    Silent(fn(&mut Model, &Goal, &Cluster) -> Result<(), PlanError>),
    /// And says how a long search goes.
    Watched(fn(&mut Model, &Goal, &Cluster, &mut Watch<'_>) -> Result<(), PlanError>),
}

const fn pass(
    name: &'static str,
    does: &'static str,
    why_here: &'static str,
    run: fn(&mut Model, &Goal, &Cluster) -> Result<(), PlanError>,
) -> Pass {
    Pass { name, does, why_here, run: Run::Silent(run) }
}

impl Pass {
    fn over(
        &self,
        mut model: Model,
        goal: &Goal,
        cluster: &Cluster,
        watch: &mut Watch<'_>,
    ) -> Result<Model, PlanError> {
        match self.run {
            Run::Silent(run) => run(&mut model, goal, cluster)?,
            Run::Watched(run) => run(&mut model, goal, cluster, watch)?,
        }
        Ok(renumbered(model))
    }
}

/// The passes in order.
pub const PASSES: &[Pass] = &[
    pass(
        "recompute",
        "copy into the backward what is made again there",
        "first: copies are sharded as all else is",
        recompute::run,
    ),
    pass("build_mesh", "make the mesh; split axes at link levels", "before all that names its axes", build_mesh::run),
    pass(
        "annotate",
        "write pins and rules, open the rest",
        "before propagate: it spreads what stands here",
        annotate::run,
    ),
    Pass {
        name: "shard",
        does: "with --shard auto: decide every type by its cost",
        why_here: "after annotate: what stands there holds",
        run: Run::Watched(shard::run),
    },
    pass("propagate", "carry shardings along the rules", "needs the annotations; decides every type", propagate::run),
    pass(
        "decompose",
        "replace composite ops, and ops whose `!` dim is sharded, by graphs of simpler ops",
        "after propagate: only then is it known what is cut",
        decompose::run,
    ),
    pass(
        "reshard",
        "insert a reshard where an op needs another layout",
        "after decompose: the last statements are in place",
        reshard::run,
    ),
    pass(
        "collectives",
        "make each reshard the cheapest collectives; combine gradients into buckets",
        "last: all layouts are known",
        collectives::run,
    ),
];

/// Told of each pass that has run.
pub type Observer<'a> = dyn FnMut(&'static str, &Model) + 'a;

/// Runs the passes, as far as `stop_after` if given; the cluster prices the ways between layouts.
///
/// # Errors
/// The goal does not fit the model, or a fault of a pass.
pub fn plan(
    model: Model,
    goal: &Goal,
    cluster: &Cluster,
    stop_after: Option<&str>,
    observer: &mut Observer<'_>,
) -> Result<Model, PlanError> {
    plan_watched(model, goal, cluster, stop_after, (observer, &mut |_| {}))
}

/// The same, and `watch` is told how the search for shardings goes.
///
/// # Errors
/// As [`plan`].
pub fn plan_watched(
    mut model: Model,
    goal: &Goal,
    cluster: &Cluster,
    stop_after: Option<&str>,
    (observer, watch): (&mut Observer<'_>, &mut Watch<'_>),
) -> Result<Model, PlanError> {
    for pass in PASSES {
        model = pass.over(model, goal, cluster, watch)?;
        observer(pass.name, &model);
        if stop_after == Some(pass.name) {
            break;
        }
    }
    Ok(model)
}

/// Runs the last pass over a model that those before it have planned, by ways between layouts that others have taken on the same
/// cluster.
///
/// # Errors
/// As [`plan`].
pub fn finish(mut model: Model, goal: &Goal, cluster: &Cluster, ways: &Ways) -> Result<Model, PlanError> {
    collectives::run_by(ways, &mut model, goal, cluster)?;
    Ok(renumbered(model))
}

fn renumbered(mut model: Model) -> Model {
    model.blocks.values_mut().chain(model.step.as_mut().map(|step| &mut step.graph)).for_each(renumber);
    model
}
