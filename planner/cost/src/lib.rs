//! What a computation takes on a cluster: seconds of an op, a section and a collective. Decides nothing.

mod cluster;
mod flops;
mod price;
mod wire;

pub use cluster::{CPU, Cluster, Device, Link};
pub use flops::model_flops;
pub use price::{local_type, seconds_of, seconds_of_change, seconds_of_section, seconds_of_stmt};
pub use wire::{Traffic, seconds_of_message, seconds_of_sum};
