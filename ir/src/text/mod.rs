//! The text form of all levels: `parse` and `print`. Printed text is canonical: it is a fixed point of parse and print.
//!
//! Canonical order of items: mesh, dims, param, unit, model, blocks, step, staged, schedule, program. A sequence of axes that
//! equals a group prints as the group, the longest first. Dims have their names, floats their shortest form, and `=` is aligned
//! within a block. Comments are preserved; those in positions without an owner move to the head of the file.

mod cursor;
mod lex;
mod parse_arena;
mod parse_block;
mod parse_file;
mod parse_model;
mod parse_program;
mod parse_row;
mod parse_schedule;
mod parse_stmt;
mod parse_type;
mod print;
mod print_block;
mod print_file;
mod print_program;
mod retired;

pub use print::Printer;

use crate::diag::Diagnostics;
use crate::graph::Model;
use crate::program::Program;
use crate::schedule::Schedule;
use crate::staged::Staged;

/// The content of a file: level 1, and the levels derived from it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// Level 1; without calls if the file holds only blocks.
    pub model: Model,
    /// Level 2.
    pub staged: Option<Staged>,
    /// Level 3.
    pub schedule: Option<Schedule>,
    /// Level 4.
    pub program: Option<Program>,
}

impl From<Model> for File {
    fn from(model: Model) -> File {
        File { model, ..File::default() }
    }
}

/// Parses a file and reports all errors together.
///
/// # Errors
/// The text does not follow the grammar, or uses undefined names.
pub fn parse(source: &str) -> Result<File, Diagnostics> {
    parse_file::parse(source)
}

/// The canonical text of a file.
pub fn print(file: &File) -> String {
    print_file::print(file)
}
