//! Plans and predictions, which nothing has to run: configurations, seconds, bytes, collectives.

mod accuracy;
mod advice;
mod collectives;
mod dim_roles;
mod estimate;
mod floats;
mod headroom;
#[path = "../support/lanes.rs"]
mod lanes;
mod memory;
mod oracles;
mod plan;
mod plan_files;
mod predict;
#[path = "../support/sample.rs"]
mod sample;
mod states;
