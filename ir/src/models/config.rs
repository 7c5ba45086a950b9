//! A model's configuration as published: the fields of `config.json`, read and checked.

use super::composite::text_part;
use super::families::{self, FAMILIES};
use super::fields::Fields;
use super::gpt2::{self, Gpt2Config};
use super::llama::{self, LlamaConfig};
use crate::catalogue::Code;
use crate::diag::Coded;
use crate::graph::Model;
use crate::limits;
use crate::types::DType;
use crate::verify::verify_sizes;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// The size of one micro-batch, over all data-parallel ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Sequences.
    pub batch: u64,
    /// Tokens per sequence.
    pub seq: u64,
    /// Element type of parameters and activations; the loss and its scalars are f32.
    pub dtype: DType,
}

/// An error in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// It is no JSON object.
    Json(String),
    /// A field that the family needs is not there.
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field has a value that it cannot have.
    Invalid {
        /// Its name.
        field: String,
        /// The reason.
        why: String,
    },
    /// Fields that are right alone do not go together.
    Contradiction(String),
    /// A batch that is empty.
    NoBatch {
        /// `batch` or `seq`.
        size: &'static str,
    },
    /// Sequences that are longer than the table of positions.
    TooLong {
        /// Tokens per sequence.
        seq: u64,
        /// Positions of the model.
        positions: u64,
    },
    /// A tensor or depth above [`crate::limits`].
    TooLarge(String),
    /// A `model_type` without a builder.
    UnknownFamily(String),
    /// A value that is right, but that no builder supports.
    Unsupported {
        /// The name of the field.
        field: String,
        /// The unsupported value, and the supported ones.
        why: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Json(why) => write!(f, "the configuration is no JSON object: {why}"),
            ConfigError::Missing { field } => write!(f, "`{field}` is missing"),
            ConfigError::Invalid { field, why } => write!(f, "`{field}`: {why}"),
            ConfigError::Contradiction(why) | ConfigError::TooLarge(why) => f.write_str(why),
            ConfigError::NoBatch { size } => write!(f, "`{size}` is 0, but must be 1 or more"),
            ConfigError::TooLong { seq, positions } => {
                write!(f, "sequences of {seq} tokens do not fit the model's {positions} positions")
            }
            ConfigError::UnknownFamily(found) => {
                let mut wholes: Vec<&str> =
                    FAMILIES.iter().filter_map(|family| Some(family.whole?.model_type)).collect();
                wholes.sort_unstable();
                let families: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).chain(wholes).collect();
                write!(f, "there is no builder for `model_type` `{found}`; there are {}", families.join(", "))
            }
            ConfigError::Unsupported { field, why } => write!(f, "`{field}`: {why}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Coded for ConfigError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            ConfigError::Json(_) | ConfigError::Invalid { .. } => Code::ConfigSyntax,
            ConfigError::Missing { .. } => Code::ConfigMissingField,
            ConfigError::NoBatch { .. } => Code::BadOption,
            ConfigError::Contradiction(_) | ConfigError::TooLong { .. } => Code::ConfigContradiction,
            ConfigError::TooLarge(_) => Code::TooLarge,
            ConfigError::UnknownFamily(_) => Code::UnsupportedFamily,
            ConfigError::Unsupported { .. } => Code::UnsupportedOption,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            ConfigError::Json(_) => "give a config.json as `transformers` writes it",
            ConfigError::Missing { .. } => "add the field; it has no default",
            ConfigError::Invalid { .. } => "correct the field",
            ConfigError::Contradiction(_) => "change one of the fields to agree with the other",
            ConfigError::NoBatch { .. } => "a micro-batch has at least one sequence of one token",
            ConfigError::TooLong { positions, .. } => {
                return Some(format!("use sequences of at most {positions} tokens"));
            }
            ConfigError::TooLarge(_) => "make the sizes of the model, of a micro-batch or of a sequence smaller",
            ConfigError::UnknownFamily(_) => "use one of those, or write the model as a .ir file",
            ConfigError::Unsupported { .. } => {
                "take the key out, or give it a value that docs/config-keys.md allows, if the model permits it"
            }
        };
        Some(help.to_string())
    }
}

/// The configuration of a model of a known family.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "family", rename_all = "lowercase")]
#[expect(clippy::large_enum_variant, reason = "presets are constants, which cannot hold a box; there are few of them")]
pub enum ModelConfig {
    /// LLaMA and what shares its blocks: Mistral, Qwen, DeepSeek, Gemma, OLMo, Phi, GPT-NeoX and GLM, with experts or without.
    Llama(LlamaConfig),
    /// GPT-2.
    Gpt2(Gpt2Config),
}

impl From<LlamaConfig> for ModelConfig {
    fn from(config: LlamaConfig) -> ModelConfig {
        ModelConfig::Llama(config)
    }
}

