//! Keys of a model's `config.json` that are ignored, said on standard error.

use compiler::model_source::ModelSource;
use std::io::Write;

/// Says which keys of a model's file are ignored, if any. A model that does not open is refused elsewhere.
pub(super) fn say_ignored(model: &str) {
    let Ok(ModelSource::Config { from, unknown, .. }) = ModelSource::open(model) else { return };
    if !unknown.is_empty() {
        // A closed standard error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "note: {from}: keys that are ignored: {}", unknown.join(", "));
    }
}
