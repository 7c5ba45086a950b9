//! When: stages, schedules, per-rank programs.
