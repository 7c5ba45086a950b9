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
    Ok(description(&source)?.raw)
}

/// The `config.json` of a model: that of its file, or keys that read as the preset.
///
/// # Errors
/// No class of `transformers` has the model.
pub(crate) fn description(source: &ModelSource) -> Result<Description, Error> {
    let none = || {
        Error::input(Code::NotExportable, format!("{} has no class in transformers", source.name()))
            .help("name a preset, or a config.json")
    };
    let ModelSource::Config { config, text, .. } = source else { return Err(none()) };
    Ok(match text {
        Some(text) => Description::read(text)?,
        None => Description::of(described(config, context(source.name())).ok_or_else(none)?)?,
    })
}

/// The longest sequence of a preset, which stands for the positions that it does not state.
fn context(name: &str) -> u64 {
    preset(name).map_or(1, |preset| preset.context)
}
