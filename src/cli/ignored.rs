//! Notes about a model on standard error: ignored keys of its `config.json`, or an import that was not compared.

use crate::error::Error;
use crate::exported::compare_small;
use compiler::model_source::ModelSource;
use std::io::Write;
use std::path::Path;
use support::one_line::printable;
use support::shell::quoted;

/// Says which keys of a model's file are ignored, if any, and compares a small exported model with its recorded graph. A model
/// that does not open is refused elsewhere.
///
/// # Errors
/// An exported model computes other logits than its graph.
pub(super) fn say_ignored(model: &str) -> Result<(), Error> {
    let note = match ModelSource::open(model) {
        Ok(ModelSource::Config { from, unknown, .. }) if !unknown.is_empty() => {
            format!("{from}: keys that are ignored: {}", unknown.join(", "))
        }
        Ok(ModelSource::Exported { from, .. }) if compare_small(Path::new(&from))?.is_none() => {
            format!(
                "{from}: the import is not compared with its graph; meshwright models --check {} does",
                quoted(&from)
            )
        }
        _ => return Ok(()),
    };
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(std::io::stderr().lock(), "note: {}", printable(&note));
    Ok(())
}
