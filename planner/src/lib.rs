//! Sharding planner: which mesh axes shard which dims, and which collectives follow.
//!
//! The crate is above `ir`, `ir/transforms`, `planner/cost` and `planner/solver`; `planner/compiler` joins it with the scheduler,
//! which it does not know.
//!
//! The passes of [`PASSES`] run in order over a differentiated model at level 1 and return a model at level 1. After
//! the last pass every sharding is closed. Every statement obeys its op's rule, and each reshard is a sequence of
//! collectives. [`plan`] runs them, [`shard`] chooses shardings by cost, and [`reshard`] finds the cheapest collectives between two
//! shardings.
//!
//! A rule is the only source of the shardings that an op allows. No pass names an op: passes read its definition
//! (`ir::ops::OpDef`). Depth costs nothing, since a distinct block is planned once. The same text in gives the same text
//! out.
//!
//! Three choices serve memory and traffic:
//!
//! - Gathered inputs are not saved. Under sequence parallelism W gathers its input a second time. A saved copy would cost
//!   most of the memory that sequence parallelism saves (Korthikanti et al. 2022, section 4.2.2).
//! - Partial sums are passed on. Query, key and value projections give partial input gradients, whose sum is reduced once.
//! - Collectives of U on equal axes are joined into buckets up to a size, since each collective costs a latency.
//!
//! Flat shards (`/{dp}`) split the local elements into equal contiguous ranges, on which ops that treat all elements alike
//! run unchanged. Under ZeRO-1 U reduce-scatters gradients, updates a range, and gathers the parameters. Under ZeRO-2 every
//! W reduce-scatters its sum. Under ZeRO-3 each reader gathers the parameters, I too, since no section saves gathered
//! parameters.
//!
//! ```
//! use cost::PROGRAM;
//! use ir::models::{Batch, preset};
//! use ir::optimizer::Optimizer;
//! use ir::options::{ParallelConfig, PlanOptions};
//! use ir::text::{File, print};
//! use ir::types::DType;
//! use meshwright_planner::plan;
//! use transforms::differentiate::differentiate;
//!
//! let config = &preset("tiny-llama").unwrap().config;
//! let model = config.build(&Batch { batch: 4, seq: 16, dtype: DType::F32 })?;
//! let model = differentiate(model, &Optimizer::default())?;
//! let options = PlanOptions::of(ParallelConfig { dp: 2, tp: 2, ..Default::default() });
//! let planned = plan(model, &options, &PROGRAM, None, &mut |pass, _| println!("{pass}"))?;
//! assert!(planned.is_fully_specified());
//! assert!(print(&File::from(planned)).contains("all_reduce("));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assign;
mod choose;
mod fault;
mod gather;
mod heads;
mod pass;
mod passes;
mod pending;
mod ports;
mod recover;
pub mod reshard;
mod ring;
mod sections;
mod spread;
mod states;
mod sums;

pub use gather::gather_once;
pub use heads::{check_sharing, gathers_keys};
pub use pass::{Observer, PASSES, Pass, PlanError, finish, plan};
pub use passes::build_mesh::mesh;
pub use passes::collectives::{marked, reshard_paths};
pub use passes::decompose::decompose;
pub use passes::shard;
pub use ring::{is_ring, ring};
pub use states::least_block;
