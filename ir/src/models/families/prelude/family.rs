//! A family of models: its keys, the names of its weights, and its reader.

use crate::models::config::ModelConfig;
use crate::models::error::ConfigError;
use crate::models::fields::Fields;
use crate::models::keys::Keys;
use crate::models::weights::{HubTensor, Weights};

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
    pub wholes: &'static [Composite],
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
    /// The `model_type` of its text model, where that is another one than the family's.
    pub text_type: Option<&'static str>,
    /// The object of values that the class of the text model has for absent keys, where these differ from the family's, as JSON.
    pub defaults: &'static str,
    /// The part that says whether the head is tied.
    pub tied: Tied,
    /// The tensors of a layer of its text model that its files have in another form than those of the family.
    pub inner: &'static [HubTensor],
}

impl Composite {
    /// One whose text model has the `model_type` and the defaults of the family.
    pub(in crate::models::families) const fn of(model_type: &'static str) -> Composite {
        Composite { model_type, text_type: None, defaults: "{}", tied: Tied::Either, inner: &[] }
    }
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
