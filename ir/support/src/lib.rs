//! Services that every layer may use. [`files`] reads files within a limit and writes them atomically; [`parallel`] maps over
//! all cores; [`query`] caches computations by their keys. [`units`] formats numbers with units, and [`table`] aligned columns.

pub mod files;
pub mod parallel;
pub mod query;
pub mod table;
pub mod units;
