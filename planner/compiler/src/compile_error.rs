//! Error of a compilation.

use codegen::CodegenError;
use ir::catalogue::Code;
use ir::diag::{Coded, Diagnostics};
use ir::limits;
use ir::verify::program::Violation;
use scheduler::check;
use scheduler::partition::PartitionError;
use scheduler::predict::PredictError;
use scheduler::schedules::UnknownSchedule;
use transforms::differentiate::DifferentiateError;
use transforms::slices::SliceError;

/// Why a model did not compile.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompileError {
    /// The model itself is wrong.
    #[error(transparent)]
    Model(Diagnostics),
    /// Its sequences cannot be run in slices.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// It has no gradient.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The configuration does not fit it.
    #[error(transparent)]
    Plan(#[from] planner::PlanError),
    /// It cannot be cut into so many stages.
    #[error(transparent)]
    Cut(#[from] PartitionError),
    /// There is no schedule of the configuration's name.
    #[error(transparent)]
    UnknownSchedule(#[from] UnknownSchedule),
    /// The schedule cannot be made.
    #[error("{0}")]
    Schedule(String),
    /// The model runs other slices of its sequences than the schedule.
    #[error("the schedule splits sequences into {wanted} slices, the model into {has}")]
    Slices {
        /// Slices of the schedule.
        wanted: u32,
        /// Slices of the model.
        has: u32,
    },
    /// More actions than are scheduled.
    #[error("{runs} block instances x {microbatches} micro-batches are more than {most}", most = limits::ACTIONS)]
    TooManyActions {
        /// Runs of blocks of the model.
        runs: u64,
        /// Micro-batches per step.
        microbatches: u32,
    },
    /// The rows of the schedule that the file brings are wrong.
    #[error("invalid schedule: {}", lines(.0))]
    Rows(Vec<check::Violation>),
    /// No program can be made.
    #[error(transparent)]
    Emit(#[from] CodegenError),
    /// The program that the file brings is wrong.
    #[error("invalid program: {}", lines(.0))]
    Program(Vec<Violation>),
    /// The verifiers refuse what a pass has made: an internal error.
    #[error("pass `{pass}` made an invalid result: {found}")]
    Misplanned {
        /// The pass.
        pass: &'static str,
        /// Errors in the result.
        found: Diagnostics,
    },
    /// A checker refuses what a pass has made: an internal error.
    #[error("pass `{pass}` made an invalid result: {why}")]
    Fault {
        /// The pass.
        pass: &'static str,
        /// The checker's message.
        why: String,
    },
}

impl CompileError {
    /// The same complaint of a checker, about the result of a pass: an internal error.
    #[must_use]
    pub(crate) fn about_result_of(self, pass: &'static str) -> CompileError {
        match self {
            CompileError::Model(found) => CompileError::Misplanned { pass, found },
            CompileError::Rows(found) => CompileError::Fault { pass, why: lines(&found) },
            CompileError::Program(found) => CompileError::Fault { pass, why: lines(&found) },
            error => error,
        }
    }
}

impl From<PredictError> for CompileError {
    fn from(error: PredictError) -> CompileError {
        match error {
            PredictError::UnknownSchedule(unknown) => unknown.into(),
            PredictError::Partition(error) => error.into(),
            PredictError::Schedule(why) => CompileError::Schedule(why),
            PredictError::Simulate(error) => CompileError::Schedule(error.to_string()),
        }
    }
}

impl Coded for CompileError {
    fn code(&self) -> Option<Code> {
        match self {
            CompileError::Model(found) => found.code(),
            CompileError::Slice(error) => error.code(),
            CompileError::Differentiate(error) => error.code(),
            CompileError::Plan(error) => error.code(),
            CompileError::Cut(error) => error.code(),
            CompileError::UnknownSchedule(error) => error.code(),
            CompileError::Schedule(_) | CompileError::Slices { .. } => Some(Code::UnsuitedSchedule),
            CompileError::TooManyActions { .. } => Some(Code::TooManyActions),
            CompileError::Rows(found) => found.first().and_then(Coded::code),
            CompileError::Emit(error) => error.code(),
            CompileError::Program(_) => Some(Code::ProgramInvalid),
            CompileError::Misplanned { .. } | CompileError::Fault { .. } => None,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            CompileError::Model(found) => found.help(),
            CompileError::Slice(error) => error.help(),
            CompileError::Differentiate(error) => error.help(),
            CompileError::Plan(error) => error.help(),
            CompileError::Cut(error) => error.help(),
            CompileError::UnknownSchedule(error) => error.help(),
            CompileError::Schedule(_) => Some("meshwright schedules lists the constraints".to_string()),
            CompileError::Slices { has, .. } => Some(format!(
                "slicing precedes differentiation: give the undifferentiated model, or a schedule with {has} slices"
            )),
            CompileError::TooManyActions { .. } => Some("use larger micro-batches (--mbs)".to_string()),
            CompileError::Rows(found) => found.first().and_then(Coded::help),
            CompileError::Emit(error) => error.help(),
            CompileError::Program(_) => Some("correct the program, or omit it to regenerate it".to_string()),
            CompileError::Misplanned { .. } | CompileError::Fault { .. } => None,
        }
    }
}

fn lines(found: &[impl ToString]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
