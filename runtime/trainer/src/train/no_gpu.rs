//! Runs on GPUs, in a build that has none.

use super::prepare::Prepared;
use super::report::{Progress, TrainReport};
use crate::error::Error;
use ir::catalogue::Code;
use ir::types::DType;
use trace::Peak;

/// A GPU of this machine; there is none.
pub(super) enum Gpu {}

impl Gpu {
    /// Measures nothing.
    pub(super) fn peak(&self, _: DType) -> Result<Peak, String> {
        match *self {}
    }
}

/// Refuses GPUs.
pub(super) fn check() -> Result<(), Error> {
    Err(absent())
}

/// Refuses GPUs.
pub(super) fn run_shared(_: Prepared, _: usize, _: &mut dyn Progress) -> Result<TrainReport, Error> {
    Err(absent())
}

/// Refuses GPUs.
pub(super) fn run_joined(_: Prepared, _: usize, _: &mut dyn Progress) -> Result<TrainReport, Error> {
    Err(absent())
}

fn absent() -> Error {
    Error::input(Code::NoGpu, "this program was built without GPUs")
        .help("build with --features cuda, or take --backend cpu")
}
