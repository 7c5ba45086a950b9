//! Compiled programs: they compute what the reference and one device compute, checkers find what is broken, and text is a fixed point.

mod configurations;
mod equal;
mod gathered;
#[cfg(target_os = "linux")]
mod groups;
mod levels;
#[path = "../support/meshes/mod.rs"]
mod meshes;
mod mutations;
mod offload;
mod offload_optimizer;
mod on_gpu;
#[cfg(target_os = "linux")]
#[path = "../../kernels/tests/stand_in/orders.rs"]
mod orders;
mod passes;
mod poison;
#[cfg(target_os = "linux")]
#[path = "../../kernels/tests/stand_in/process.rs"]
mod process;
#[path = "../support/random.rs"]
mod random;
mod reshard;
#[path = "../support/rows.rs"]
mod rows;
#[path = "../support/sample.rs"]
mod sample;
#[path = "../support/seeds.rs"]
mod seeds;
#[cfg(target_os = "linux")]
#[path = "../../kernels/tests/stand_in/build.rs"]
mod stand_in;
mod sweep;
