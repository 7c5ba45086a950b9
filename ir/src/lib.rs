//! The intermediate representation: four levels, four types, one text form. It makes no planning decisions.
//!
//! The crate is the bottom layer of Meshwright, next to `kernels`: it imports no other crate of the workspace, and all other
//! crates work on its types.
//!
//! | level | type | content |
//! |---|---|---|
//! | 1 | [`graph::Model`] | the computation, and after planning the sharding of each tensor |
//! | 2 | [`staged::Staged`] | the pipeline stages, with the costs of each F, I and W |
//! | 3 | [`schedule::Schedule`] | the schedule: a row of actions per pipeline rank |
//! | 4 | [`program::Program`] | the instruction stream of each class of ranks |
//!
//! **Level 1** is straight-line SSA of calls of blocks. A block's value has one logical meaning, the same on every mesh; a
//! [`types::Type`] adds the mesh axes of each dim (`b{dp}`), the axes that the value is partial over (`+{tp}`) and the
//! flat-shard axes (`/{dp}`). A reshard is an explicit statement ([`ops::Collective`]), so the text shows all collectives
//! of a step. The [`rule`] of an op states the shardings that it accepts. Beside F a differentiated block has the sections I
//! (gradient of inputs), W (gradient of parameters) and U (once a step).
//!
//! **Level 2** partitions the list of calls into stages. **Level 3** is a row of actions per rank: `0F0 0F1 0B0 ..`.
//! **Level 4** has only kernels and transfers: a section becomes a body, and the row of a rank calls bodies and sends values
//! between stages.
//!
//! Every level prints and parses back byte for byte ([`text`]), and has a checker that shares no code with its producer
//! ([`verify`]). Every error in a text has a code in the [`catalogue`]. The meaning of a model is the result that the
//! reference evaluator of the runtime computes from it; every compiled program computes the same values.
//!
//! ```
//! use meshwright_ir::models::{Batch, preset};
//! use meshwright_ir::text::{File, parse, print};
//! use meshwright_ir::types::DType;
//! use meshwright_ir::verify::verify;
//!
//! let config = &preset("tiny-llama").unwrap().config;
//! let model = config.build(&Batch { batch: 2, seq: 16, dtype: DType::F32 })?;
//! verify(&model)?;
//! let text = print(&File::from(model));
//! assert!(text.contains("block @layer("));
//! assert_eq!(print(&parse(&text)?), text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`graph::Model`], [`ops::Op`] and [`types::Type`] are the types to begin with; [`options::ParallelConfig`] is what a user asks
//! for.

pub mod arena;
pub mod catalogue;
pub mod config_key;
pub mod costs;
pub mod diag;
pub mod dim_role;
pub mod experts;
pub mod expr;
pub mod fused;
pub mod graph;
pub mod heads;
pub mod ids;
pub mod limits;
pub mod mesh;
pub mod models;
pub mod ops;
pub mod optimizer;
pub mod options;
pub mod program;
pub mod rule;
pub mod saved;
pub mod schedule;
pub mod staged;
pub mod text;
pub mod types;
pub mod verify;
pub mod zero_groups;

pub use cranelift_entity as entity;
