//! Pipeline scheduling: stages, the order of actions on each rank, and the times that follow.
//!
//! The crate is above `ir`, `planner/cost` and `planner/solver`. `scheduler/codegen` lowers what it orders, `scheduler/view` draws
//! it, and `planner/compiler` joins it with the planner, which it does not know.
//!
//! The crate takes the costs of a planned model and returns a [`Staged`](ir::staged::Staged) model and a
//! [`Schedule`](ir::schedule::Schedule). The module [`schedules`] has the published schedules, [`optimal`] a search for the
//! best order. The module [`simulate`](mod@simulate) times an order, [`check`](mod@check) reports its violations. Start reading at
//! [`schedules`] and [`costs`].
//!
//! Stages are partitioned exactly, by dynamic programming. A schedule is a pure function from costs, a number of ranks and
//! of micro-batches to an order; it knows no model and no tensor. Schedules on a V are made of building blocks (`block`).
//! The simulator and the checker share no code.
//!
//! `predict` partitions, schedules and simulates the costs of a planned model, without a program. It serves estimates,
//! and the costs of stages count the same groups of statements as programs have (`section_seconds`).
//!
//! ```
//! use meshwright_scheduler::check::check_pipeline;
//! use meshwright_scheduler::costs::StageCosts;
//! use meshwright_scheduler::schedules::find;
//! use meshwright_scheduler::simulate::simulate;
//!
//! // 1F1B on four ranks with eight micro-batches: F takes 1 s, I and W 1 s each, a message no time.
//! let kind = find("1f1b")?;
//! let pipeline = kind.pipeline(4, None, 8)?;
//! let costs = StageCosts::uniform(4, 1.0, 1.0, 1.0, 0.0);
//! let schedule = kind.make(&costs, &pipeline)?;
//! assert!(check_pipeline(&schedule, &costs, &pipeline).is_empty());
//! let timeline = simulate(&schedule, &costs)?;
//! assert_eq!((timeline.makespan, timeline.peak_memory[0]), (33.0, 4.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod actions;
mod block;
pub mod bound;
#[cfg(test)]
mod brute_force;
pub mod check;
mod codes;
pub mod costs;
pub mod decimal;
pub mod limits;
mod list;
mod model_costs;
pub mod optimal;
pub mod partition;
pub mod placement;
pub mod predict;
pub mod problem;
pub mod schedules;
mod section_seconds;
pub mod simulate;

pub use model_costs::model_costs;
