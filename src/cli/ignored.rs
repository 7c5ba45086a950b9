//! Notes about a model on standard error: ignored keys of its `config.json`, or an import that was not compared.

use crate::error::Error;
use compiler::model_source::ModelSource;
use std::io::Write;
use support::one_line::printable;

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
        #[cfg(all(feature = "train", feature = "pt2"))]
        Ok(ModelSource::Exported { from, .. }) if is_uncompared(&from)? => {
            format!(
                "{from}: the import is not compared with its graph; meshwright models --check {} does",
                support::shell::quoted(&from)
            )
        }
        _ => return Ok(()),
    };
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(std::io::stderr().lock(), "note: {}", printable(&note));
    Ok(())
}

/// True if a model is too large to be compared with its recorded graph; a smaller one is.
///
/// # Errors
/// The import computes something else.
#[cfg(all(feature = "train", feature = "pt2"))]
fn is_uncompared(from: &str) -> Result<bool, Error> {
    Ok(crate::exported::compare_small(std::path::Path::new(from))?.is_none())
}
