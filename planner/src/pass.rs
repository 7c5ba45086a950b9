//! Pass table and pass runner.

use crate::passes::{annotate, build_mesh, collectives, decompose, propagate, ragged, recompute, reshard, shard};
use crate::reshard::ReshardCache;
use cost::Platform;
use ir::catalogue::Code;
use ir::diag::{Coded, Diagnostics};
use ir::dim_role::DimRole;
use ir::experts::Unfolded;
use ir::graph::Model;
use ir::options::PlanOptions;
use ir::verify;
use ir::zero_groups::UnevenGroups;
use shard::Watch;
use transforms::recompute::UnknownName;
use transforms::renumber::renumber;

/// Error that stops planning.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The request asks for a degree, but the file already has a mesh.
    #[error("the file brings its own mesh `@{mesh}`; it takes no other")]
    OwnMesh {
        /// Name of the file's mesh.
        mesh: String,
    },
    /// An annotation rule or a rank order names an unknown axis.
    #[error("there is no axis `{name}`; the mesh has {known}")]
    UnknownAxis {
        /// The unknown name.
        name: String,
        /// The axes of the mesh.
        known: String,
    },
    /// No dim of the model has a role that an annotation rule shards.
    #[error("no dim has the role {}; the model has {known}", quoted(.roles))]
    NoDimOfRole {
        /// The axis of the rule.
        axis: String,
        /// The roles of the rule.
        roles: Vec<DimRole>,
        /// The dims of the model.
        known: String,
    },
    /// The axis does not divide an indivisible dim.
    #[error("`{axis}` = {degree} does not divide dim `{dim}` = {size}, which must be split evenly")]
    NotDivisible {
        /// The axis or axis group.
        axis: String,
        /// Size of the axis.
        degree: u64,
        /// Name of the dim.
        dim: String,
        /// Size of the dim.
        size: u64,
        /// Sizes of the axis that fit.
        degrees: Vec<u64>,
    },
    /// The axis has more ranks than the dim has elements.
    #[error("`{axis}` = {degree} is more than dim `{dim}` has elements ({size})")]
    TooManyShards {
        /// The axis or axis group.
        axis: String,
        /// Size of the axis.
        degree: u64,
        /// Name of the dim.
        dim: String,
        /// Size of the dim.
        size: u64,
    },
    /// Ranks that share a sequence cannot exchange keys in this way, since queries choose them.
    #[error("`cp_kind={kind}` does not go with queries that choose their keys, which may be anywhere in a sequence")]
    ChosenKeys {
        /// The way.
        kind: &'static str,
    },
    /// A degree does not factor into complete link levels.
    #[error("`{axis}` = {degree} does not fit the link levels {levels:?}: each level must consist of complete axes")]
    Levels {
        /// Name of the axis.
        axis: String,
        /// Size of the axis.
        degree: u64,
        /// Number of devices within each level.
        levels: Vec<u64>,
    },
    /// Ranks cannot share sequences of a model whose ops carry a state along them.
    #[error(
        "`cp` = {cp} ranks cannot share sequences of {rows} tokens: `{op}` hands on its state between equal blocks of {least} tokens or more"
    )]
    StateOverRanks {
        /// The degree of context parallelism.
        cp: u64,
        /// Tokens of a sequence.
        rows: u64,
        /// The least tokens of a block.
        least: u64,
        /// Name of the first such op.
        op: &'static str,
    },
    /// The expert degrees do not fit the other degrees.
    #[error(transparent)]
    Experts(#[from] Unfolded),
    /// The ranks of dp and cp do not divide into groups of ZeRO.
    #[error(transparent)]
    ZeroGroups(#[from] UnevenGroups),
    /// The configuration recomputes a name that the model does not have.
    #[error(transparent)]
    Recompute(#[from] UnknownName),
    /// Every sharding that the rules allow exceeds the memory budget.
    #[error("out of memory: {} {bytes} bytes per device", shortage(.is_proved))]
    NoRoom {
        /// Memory budget per device, in bytes.
        bytes: u64,
        /// True if infeasibility is proved; `false` if the search found no sharding in its budget.
        is_proved: bool,
    },
    /// Internal error.
    #[error("internal error in pass `{pass}`: {why}")]
    Fault {
        /// Name of the pass.
        pass: &'static str,
        /// Description of the failure.
        why: String,
    },
}

fn quoted(roles: &[DimRole]) -> String {
    roles.iter().map(|role| format!("`{}`", role.word())).collect::<Vec<_>>().join(" or ")
}

fn shortage(is_proved: &bool) -> &'static str {
    if *is_proved { "every sharding needs more than" } else { "no sharding was found within" }
}

impl Coded for PlanError {
    fn code(&self) -> Option<Code> {
        match self {
            PlanError::OwnMesh { .. } => Some(Code::ConflictingOptions),
            PlanError::UnknownAxis { .. } => Some(Code::UnknownAxis),
            PlanError::NoDimOfRole { .. } => Some(Code::NoDimOfRole),
            PlanError::NotDivisible { .. } => Some(Code::UnevenIndivisible),
            PlanError::TooManyShards { .. } => Some(Code::AxesAboveDim),
            PlanError::ChosenKeys { .. } => Some(Code::ConflictingOptions),
            PlanError::Levels { .. }
            | PlanError::Experts(_)
            | PlanError::ZeroGroups(_)
            | PlanError::StateOverRanks { .. } => Some(Code::ImpossibleDegrees),
            PlanError::Recompute(error) => error.code(),
            PlanError::NoRoom { .. } => Some(Code::NoRoom),
            PlanError::Fault { .. } => None,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            PlanError::OwnMesh { .. } => Some("leave out --parallel, or the file's `mesh` line".to_string()),
            PlanError::UnknownAxis { .. } => Some("use an axis of the mesh".to_string()),
            PlanError::NoDimOfRole { axis, roles, .. } => {
                let role = roles.first().map_or("", |role| role.word());
                Some(format!("leave out `{axis}`, or state the role behind the size of a dim: dims [n=8 {role}]"))
            }
            PlanError::NotDivisible { axis, degrees, .. } => {
                let fitting: Vec<String> = degrees.iter().map(u64::to_string).collect();
                Some(format!("degrees of `{axis}` that fit: {}", fitting.join(", ")))
            }
            PlanError::TooManyShards { axis, size, .. } => {
                Some(format!("choose a degree of `{axis}` of at most {size}"))
            }
            PlanError::ChosenKeys { .. } => Some("leave out `cp_kind`, or set cp_kind=allgather".to_string()),
            PlanError::Levels { .. } => Some("choose degrees that fill complete levels".to_string()),
            PlanError::StateOverRanks { rows, least, .. } => {
                Some(format!("choose a `cp` that divides {rows} and leaves {least} tokens or more to a rank"))
            }
            PlanError::Experts(_) => Some("let ep x etp divide dp x cp x tp, each part within one of them".to_string()),
            PlanError::ZeroGroups(error) => Some(error.help()),
            PlanError::Recompute(error) => error.help(),
            PlanError::NoRoom { .. } => {
                Some("use more devices or smaller micro-batches, or raise --memory".to_string())
            }
            PlanError::Fault { .. } => None,
        }
    }
}

/// A transformation from level 1 to level 1.
pub struct Pass {
    /// Pass name, used by `--stop-after`, the dumps and the folder of test cases.
    pub name: &'static str,
    /// Summary of the transformation.
    pub does: &'static str,
    /// Reason for the position in [`PASSES`].
    pub why_here: &'static str,
    /// Checker of the model after the pass.
    pub verify: fn(&Model) -> Result<(), Diagnostics>,
    run: Run,
}

/// Entry point of a pass.
enum Run {
    /// Reports no progress.
    Silent(fn(&mut Model, &PlanOptions, &Platform<'_>) -> Result<(), PlanError>),
    /// Reports the progress of a long search.
    Watched(fn(&mut Model, &PlanOptions, &Platform<'_>, &mut Watch<'_>) -> Result<(), PlanError>),
}

const fn pass(
    name: &'static str,
    does: &'static str,
    why_here: &'static str,
    run: fn(&mut Model, &PlanOptions, &Platform<'_>) -> Result<(), PlanError>,
) -> Pass {
    Pass { name, does, why_here, verify: verify::verify, run: Run::Silent(run) }
}

impl Pass {
    /// The same pass, after which every operand must have a sharding that its op accepts.
    const fn with_legal_operands(self) -> Pass {
        Pass { verify: verify::verify_planned, ..self }
    }

    /// Runs the pass. `platform` supplies the cost of reshards; `watch` hears of the sharding search.
    ///
    /// # Errors
    /// The options do not fit the model, or the pass has an internal error.
    pub fn run(
        &self,
        model: &mut Model,
        options: &PlanOptions,
        platform: &Platform<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<(), PlanError> {
        match self.run {
            Run::Silent(run) => run(model, options, platform)?,
            Run::Watched(run) => run(model, options, platform, watch)?,
        }
        renumber_all(model);
        Ok(())
    }
}

/// All passes, in execution order.
pub const PASSES: &[Pass] = &[
    pass(
        "recompute",
        "copy the recomputed statements into the backward",
        "first: later passes shard the copies like other statements",
        recompute::run,
    ),
    pass(
        "build_mesh",
        "build the mesh; split axes at link levels",
        "before every pass that names mesh axes",
        build_mesh::run,
    ),
    pass(
        "annotate",
        "write pins and rules, open the rest",
        "before propagate, which spreads the annotations",
        annotate::run,
    ),
    Pass {
        name: "shard",
        does: "with --shard auto: decide every type by its cost",
        why_here: "after annotate: annotations are constraints",
        verify: verify::verify,
        run: Run::Watched(shard::run),
    },
    pass(
        "propagate",
        "propagate shardings along the rules",
        "needs the annotations; decides every type",
        propagate::run,
    ),
    pass(
        "decompose",
        "replace composite ops, and ops whose `!` dim is sharded, by graphs of simpler ops",
        "after propagate, which decides the sharded dims",
        decompose::run,
    ),
    pass(
        "reshard",
        "insert a reshard where an op needs another sharding",
        "after decompose, which adds the last statements",
        reshard::run,
    )
    .with_legal_operands(),
    pass(
        "collectives",
        "replace each reshard by its cheapest collectives; combine gradients into buckets",
        "after reshard, which marks them; all shardings are known",
        collectives::run,
    )
    .with_legal_operands(),
    pass(
        "ragged",
        "let the exchanges of dropless experts move only the rows that tokens fill",
        "last: a property of the collectives",
        ragged::run,
    )
    .with_legal_operands(),
];

/// Callback that receives each pass's name and the model after that pass.
pub type Observer<'a> = dyn FnMut(&'static str, &Model) + 'a;

/// Runs the passes up to and including `stop_after`. `platform` supplies the cost of reshards.
///
/// # Errors
/// The options do not fit the model, or a pass has an internal error.
pub fn plan(
    mut model: Model,
    options: &PlanOptions,
    platform: &Platform<'_>,
    stop_after: Option<&str>,
    observer: &mut Observer<'_>,
) -> Result<Model, PlanError> {
    for pass in PASSES {
        pass.run(&mut model, options, platform, &mut |_| {})?;
        observer(pass.name, &model);
        if stop_after == Some(pass.name) {
            break;
        }
    }
    Ok(model)
}

/// Runs the pass `collectives` over a model that all earlier passes have planned. `ways` caches reshard paths of other models on
/// the same platform.
///
/// # Errors
/// Same as [`plan`].
pub fn finish(
    mut model: Model,
    options: &PlanOptions,
    platform: &Platform<'_>,
    ways: &ReshardCache,
) -> Result<Model, PlanError> {
    collectives::run_by(ways, &mut model, options, platform)?;
    renumber_all(&mut model);
    Ok(model)
}

fn renumber_all(model: &mut Model) {
    model.blocks.values_mut().chain(model.step.as_mut().map(|step| &mut step.graph)).for_each(renumber);
}
