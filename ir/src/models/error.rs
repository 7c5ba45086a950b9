//! Errors in configurations.

use crate::catalogue::Code;
use crate::diag::Coded;
use crate::limits;
use std::fmt;

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
    /// A file without an encoder of images, of a model that is to read them.
    NoEncoder,
    /// An encoder of images that is not known.
    UnknownEncoder {
        /// Its `model_type`.
        found: String,
        /// The `model_type` of the model that it is a part of.
        whole: String,
        /// Known encoders, each in a model.
        known: String,
    },
    /// Patches of a sequence that do not merge into rows.
    Patches {
        /// Patches of a sequence.
        patches: u64,
        /// Patches of a row.
        merged: u64,
    },
    /// A tensor or depth above [`crate::limits`].
    TooLarge(String),
    /// A `model_type` without a builder.
    UnknownFamily {
        /// The name in the file.
        found: String,
        /// The part that no builder has, if it is known.
        missing: Option<&'static str>,
        /// Those of the families that are read.
        known: Vec<&'static str>,
    },
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
            ConfigError::NoEncoder => f.write_str("the model has no encoder of images: `vision_config` is missing"),
            ConfigError::UnknownEncoder { found, whole, known } => {
                write!(f, "there is no builder for the encoder `{found}` in a model `{whole}`; there are {known}")
            }
            ConfigError::Patches { patches, merged } => {
                write!(f, "{patches} patches of images in a sequence are no whole rows of {merged} patches")
            }
            ConfigError::UnknownFamily { found, missing, known } => {
                write!(f, "there is no builder for `model_type` `{found}`")?;
                missing.map_or(Ok(()), |part| write!(f, ", for want of {part}"))?;
                write!(f, "; there are {}", known.join(", "))
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
            ConfigError::NoBatch { .. } | ConfigError::NoEncoder | ConfigError::Patches { .. } => Code::BadOption,
            ConfigError::Contradiction(_) | ConfigError::TooLong { .. } => Code::ConfigContradiction,
            ConfigError::TooLarge(_) => Code::TooLarge,
            ConfigError::UnknownFamily { .. } | ConfigError::UnknownEncoder { .. } => Code::UnsupportedFamily,
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
            ConfigError::NoEncoder => "leave `+images=` out, or give the config.json of a model that reads images",
            ConfigError::UnknownEncoder { .. } => "leave `+images=` out: the file then opens as its text model",
            ConfigError::Patches { merged, .. } => {
                return Some(format!("give a multiple of {merged} patches, and at least one row"));
            }
            ConfigError::TooLong { positions, .. } => {
                return Some(format!("use sequences of at most {positions} tokens"));
            }
            ConfigError::TooLarge(_) => "make the sizes of the model, of a micro-batch or of a sequence smaller",
            ConfigError::UnknownFamily { .. } => "use one of those, or write the model as a .ir file",
            ConfigError::Unsupported { .. } => {
                "take the key out, or give it a value that docs/config-keys.md allows, if the model permits it"
            }
        };
        Some(help.to_string())
    }
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
