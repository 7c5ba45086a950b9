//! When: stages, schedules, per-rank programs.

mod block;
pub mod check;
mod codes;
pub mod costs;
pub mod cut;
pub mod emit;
pub mod grid;
mod list;
pub mod memory;
pub mod placement;
pub mod predict;
pub mod problem;
pub mod report;
pub mod schedules;
pub mod simulate;
