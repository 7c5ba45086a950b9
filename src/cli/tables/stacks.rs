//! `meshwright stacks`: the table of presets, and the file of one.

use crate::cli::TableFormat;
use crate::cli::toml_text;
use crate::error::Error;
use clap::Args;
use compiler::machine_source;
use cost::{STACKS, Stack};
use serde_json::json;
use support::table::table;

/// List the preset stacks, or print the file of one
///
/// A stack describes how well a framework uses a cluster. The first preset is the default; other stacks are TOML files of the
/// same form. A file may extend another, a preset or a path relative to its own folder (from = "fsdp-compile"); it then gives
/// only its name, its description, and what differs.
#[derive(Args)]
pub(in crate::cli) struct Stacks {
    /// Preset to print, or file to check and print with all its figures
    name: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Stacks {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        if let Some(name) = &self.name {
            let stack = machine_source::stack(name)?;
            let file = STACKS.iter().find(|preset| preset.name == *name);
            return match (self.format, file) {
                (TableFormat::Table, Some(preset)) => Ok(preset.text.to_string()),
                (TableFormat::Table, None) => toml_text::text("stacks", &stack),
                (TableFormat::Json, _) => crate::cli::json(&stack),
            };
        }
        let all = STACKS.iter().map(|preset| Stack::parse(preset.text)).collect::<Result<Vec<_>, _>>()?;
        match self.format {
            TableFormat::Table => {
                let rows: Vec<_> = all.into_iter().map(|stack| [stack.name, stack.about]).collect();
                Ok(table(["STACK", "DESCRIPTION"], &rows))
            }
            TableFormat::Json => {
                let rows = all.into_iter().map(|stack| json!({"name": stack.name, "about": stack.about}));
                crate::cli::json(&rows.collect::<Vec<_>>())
            }
        }
    }
}
