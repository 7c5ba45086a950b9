//! Code generation: lowers a scheduled model (level 3) to a program for each class of ranks (level 4).
//!
//! The crate is above `scheduler`, and takes any order that its checker accepts. `planner/compiler` calls it as the last two
//! passes.
//!
//! [`lower`] takes a planned and differentiated model, its stages and a schedule. It gives a [`Program`](ir::program::Program):
//! the bodies of the blocks, and for each class of ranks the instruction stream that calls them and moves values between
//! stages. [`lower_forward`] does the same for an evaluation. [`fuse`] groups statements of bodies.
//! [`buffers::assign_buffers`] then gives every tensor of the program a fixed offset in the arena of its rank.
//!
//! Bodies do not grow with depth or micro-batches, and instruction streams do not grow with dp and tp. A collective starts
//! when its operands are ready and is waited for before its first use; a list scheduler puts independent statements between
//! the two (`order::overlap`). B is one body, so that W hides the all-reduces of I. R of an instance starts after its last
//! backward and runs concurrently with the backwards that are left; N waits for all R.
//!
//! A receive starts one action early. A send is waited for at the next send to the same rank, once its receive has started
//! in an order of all actions (`lower::p2p`). Ranks of any schedule therefore never wait for each other in a circle.
//!
//! ```
//! use cost::PROGRAM;
//! use ir::models::{Batch, preset};
//! use ir::optimizer::Optimizer;
//! use ir::types::DType;
//! use meshwright_codegen::buffers::assign_buffers;
//! use meshwright_codegen::lower;
//! use scheduler::costs::StageCosts;
//! use scheduler::model_costs;
//! use scheduler::partition::partition;
//! use scheduler::placement::{Pipeline, Placement};
//! use transforms::differentiate::differentiate;
//!
//! // On one device no sharding is to be planned. Without clipping no op is composite.
//! let config = &preset("tiny-llama").unwrap().config;
//! let model = config.build(&Batch { batch: 2, seq: 16, dtype: DType::F32 })?;
//! let model = differentiate(model, &Optimizer { clip: None, ..Optimizer::default() })?;
//! let pipeline = Pipeline::new(Placement::Chain, 1, 2);
//! let staged = partition(&model, &pipeline, &model_costs(&model, &PROGRAM, 2, true))?;
//! let costs = StageCosts::uniform(1, 1.0, 1.0, 1.0, 0.0);
//! let schedule = scheduler::schedules::find("1f1b")?.make(&costs, &pipeline)?;
//! let mut program = lower(&model, &staged, &schedule, 2, &PROGRAM)?;
//! assign_buffers(&model, &mut program, None);
//! assert!(program.has_places());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start reading at `lower/mod.rs`: the function `program` goes through the ranks, and `lower/body.rs` makes the bodies. Begin at
//! `buffers/mod.rs` for offsets.

pub mod buffers;
mod codes;
mod fuse;
mod lower;
mod order;

pub use fuse::{fuse, neighbours, units_of};
pub use lower::{CodegenError, lower, lower_forward};
