//! Error codes of this crate: one catalogue entry each, with the fix.

use crate::Error;
use ir::catalogue::Code;
use ir::diag::Coded;

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        match self {
            Error::Missing { .. } => Some(Code::CheckpointMissing),
            Error::Damaged { .. } => Some(Code::CheckpointDamaged),
            Error::Version { .. } => Some(Code::CheckpointVersion),
            Error::Mismatch { .. } => Some(Code::CheckpointMismatch),
            Error::Unwritable { .. } | Error::Unremoved { .. } => Some(Code::CheckpointUnwritable),
            Error::Executor(error) => error.code(),
        }
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            Error::Missing { .. } => "give a checkpoint, or the folder of a run that has one",
            Error::Damaged { .. } => "take an older checkpoint",
            Error::Version { .. } => "resume with the version that wrote it",
            Error::Mismatch { .. } => "resume with the options of the run, or start another run in another folder",
            Error::Unwritable { .. } => "free disk space; older checkpoints are unchanged",
            Error::Unremoved { .. } => "check the folder's permissions, and remove them yourself",
            Error::Executor(error) => return error.help(),
        };
        Some(help.to_string())
    }
}
