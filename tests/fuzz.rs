//! Fuzzers: `cargo test --release --test fuzz NAME -- --nocapture` runs one of them.
//!
//! - `texts`: programs of every level, spoiled, through the library.
//! - `inputs`: every kind of file that a subcommand reads, spoiled, through the built binary.
//! - `readers`: files of other programs, spoiled: weights, tokenizers, tokens, configurations of frameworks, runs.
//! - `ranks`: two processes with random flags, the same or others.
//! - `strangers`: two processes that meet beside somebody who says random things.
//! - `names`: models, clusters and files with hostile names, through everything that is written.
//! - `flags`: random flags of every subcommand.
//! - `faults`: training that is killed, interrupted, or whose reads and writes fail.
//! - `meshes`: models of many kinds on random configurations, with every pair of two keys' values, against one device.
//!
//! A case is its number: `MESHWRIGHT_FIRST` and `MESHWRIGHT_CASES` choose cases, `MESHWRIGHT_SECONDS` runs as many as there is
//! time for. A promise that a case breaks (no panic, no internal fault, no hang, at most 2 GiB, a code in every message) fails
//! the test, which names the case and keeps its files.

#[path = "fuzz/cases.rs"]
mod cases;
#[path = "fuzz/faults.rs"]
mod faults;
#[path = "fuzz/flags.rs"]
mod flags;
#[path = "fuzz/inputs.rs"]
mod inputs;
#[path = "fuzz/mesh_models.rs"]
mod mesh_models;
#[path = "fuzz/mesh_values.rs"]
mod mesh_values;
#[path = "fuzz/meshes.rs"]
mod meshes;
#[path = "fuzz/models.rs"]
mod models;
#[path = "fuzz/names.rs"]
mod names;
#[path = "fuzz/process.rs"]
mod process;
#[path = "equal/random.rs"]
mod random;
#[path = "fuzz/ranks.rs"]
mod ranks;
#[path = "fuzz/readers.rs"]
mod readers;
#[path = "fuzz/seeds.rs"]
mod seeds;
#[path = "fuzz/spoil.rs"]
mod spoil;
#[path = "fuzz/strangers.rs"]
mod strangers;
#[path = "fuzz/texts.rs"]
mod texts;
