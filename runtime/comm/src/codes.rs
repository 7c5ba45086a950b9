//! Error codes of this crate: one catalogue entry each, with the fix.

use crate::RankFailure;
use ir::catalogue::Code;
use ir::diag::Coded;

impl Coded for RankFailure {
    fn code(&self) -> Option<Code> {
        Some(Code::RankFailed)
    }

    fn help(&self) -> Option<String> {
        Some("start the run again unchanged".to_string())
    }
}
