//! Subcommands that run programs: training, generation, and what measures machines.

pub(super) mod auto;
pub(super) mod calibrate;
pub(super) mod export_weights;
pub(super) mod generate;
#[cfg(feature = "cuda")]
pub(super) mod gpu_check;
pub(super) mod launch;
pub(super) mod measuring;
#[cfg(feature = "cuda")]
pub(super) mod measuring_gpu;
pub(super) mod progress;
pub(super) mod signals;
#[cfg(feature = "tokenize")]
pub(super) mod token_watch;
#[cfg(feature = "tokenize")]
pub(super) mod tokenize;
pub(super) mod train;
