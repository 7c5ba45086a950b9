//! The languages of Meshwright: four levels, four types, one text form. Decides nothing.
//!
//! | level | type | says |
//! |---|---|---|
//! | 1 | [`graph::Model`] | what is computed, and after planning where each tensor lives |
//! | 2 | [`staged::Staged`] | in which parts, with the costs of each F, I and W |
//! | 3 | [`schedule::Schedule`] | when: a row of actions per pipeline rank |
//! | 4 | [`program::Program`] | for each class of ranks, what to do |
//!
//! **Level 1** is straight-line SSA of calls of blocks. A block's value has one logical meaning, the same on every mesh; a
//! [`types::Type`] says beside it which mesh axes shard which dim (`b{dp}`), what reduction is still pending (`+{tp}`) and
//! over which axes the elements are stored flat (`/{dp}`). A change of layout is a statement of its own
//! ([`ops::Collective`]), so the collectives of a step are read off the text. What an op needs of its operands' layouts
//! stands in its [`rule`]. [`mod@differentiate`] adds the sections I (gradient of inputs), W (gradient of parameters) and U
//! (once a step) to each block's F.
//!
//! **Level 2** cuts the list of calls into stages. **Level 3** is plain rows: `0F0 0F1 0B0 ..`. **Level 4** holds only
//! kernels and transfers: a section becomes a body, a rank's row calls bodies and moves values between stages.
//!
//! Every level prints and parses back byte for byte ([`text`]), and has a checker that shares no code with its producer
//! ([`verify`]). All that can be wrong with a text has a code in the [`catalogue`]. The meaning of a model is what the
//! reference evaluator of the runtime computes from it; every compiled program equals that.

pub mod arena;
pub mod catalogue;
pub mod costs;
pub mod diag;
pub mod differentiate;
pub mod evaluation;
pub mod experts;
pub mod expr;
pub mod goal;
pub mod graph;
pub mod ids;
pub mod keep;
pub mod limits;
pub mod mesh;
pub mod models;
pub mod ops;
pub mod optimizer;
pub mod program;
pub mod recompute;
pub mod renumber;
pub mod rule;
pub mod schedule;
pub mod slices;
pub mod staged;
pub mod text;
pub mod types;
pub mod verify;

pub use cranelift_entity as entity;
