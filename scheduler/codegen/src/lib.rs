//! Code generation: lowers a scheduled model (level 3) to a program for each class of ranks (level 4).
//!
//! [`lower`] takes a planned and differentiated model, its stages and a schedule. It gives a [`Program`](ir::program::Program):
//! the bodies of the blocks, and for each class of ranks the instruction stream that calls them and moves values between
//! stages. [`lower_forward`] does the same for an evaluation. [`buffers::assign_buffers`] then gives every tensor of the program
//! a fixed offset in the arena of its rank. Start reading at `lower/mod.rs`: the function `program` goes through the ranks, and
//! `lower/body.rs` makes the bodies. Begin at `buffers/mod.rs` for offsets.

pub mod buffers;
mod codes;
mod lower;

pub use lower::{CodegenError, lower, lower_forward};
