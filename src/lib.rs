//! Meshwright compiles the definition of a model into a program for many devices, and runs it.
//!
//! [`pipeline::compile`] tells the whole story: a model goes in, a program for every rank comes out. [`train::train`] runs
//! it on text. The command line ([`cli`]) is a thin shell over these.

pub mod accuracy;
mod beyond;
pub mod calibrate;
pub mod cli;
pub mod compiling;
pub mod deadline;
pub mod debug;
pub mod error;
pub mod estimate;
pub mod explain;
pub mod files;
pub mod layout;
pub mod machine_source;
pub mod model_source;
mod number;
pub mod pipeline;
pub mod plan;
pub mod predicting;
pub mod reshard;
pub mod train;
mod within;
