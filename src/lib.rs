//! Meshwright compiles the definition of a model into a program for many devices, and runs it.
//!
//! [`pipeline::compile`] is the whole compiler: it takes a model and returns a program for every rank. [`train::train`] runs
//! the program on text. The command line ([`cli`]) is a thin layer over these two functions.

pub mod accuracy;
pub mod calibrate;
pub mod cli;
pub mod error;
pub mod predicting;
pub mod reshard;
pub mod train;

pub use {autotune, compiler, cost, estimator, ir, planner, runtime, scheduler, transforms};
