//! Pipeline scheduling: stages, the order of actions on each rank, and the times that follow.
//!
//! The crate takes the costs of a planned model and returns a [`Staged`](ir::staged::Staged) model and a
//! [`Schedule`](ir::schedule::Schedule). The module [`schedules`] has the published schedules, [`optimal`] a search for the
//! best order. The module [`simulate`] times an order, [`check`] reports its violations. Start reading at [`schedules`] and
//! [`costs`].

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
pub mod simulate;

pub use model_costs::model_costs;
