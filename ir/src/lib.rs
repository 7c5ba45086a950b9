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
//! of a step. The [`rule`] of an op states the shardings that it accepts. WithAttention F a differentiated block has the sections I
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
//! **Shardings.** Element type, size, sharding and pending reduction are one type, so that they are checked at one place.
//! An op accepts a partial operand only if it declares that operand linear. Once a section reduces a value, later sections
//! read the reduced value. The loss is a sum over valid tokens; its cotangent, one over the number of valid tokens in the
//! global batch, is fed. Losses are therefore never averaged twice. Axes need not divide a dim: blocks are nested ceilings,
//! the major axis first. Axes must divide dims that are marked `indivisible`, such as heads.
//!
//! **Rules are strings.** `*m h!, h! -> *m h!, *m` is read by people. Propagation, legality, local shapes and tests follow
//! from the same string, so that nothing about sharding is written twice. Passes know a dim by its role ([`dim_role`]),
//! never by its name.
//!
//! **Sections.** Schedules that delay W or split B need the parts of a backward apart, and the text then shows what crosses
//! between them. Programs split U into R, which reduces gradients, and the update. The clip factor needs the norm of all
//! gradients (N), which is the one barrier of a step.
//!
//! **Formats.** A type's format is that of its elements in memory, in messages and in files. Every op computes in f32 and
//! rounds each result once. Partial sums travel narrow, are added in f32 and are rounded once a hop. Nothing but the types
//! says so: no pass inserts casts. Below f32 the optimizer updates an f32 copy of a parameter (`master`) and casts it, so
//! that no update is lost.
//!
//! **Random numbers** are pure functions of a key and a logical index. Initial values have (seed, parameter name, index),
//! dropout has (seed, step, path, global sample, index), and the order of the data has (seed, epoch). No sharding changes
//! them. Sums over ranks run in rank order, so that all ranks and all runs get the same bits; meshes differ in rounding.
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
mod block;
pub mod catalogue;
pub mod costs;
pub mod diag;
pub mod dim_role;
pub mod expr;
pub mod fused;
pub mod graph;
pub mod ids;
pub mod limits;
pub mod mesh;
pub mod models;
pub mod ops;
pub mod optimizer;
mod parallel;
pub mod program;
pub mod rule;
pub mod saved;
pub mod schedule;
pub mod staged;
pub mod text;
pub mod types;
pub mod verify;

pub use cranelift_entity as entity;
pub use parallel::{config_key, experts, heads, options, zero_groups};