impl ModelConfig {
    /// The kind of its blocks.
    pub fn family(&self) -> &'static str {
        match self {
            ModelConfig::Llama(_) => "llama",
            ModelConfig::Gpt2(_) => "gpt2",
        }
    }

    /// The configuration with the tokens of a sequence in `n` routing groups, if it has experts, does not state another group
    /// size, and `n` divides the sequence. Ranks that shard the sequence then route their own tokens.
    #[must_use]
    pub fn routed_in(&self, groups: u64, seq: u64) -> ModelConfig {
        let mut config = self.clone();
        if let ModelConfig::Llama(LlamaConfig { experts: Some(experts), .. }) = &mut config
            && seq.is_multiple_of(groups)
        {
            experts.group = experts.group.or(Some(seq / groups));
        }
        config
    }

    /// The same, if its values go together.
    fn checked(self) -> Result<ModelConfig, ConfigError> {
        match &self {
            ModelConfig::Llama(config) => config.check(),
            ModelConfig::Gpt2(config) => config.check(),
        }?;
        Ok(self)
    }

    /// True if it has experts, and no token is dropped: how tokens are grouped for routing then changes no result.
    pub fn is_dropless(&self) -> bool {
        matches!(self, ModelConfig::Llama(LlamaConfig { experts: Some(experts), .. }) if experts.capacity.is_none())
    }

    /// The model for a batch: forward blocks, no mesh.
    ///
    /// # Errors
    /// A batch without tokens, longer than the positions that the model has, or of integers; sizes beyond
    /// [`crate::limits`]; a configuration made by hand that [`from_config`] would refuse.
    pub fn build(&self, batch: &Batch) -> Result<Model, ConfigError> {
        for (size, count) in [("batch", batch.batch), ("seq", batch.seq)] {
            if count == 0 {
                return Err(ConfigError::NoBatch { size });
            }
        }
        if !batch.dtype.is_float() {
            return Err(invalid("dtype", format!("parameters cannot be {}", batch.dtype.name())));
        }
        let model = match self {
            ModelConfig::Llama(config) => llama::build(config, batch),
            ModelConfig::Gpt2(config) => gpt2::build(config, batch),
        }?;
        match verify_sizes(&model) {
            Ok(()) => Ok(model),
            Err(found) => Err(ConfigError::TooLarge(found.0.first().map_or_else(String::new, |d| d.message.clone()))),
        }
    }
}

/// Reads the text of a `config.json` as Hugging Face's `transformers` writes it; defaults are those of its classes.
///
/// # Errors
/// Everything in [`ConfigError`].
pub fn from_config(json: &str) -> Result<ModelConfig, ConfigError> {
    read_config(json).map(|(config, _)| config)
}

/// The same, and the keys that are ignored: those that mean nothing to any family, and those of parts that are no text model.
///
/// # Errors
/// Everything in [`ConfigError`].
pub fn read_config(json: &str) -> Result<(ModelConfig, Vec<String>), ConfigError> {
    let value: Value = serde_json::from_str(json).map_err(|why| ConfigError::Json(why.to_string()))?;
    let file = value.as_object().ok_or_else(|| ConfigError::Json("it is another kind of value".to_string()))?;
    let (text, left_out) = text_part(file)?.unzip();
    let file = text.as_ref().unwrap_or(file);
    let named = file.get("model_type").ok_or(ConfigError::Missing { field: "model_type" })?;
    let named = named.as_str().ok_or_else(|| invalid("model_type", format!("{named} is no string")))?;
    let family = families::named(named).ok_or_else(|| ConfigError::UnknownFamily(named.to_string()))?;
    let fields = Fields::new(family.keys, file)?;
    let read = (family.read)(&fields).and_then(ModelConfig::checked);
    let config = read.map_err(|why| fields.of_default(why))?;
    let mut unknown = fields.into_unknown();
    unknown.extend(left_out.into_iter().flatten());
    Ok((config, unknown))
}

/// A field with a value that it cannot have.
pub(super) fn invalid(field: &str, why: String) -> ConfigError {
    ConfigError::Invalid { field: field.to_string(), why }
}

/// A size that must not be 0.
pub(super) fn positive(field: &str, size: u64) -> Result<(), ConfigError> {
    if size == 0 { Err(invalid(field, "must be at least 1".to_string())) } else { Ok(()) }
}

/// A number of layers that a model may have. It is checked before anything goes through all of them.
pub(super) fn depth(field: &str, layers: u32) -> Result<u32, ConfigError> {
    if layers > limits::RUNS {
        return Err(ConfigError::TooLarge(format!("`{field}` is {layers}, more than {} layers", limits::RUNS)));
    }
    Ok(layers)
}

/// A number that must be finite and not below 0.
pub(super) fn not_negative(field: &str, number: f64) -> Result<(), ConfigError> {
    if number.is_finite() && number >= 0.0 {
        return Ok(());
    }
    Err(invalid(field, format!("{number} must be finite and not negative")))
}

/// A value that is right, but not supported.
pub(super) fn unsupported(field: &str, why: String) -> ConfigError {
    ConfigError::Unsupported { field: field.to_string(), why }
}
