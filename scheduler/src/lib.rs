//! When: stages, schedules, per-rank programs.

#[cfg(test)]
mod brute_force;
pub mod check;
mod codes;
pub mod costs;
pub mod cut;
pub mod emit;
pub mod grid;
pub mod limits;
pub mod memory;
pub mod placement;
pub mod predict;
pub mod problem;
pub mod report;
pub mod schedules;
pub mod simulate;
