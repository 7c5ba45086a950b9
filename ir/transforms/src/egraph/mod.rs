//! Sections of blocks as e-graphs (Willsey et al. 2021): statements become nodes, rules add equal terms until none is new, and
//! the terms that leave the fewest statements become statements again.
//!
//! Limits count nodes and rounds, never time, so the result depends on the section alone.

pub(crate) mod construct;
pub(crate) mod decode;
pub(crate) mod encode;
#[cfg(test)]
pub(crate) mod evaluate;
pub(crate) mod extract;
pub(crate) mod facts;
pub(crate) mod language;
pub(crate) mod look;
pub(crate) mod rule;
pub(crate) mod rules;
pub(crate) mod saturate;
