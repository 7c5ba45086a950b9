//! Models under the names of the Hugging Face hub.

use crate::error::Error;
use compiler::model_source::ModelSource;
use ir::catalogue::Code;
use ir::models::preset;
use serde_json::{Map, Value};
use weights::{Description, described};

/// The keys of a model's `config.json`: those of its file, or keys that read as the preset.
///
/// # Errors
/// No class of `transformers` has the model.
pub(crate) fn config_keys(name: &str) -> Result<Map<String, Value>, Error> {
    let source = ModelSource::open(name)?;
    let none = || {
        Error::input(Code::NotExportable, format!("{} has no class in transformers", source.name()))
            .help("name a preset, or a config.json")
    };
    let ModelSource::Config { config, text, .. } = &source else { return Err(none()) };
    match text {
        Some(text) => Ok(Description::read(text)?.raw),
        None => described(config, context(name)).ok_or_else(none),
    }
}

/// The longest sequence of a preset, which stands for the positions that it does not state.
fn context(name: &str) -> u64 {
    preset(name).map_or(1, |preset| preset.context)
}
