//! Error codes of this crate: one catalogue entry per code, with its help.

use crate::CodegenError;
use ir::catalogue::Code;
use ir::diag::Coded;

impl Coded for CodegenError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            CodegenError::NotDifferentiated | CodegenError::NotPlanned { .. } => Code::NotPlanned,
            CodegenError::Stages | CodegenError::Copies { .. } => Code::BadStages,
            CodegenError::Item { .. } | CodegenError::Early { .. } | CodegenError::MissingMessage { .. } => {
                Code::OrderViolated
            }
            CodegenError::Boundary { .. }
            | CodegenError::Unused { .. }
            | CodegenError::UpdatedTwice { .. }
            | CodegenError::Circular { .. }
            | CodegenError::Scalar { .. } => Code::NoProgram,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            CodegenError::NotDifferentiated | CodegenError::NotPlanned { .. } => "compile the model from level 1",
            CodegenError::Copies { .. } => "take more micro-batches, or a schedule of one chain",
            CodegenError::Stages => "partition the model again: leave out the `staged` item, or correct it",
            CodegenError::Item { .. } | CodegenError::Early { .. } | CodegenError::MissingMessage { .. } => {
                "correct the rows, or leave the `schedule` item out"
            }
            CodegenError::Unused { .. } => "make its calls depend on the loss, or take them out",
            CodegenError::UpdatedTwice { .. } => "update a parameter in one block only",
            CodegenError::Scalar { .. } => "the run gives %lr, %step and %seed; all else comes from the step graph",
            CodegenError::Boundary { .. } | CodegenError::Circular { .. } => {
                "correct the sections of the block, or compile the model from level 1"
            }
        };
        Some(help.to_string())
    }
}
