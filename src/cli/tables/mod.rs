//! Subcommands that print what the program knows: tables, schemas, errors and its own help.

pub(super) mod cluster_figures;
pub(super) mod clusters;
pub(super) mod completions;
pub(super) mod error_code;
pub(super) mod keys;
pub(super) mod models;
pub(super) mod passes;
pub(super) mod schedules;
pub(super) mod schema;
pub(super) mod stacks;
