//! Error codes of this crate: one catalogue entry each, with the fix.

use crate::backends::cuda;
use crate::checkpoint;
use crate::comm::RankFailure;
use crate::data::{DataError, Role};
use crate::exec::Error;
use ir::catalogue::Code;
use ir::diag::Coded;

impl Coded for DataError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            DataError::Missing { .. } | DataError::Unreadable { .. } | DataError::NotAFile { .. } => Code::DataMissing,
            DataError::EmptyFolder { .. } | DataError::NoText { .. } => Code::DataEmpty,
            DataError::TooLittle { .. } => Code::DataTooSmall,
            DataError::TooLarge { .. } => Code::TooLittleMemory,
            DataError::Damaged { .. } | DataError::CutShort { .. } => Code::TokensDamaged,
            DataError::OutOfRange { .. } | DataError::Vocabulary { .. } => Code::TokenOutOfRange,
            DataError::EmptySequence | DataError::Fraction { .. } => Code::BadOption,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            DataError::Missing { .. } => "check the path",
            DataError::Unreadable { .. } => "check its permissions, or move it out of the data folder",
            DataError::NotAFile { .. } => "name a text file or a folder of text files",
            DataError::EmptyFolder { .. } => "put text files in it",
            DataError::NoText { .. } => "give UTF-8 text",
            DataError::TooLarge { .. } => "name a part of it",
            DataError::TooLittle { role: Role::HeldOut, tokens: 0, .. } => {
                "add text; of token files without an index, end documents with --eos, or name others with --valid"
            }
            DataError::TooLittle { .. } => "add text, shorten the sequence or change the held-out fraction",
            DataError::CutShort { .. } => "copy the file again from where it is whole",
            DataError::Damaged { .. } => "write or copy the files again, or say what they are with --data-format",
            DataError::OutOfRange { .. } | DataError::Vocabulary { .. } => {
                "train the model whose tokenizer wrote the data"
            }
            DataError::EmptySequence => "ask for a sequence length of at least 1",
            DataError::Fraction { .. } => "0.1 holds out a tenth of the text",
        };
        Some(help.to_string())
    }
}

impl Coded for RankFailure {
    fn code(&self) -> Option<Code> {
        Some(Code::RankFailed)
    }

    fn help(&self) -> Option<String> {
        Some("start the run again unchanged".to_string())
    }
}

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        match self {
            Error::Load(_) => Some(Code::ProgramInvalid),
            Error::Resources(_) => Some(Code::TooLittleMemory),
            Error::Input(_) => Some(Code::InputMismatch),
            Error::RankFailure(failure) => failure.code(),
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Error::Load(_) => Some("compile the program again from its model".to_string()),
            Error::Resources(_) => Some(
                "use fewer devices, or raise the limits of the process (ulimit -v, ulimit -u, a cgroup)".to_string(),
            ),
            Error::Input(_) => Some("give what the program takes; the machine is as before".to_string()),
            Error::RankFailure(failure) => failure.help(),
        }
    }
}

impl Coded for checkpoint::Error {
    fn code(&self) -> Option<Code> {
        match self {
            checkpoint::Error::Missing { .. } => Some(Code::CheckpointMissing),
            checkpoint::Error::Damaged { .. } => Some(Code::CheckpointDamaged),
            checkpoint::Error::Version { .. } => Some(Code::CheckpointVersion),
            checkpoint::Error::Mismatch { .. } => Some(Code::CheckpointMismatch),
            checkpoint::Error::Unwritable { .. } | checkpoint::Error::Unremoved { .. } => {
                Some(Code::CheckpointUnwritable)
            }
            checkpoint::Error::Executor(error) => error.code(),
        }
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            checkpoint::Error::Missing { .. } => "give a checkpoint, or the folder of a run that has one",
            checkpoint::Error::Damaged { .. } => "take an older checkpoint",
            checkpoint::Error::Version { .. } => "resume with the version that wrote it",
            checkpoint::Error::Mismatch { .. } => {
                "resume with the options of the run, or start another run in another folder"
            }
            checkpoint::Error::Unwritable { .. } => "free disk space; older checkpoints are unchanged",
            checkpoint::Error::Unremoved { .. } => "check the folder's permissions, and remove them yourself",
            checkpoint::Error::Executor(error) => return error.help(),
        };
        Some(help.to_string())
    }
}

impl Coded for cuda::Error {
    fn code(&self) -> Option<Code> {
        match self {
            cuda::Error::Program(_) => None,
            _ => Some(Code::NoGpu),
        }
    }

    fn help(&self) -> Option<String> {
        let help = "install the NVIDIA driver, and NVRTC and cuBLASLt of the CUDA 13 toolkit; LD_LIBRARY_PATH adds folders to search";
        self.code().map(|_| help.to_string())
    }
}
