//! When: stages, schedules, per-rank programs.

pub mod check;
mod codes;
pub mod costs;
pub mod cut;
pub mod emit;
pub mod grid;
pub mod memory;
mod model_costs;
pub mod placement;
pub mod predict;
pub mod problem;
pub mod report;
pub mod schedules;
pub mod simulate;

pub use model_costs::model_costs;
