//! `meshwright schema plan`: the form of a file, as a JSON schema.

use crate::error::Error;
use autotune::explain::plan_schema;
use clap::{Args, ValueEnum};

/// Print the JSON schema of a file written by meshwright
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright schema plan > plan.schema.json")]
pub(in crate::cli) struct Schema {
    /// Kind of file
    #[arg(value_enum)]
    kind: FileKind,
}

#[derive(Clone, Copy, ValueEnum)]
enum FileKind {
    /// `plan` and `estimate --format json`
    Plan,
}

impl Schema {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        match self.kind {
            FileKind::Plan => Ok(plan_schema()),
        }
    }
}
