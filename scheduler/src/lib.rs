//! Pipeline scheduling: partitions a model into stages, generates schedules, and lowers them to per-rank programs.

mod block;
#[cfg(test)]
mod brute_force;
pub mod check;
mod codes;
pub mod costs;
pub mod cut;
pub mod draw;
pub mod emit;
pub mod foreign;
pub mod grid;
pub mod limits;
mod list;
pub mod memory;
mod model_costs;
pub mod optimal;
pub mod placement;
pub mod predict;
pub mod problem;
pub mod report;
pub mod schedules;
pub mod simulate;

pub use model_costs::model_costs;
