//! A family of models: its keys, the names of its weights, and its reader.

use crate::models::config::ModelConfig;
use crate::models::error::ConfigError;
use crate::models::fields::Fields;
use crate::models::keys::Keys;
use crate::models::weights::Weights;

/// A family of models: what a `config.json` can say of them, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The value of `model_type`.
    pub model_type: &'static str,
    /// The class of `transformers` that computes the model.
    pub class: &'static str,
    /// The keys of a file. Defaults are those of `transformers` 5.24; `tests/transformers/compare.py` holds them against it.
    pub keys: Keys,
    /// Files of models that read images, too, and have a text model of this family.
    pub whole: Option<Composite>,
    /// The names and shapes of weights in files.
    pub weights: Weights,
    /// Reads a file.
    pub(in crate::models) read: fn(&Fields) -> Result<ModelConfig, ConfigError>,
}

/// A model that reads images, too.
#[derive(Clone, Copy, Debug)]
pub struct Composite {
    /// The value of `model_type`.
    pub model_type: &'static str,
    /// The part that says whether the head is tied.
    pub tied: Tied,
}

/// The value that counts where the whole file and its text model state whether the head is tied, as in `transformers` 5.24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tied {
    /// That of the whole file, if it has one.
    Whole,
    /// That of the text model.
    Text,
    /// The one that ties.
    Either,
}
