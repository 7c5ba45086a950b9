//! Reports of a compiled file or a prediction: collectives, groups, the simulated step, reshards, and exports.
//!
//! - [`predicting::predict`] simulates a step, [`collectives::collectives`] counts what ranks send.
//! - [`groups::groups`] shows the statements that run as one kernel.
//! - [`reshard::reshard`] gives the cheapest collectives between two shardings of a tensor.
//! - [`exporting::export`] writes a configuration for another framework.

pub mod collectives;
pub mod exporting;
pub mod groups;
pub mod predicting;
pub mod reshard;
