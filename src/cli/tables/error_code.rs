//! `meshwright error MW0123`: an entry of the error index, or the list of all codes.

use crate::cli::TableFormat;
use crate::error::Error;
use clap::Args;
use ir::catalogue::{CATALOGUE, Code, Entry};
use ir::diag::nearest;
use serde_json::{Value, json};
use support::table::table;

/// Explain an error code; without one, list all codes
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright error
  meshwright error MW0204")]
pub(in crate::cli) struct ErrorCode {
    /// A code, such as MW0204 [default: list all]
    code: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl ErrorCode {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let Some(name) = self.code else { return list(self.format) };
        let code = Code::from_text(&name).ok_or_else(|| unknown(&name))?;
        match self.format {
            TableFormat::Table => Ok(code.entry().to_string()),
            TableFormat::Json => crate::cli::json(&row(code.entry())),
        }
    }
}

/// All codes with their titles.
fn list(format: TableFormat) -> Result<String, Error> {
    match format {
        TableFormat::Table => {
            let rows: Vec<_> = CATALOGUE.iter().map(|entry| [entry.code.to_string(), entry.title.into()]).collect();
            Ok(table(["CODE", "TITLE"], &rows))
        }
        TableFormat::Json => crate::cli::json(&CATALOGUE.iter().map(row).collect::<Vec<_>>()),
    }
}

fn row(entry: &Entry) -> Value {
    json!({"code": entry.code.to_string(), "title": entry.title, "explanation": entry.explanation, "arises": entry.arises(),
           "example": entry.example, "help": entry.help})
}

fn unknown(name: &str) -> Error {
    let codes: Vec<String> = CATALOGUE.iter().map(|entry| entry.code.to_string()).collect();
    let near = nearest(&name.to_uppercase(), codes.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
    Error::input(Code::UnknownCode, format!("there is no code `{name}`"))
        .help(format!("{near}meshwright error lists all codes"))
}
