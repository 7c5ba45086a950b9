//! Error codes of this crate: one catalogue entry each, with the fix.

use crate::Error;
use ir::catalogue::Code;
use ir::diag::Coded;

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        match self {
            Error::Program(_) => None,
            _ => Some(Code::NoGpu),
        }
    }

    fn help(&self) -> Option<String> {
        let help = "install the NVIDIA driver, and NVRTC and cuBLASLt of the CUDA 13 toolkit; LD_LIBRARY_PATH adds folders to search";
        self.code().map(|_| help.to_string())
    }
}
