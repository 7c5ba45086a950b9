//! Training: models of every kind on every mesh, the files that it reads, and the runs that it writes.

mod allocations;
mod as_alone;
mod balance;
mod dropless;
mod evaluation;
mod every_mesh;
mod examples;
mod experts;
mod generate;
#[cfg(target_os = "linux")]
mod gpu;
mod heads;
mod images;
#[path = "../support/lanes.rs"]
mod lanes;
mod lora;
#[path = "../support/meshes/mod.rs"]
mod meshes;
mod muon;
#[path = "../support/placed.rs"]
mod placed;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/rows.rs"]
mod rows;
#[path = "../support/sample.rs"]
mod sample;
mod schedules;
#[cfg(target_os = "linux")]
#[path = "../../kernels/tests/stand_in/build.rs"]
mod stand_in;
mod states;
mod tokenize;
mod tokens;
mod transformers;
mod weights;
mod zero_groups;
