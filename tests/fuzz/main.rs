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

mod cases;
#[path = "../support/examples.rs"]
mod examples;
mod faults;
mod flags;
mod inputs;
mod mesh_models;
mod mesh_values;
mod meshes;
mod models;
mod names;
mod process;
#[path = "../support/random.rs"]
mod random;
mod ranks;
mod readers;
mod seeds;
mod spoil;
mod strangers;
mod texts;
