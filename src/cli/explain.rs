//! `meshwright --explain MW0123`: an entry of the catalogue of codes.

use crate::error::Error;
use ir::catalogue::{CATALOGUE, Code};
use ir::diag::nearest;

/// The explanation of a code.
pub(super) fn run(name: &str) -> Result<String, Error> {
    if let Some(code) = Code::from_text(name) {
        return Ok(code.entry().to_string());
    }
    let codes: Vec<String> = CATALOGUE.iter().map(|entry| entry.code.to_string()).collect();
    let help = match nearest(name, codes.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => "codes look like MW0209".to_string(),
    };
    Err(Error::input(Code::UnknownCode, format!("there is no code `{name}`")).help(help))
}
