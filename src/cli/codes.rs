//! `meshwright --explain MW0123`: an entry of the catalogue of codes, or the list of all.

use super::TableFormat;
use super::table::table;
use crate::error::Error;
use ir::catalogue::{CATALOGUE, Code, Entry};
use ir::diag::nearest;
use serde_json::{Value, json};

/// What `--explain` without a code means.
pub(super) const LIST: &str = "list";

/// The explanation of a code, or all codes with their titles.
pub(super) fn run(name: &str, format: TableFormat) -> Result<String, Error> {
    match (Code::from_text(name), format) {
        (Some(code), TableFormat::Table) => Ok(code.entry().to_string()),
        (Some(code), TableFormat::Json) => super::json(&row(code.entry())),
        (None, TableFormat::Table) if name == LIST => {
            let rows: Vec<_> = CATALOGUE.iter().map(|entry| [entry.code.to_string(), entry.title.into()]).collect();
            Ok(table(["CODE", "TITLE"], &rows))
        }
        (None, TableFormat::Json) if name == LIST => super::json(&CATALOGUE.iter().map(row).collect::<Vec<_>>()),
        (None, _) => Err(unknown(name)),
    }
}

fn row(entry: &Entry) -> Value {
    json!({"code": entry.code.to_string(), "title": entry.title, "explanation": entry.explanation, "arises": entry.arises(),
           "example": entry.example, "cure": entry.cure})
}

fn unknown(name: &str) -> Error {
    let codes: Vec<String> = CATALOGUE.iter().map(|entry| entry.code.to_string()).collect();
    let near = nearest(&name.to_uppercase(), codes.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
    Error::input(Code::UnknownCode, format!("there is no code `{name}`"))
        .help(format!("{near}meshwright --explain lists all codes"))
}
