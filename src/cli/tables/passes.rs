//! `meshwright passes`: the table of passes.

use crate::cli::TableFormat;
use crate::error::Error;
use clap::Args;
use compiler::pipeline;
use serde_json::json;
use support::table::table;

/// List the passes from a model to its program, in order
#[derive(Args)]
pub(in crate::cli) struct Passes {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Passes {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let passes = pipeline::passes();
        match self.format {
            TableFormat::Table => {
                let rows: Vec<_> = passes.iter().map(|p| [p.name, p.does, p.why_here].map(str::to_string)).collect();
                Ok(table(["PASS", "DESCRIPTION", "WHY HERE"], &rows))
            }
            TableFormat::Json => {
                let rows = passes.iter().map(|p| json!({"name": p.name, "does": p.does, "why_here": p.why_here}));
                crate::cli::json(&rows.collect::<Vec<_>>())
            }
        }
    }
}
