//! Transforms of models at level 1: each takes a model or a block and returns a model of other text. `ir` describes; this
//! crate rewrites. It decides nothing: no sharding, no order, no cost.
//!
//! - [`mod@differentiate`] adds to each block's F the sections I (gradient of inputs), W (gradient of parameters) and U
//!   (once a step).
//! - [`recompute`] makes the backward recompute values of F instead of saving them.
//! - [`slices`] splits sequences into the slices that a schedule runs one after the other.
//! - [`mod@evaluation`] replaces ops that only training has.
//! - [`mod@renumber`] numbers the values of a block in order of definition, as if its text were read back.

pub mod differentiate;
pub mod evaluation;
pub mod recompute;
pub mod renumber;
pub mod slices;
