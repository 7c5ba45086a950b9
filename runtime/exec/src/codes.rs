//! Error codes of this crate: one catalogue entry each, with the fix.

use crate::Error;
use ir::catalogue::Code;
use ir::diag::Coded;

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
