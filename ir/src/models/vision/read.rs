//! The encoder of a file of a model that reads images, too.

use super::Vision;
use crate::models::composite::TEXT;
use crate::models::error::{ConfigError, invalid};
use crate::models::families::{self, ENCODERS};
use crate::models::fields::Fields;
use crate::models::keys::Keys;
use crate::models::weights::Weights;
use serde_json::{Map, Value};

/// The key of the encoder.
const ENCODER: &str = "vision_config";

/// An addition to files of models that read images: the patches of a sequence's images. Without it a file is that of its text model.
pub const PATCHES: &str = "patches_per_sequence";

/// A kind of encoders: what a file can say of them, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// The value of `model_type` of the encoder's part of a file.
    pub model_type: &'static str,
    /// The keys of this part.
    pub keys: Keys,
    /// The models that it is a part of.
    pub wholes: &'static [Whole],
    /// The names and shapes of weights in files.
    pub weights: Weights,
    /// Reads a file.
    pub(in crate::models) read: fn(&EncoderFields) -> Result<Vision, ConfigError>,
}

/// A model with an encoder and a text model.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The value of `model_type`.
    pub model_type: &'static str,
    /// The class of `transformers` that computes the model.
    pub class: &'static str,
    /// The keys of its file outside of its parts.
    pub keys: Keys,
}

/// The fields of an encoder, and those of the whole file outside of its parts.
pub(in crate::models) struct EncoderFields {
    /// Those of the encoder.
    pub(in crate::models) own: Fields,
    /// Those of the whole file.
    pub(in crate::models) whole: Fields,
    /// The keys of the text model, of which an encoder may read some.
    pub(in crate::models) text: Map<String, Value>,
}

/// An encoder of a file.
pub struct ReadEncoder {
    /// The encoder.
    pub vision: Vision,
    /// Its kind.
    pub encoder: &'static Encoder,
    /// The model that it is a part of.
    pub whole: &'static Whole,
    /// Keys of its part of the file, and of the file outside of its parts, that mean nothing.
    pub unknown: Vec<String>,
}

/// Reads the encoder of a file, for sequences of as many patches as the file says; none if it says nothing of them.
///
/// # Errors
/// The file is of no model that reads images, or of one whose encoder is not known; or its patches are no whole rows.
pub fn encoder_of(file: &Map<String, Value>) -> Result<Option<ReadEncoder>, ConfigError> {
    let Some(patches) = file.get(PATCHES) else { return Ok(None) };
    let patches = patches.as_u64().ok_or_else(|| invalid(PATCHES, format!("{patches} is no number of patches")))?;
    let mut read = read_encoder(file)?;
    read.vision.patches = patches;
    Ok(Some(read))
}

/// The same without patches.
///
/// # Errors
/// The file is of no model that reads images, or of one whose encoder is not known.
pub fn read_encoder(file: &Map<String, Value>) -> Result<ReadEncoder, ConfigError> {
    let own = match file.get(ENCODER) {
        None => return Err(ConfigError::NoEncoder),
        Some(own) => own.as_object().ok_or_else(|| invalid(ENCODER, "must be an object".to_string()))?,
    };
    let (encoder, whole) = known(own, file)?;
    let rest = file.iter().filter(|(name, _)| !matches!(name.as_str(), ENCODER | PATCHES | TEXT));
    let all = families::all_keys();
    let fields = EncoderFields {
        own: Fields::new(encoder.keys, &all, own)?,
        whole: Fields::new(whole.keys, &all, &rest.map(|(name, value)| (name.clone(), value.clone())).collect())?,
        text: file.get(TEXT).and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    let vision = (encoder.read)(&fields)?;
    let EncoderFields { own, whole: of_whole, .. } = fields;
    let own = own.into_unknown().into_iter().map(|name| format!("{ENCODER}.{name}"));
    Ok(ReadEncoder { vision, encoder, whole, unknown: own.chain(of_whole.into_unknown()).collect() })
}

/// The kind of an encoder, and the model that it is a part of.
fn known(
    own: &Map<String, Value>,
    file: &Map<String, Value>,
) -> Result<(&'static Encoder, &'static Whole), ConfigError> {
    let [stated, whole] =
        [own, file].map(|part| part.get("model_type").and_then(Value::as_str).unwrap_or_default().to_string());
    // Older files of some models name the whole in both places.
    let found = wholes()
        .find(|known| known.1.model_type == whole && (known.0.model_type == stated || stated == known.1.model_type));
    found.ok_or_else(|| {
        let known: Vec<String> =
            self::wholes().map(|known| format!("`{}` in `{}`", known.0.model_type, known.1.model_type)).collect();
        ConfigError::UnknownEncoder { found: stated, whole, known: known.join(", ") }
    })
}

/// The kinds of encoders, each with every model that it is a part of.
fn wholes() -> impl Iterator<Item = (&'static Encoder, &'static Whole)> {
    ENCODERS.iter().flat_map(|encoder| encoder.wholes.iter().map(move |whole| (encoder, whole)))
}
