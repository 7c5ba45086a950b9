//! Meshwright compiles the definition of a model into a program for many devices, and runs it.
//!
//! [`pipeline::compile`] is the whole compiler: it takes a model and returns a program for every rank. [`train::train`] runs
//! the program on text. The command line ([`cli`]) is a thin layer over these two functions.

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
