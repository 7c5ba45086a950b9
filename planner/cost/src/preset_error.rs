//! Errors of clusters and stacks.

use ir::catalogue::Code;
use ir::diag::{Coded, nearest};
use std::fmt;

/// Error of a cluster or a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PresetError {
    code: Code,
    message: String,
    help: Option<String>,
}

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PresetError {}

impl Coded for PresetError {
    fn code(&self) -> Option<Code> {
        Some(self.code)
    }

    fn help(&self) -> Option<String> {
        self.help.clone()
    }
}

impl PresetError {
    pub(crate) fn unknown(code: Code, what: &str, name: &str, known: &[&str]) -> PresetError {
        let help = match nearest(name, known.iter().copied()) {
            Some(near) => {
                format!("did you mean `{near}`? meshwright {what}s lists the presets; a file is named by its path")
            }
            None => format!("the presets are {}; a file is named by its path", known.join(", ")),
        };
        PresetError { code, message: format!("there is no {what} `{name}`"), help: Some(help) }
    }

    pub(crate) fn wrong(code: Code, message: String) -> PresetError {
        PresetError { code, message, help: None }
    }

    /// The same with the file that has the error.
    pub(crate) fn within(self, place: &str) -> PresetError {
        PresetError { message: format!("{place}: {}", self.message), ..self }
    }
}

/// Error of the TOML parser, with its line and key.
pub(crate) fn toml_error(code: Code, why: &toml::de::Error) -> PresetError {
    PresetError::wrong(code, why.to_string().trim_end().to_string())
}

pub(crate) fn none_or<T>(complaints: Vec<String>, value: T, code: Code) -> Result<T, PresetError> {
    if complaints.is_empty() { Ok(value) } else { Err(PresetError::wrong(code, complaints.join("\n"))) }
}

pub(crate) fn out_of_range(key: &str, value: f64, low: f64, high: f64, unit: &str) -> Option<String> {
    let is_in = (low..=high).contains(&value);
    (!is_in).then(|| format!("`{key}` is {value}, expected {unit}: from {} to {}", short(low), short(high)))
}

/// A figure without many zeros.
fn short(figure: f64) -> String {
    if figure < 1e4 { figure.to_string() } else { format!("{figure:e}") }
}
