//! Transforms of models at level 1: each takes a model or a block and returns a model of other text.
//!
//! The crate is the layer above `ir`, which describes models and rewrites none. It decides nothing: no sharding, no order, no
//! cost. Planner, cost model and compiler use it.
//!
//! - [`mod@differentiate`] adds to each block's F the sections I (gradient of inputs), W (gradient of parameters) and U
//!   (once a step).
//! - [`mod@adapt`] freezes parameters and adds low-rank adapters.
//! - [`mod@recognise`] puts ops in the place of primitives that spell them.
//! - [`mod@simplify`] takes moves, constants and repeated terms out of differentiated sections.
//! - [`mod@quantise`] gives products with parameters 8-bit operands.
//! - [`recompute`] makes the backward recompute values of F instead of saving them.
//! - [`slices`] splits sequences into the slices that a schedule runs one after the other.
//! - [`mod@evaluation`] replaces ops that only training has.
//! - [`mod@rewrite`] replaces ops by graphs of other ops, which a caller builds.
//! - [`mod@offload`] marks the calls whose saved activations are offloaded.
//! - [`mod@renumber`] numbers the values of a block in order of definition, as if its text were read back.
//!
//! Differentiation comes before placement. On logical tensors a gradient is a graph like any other, and backward
//! collectives follow from the same rules as forward ones.
//!
//! ```
//! use ir::graph::SectionKind;
//! use ir::models::{Batch, preset};
//! use ir::optimizer::Optimizer;
//! use ir::types::DType;
//! use meshwright_transforms::differentiate::differentiate;
//! use meshwright_transforms::slices::slice;
//!
//! let config = &preset("tiny-llama").unwrap().config;
//! let model = config.build(&Batch { batch: 2, seq: 16, dtype: DType::F32 })?;
//! assert_eq!(slice(&model, 4)?.slices(), 4);
//!
//! let trained = differentiate(model, &Optimizer::default())?;
//! let layer = trained.blocks.values().find(|block| block.name == "layer").unwrap();
//! let made = [SectionKind::F, SectionKind::I, SectionKind::W, SectionKind::U];
//! assert!(made.iter().all(|&kind| !layer[kind].stmts.is_empty()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod adapt;
pub mod build_error;
pub mod differentiate;
mod egraph;
pub mod evaluation;
pub mod offload;
pub mod quantise;
pub mod recognise;
pub mod recompute;
pub mod renumber;
pub mod rewrite;
pub mod simplify;
pub mod slices;
