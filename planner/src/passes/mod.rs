//! Compiler passes, one per file.

pub(crate) mod annotate;
pub(crate) mod build_mesh;
pub(crate) mod collectives;
pub(crate) mod decompose;
pub(crate) mod propagate;
pub(crate) mod ragged;
pub(crate) mod recompute;
pub(crate) mod reshard;
pub mod shard;
