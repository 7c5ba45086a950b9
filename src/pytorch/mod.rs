//! Models next to their classes of `transformers` on PyTorch: counts of parameters, and logits, loss and gradients of small models of the
//! same kinds with random weights.
//!
//! A program of Python does PyTorch's part, which this one has within it: it needs PyTorch and `transformers` alone.

mod example;
mod program;
mod stored;

pub use example::{Example, Off};
pub use stored::{FLOOR, Stored, Tensors, off_of_norm, trained};

use crate::error::Error;
use crate::hub::description;
use compiler::model_source::ModelSource;
use ir::catalogue::Code;
use ir::models::{Batch, ConfigError, ModelConfig, small};
use ir::types::DType;
use program::{Outcome, Reply, reply};
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::Path;
use support::files;
use weights::{Description, leave_out_further};

/// A model next to its class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassCheck {
    /// Parameters of the model.
    pub parameters: u64,
    /// The class of `transformers` that computes it.
    pub class: Option<&'static str>,
    /// Versions of PyTorch and `transformers`.
    pub versions: Option<String>,
    /// Parameters of the class. Those of layers that predict further tokens, which it has not, are none of them.
    pub class_parameters: Option<u64>,
    /// A small model of the same kinds.
    pub example: Option<Example>,
    /// All that was not compared, and why.
    pub unchecked: Vec<String>,
}

/// The configuration of a model's class.
struct Stated {
    /// The keys of its file, for the class that transformers has under their `model_type`.
    full: Map<String, Value>,
    /// The text model.
    text: Description,
}

/// Compares a model with its class, on the PyTorch of a Python. Where there is none, the answer says what was not compared.
///
/// # Errors
/// There is no such model, or it differs from its class: a fault.
pub fn check(model: &str, python: &Path) -> Result<ClassCheck, Error> {
    let source = ModelSource::open(model)?;
    let parameters = source.model(&Batch { batch: 1, seq: 1, dtype: DType::F32 })?.parameter_count();
    let mut check = ClassCheck {
        parameters,
        class: None,
        versions: None,
        class_parameters: None,
        example: None,
        unchecked: Vec::new(),
    };
    if let ModelSource::Adapted { .. } = source {
        check.unchecked.push("adapters: no class of transformers has them".to_string());
    }
    let stated = match stated(source.base()) {
        Ok(stated) => stated,
        Err(why) => {
            check.unchecked.push(why.message());
            return Ok(check);
        }
    };
    check.class = Some(stated.text.class());
    check.compare(&stated, python).map_err(|why| why.within(model))?;
    Ok(check)
}

/// The configuration of a model's class.
fn stated(source: &ModelSource) -> Result<Stated, Error> {
    let text = description(source)?;
    if let Some(key) = text.addition() {
        let why = format!("no class of transformers has `{key}` of {}", source.name());
        return Err(Error::input(Code::NotExportable, why));
    }
    if text.encoder.is_some() {
        let why = format!("{} has an encoder of images: without `+images=` its text model is compared", source.name());
        return Err(Error::input(Code::NotExportable, why));
    }
    let whole = match source {
        ModelSource::Config { text: Some(whole), .. } if text.is_composite => serde_json::from_str(whole).ok(),
        _ => None,
    };
    // A file may name a class by another `model_type` than transformers has for it.
    let own = Map::from_iter([("model_type".to_string(), text.family.model_type.into())]);
    let full = whole.unwrap_or_else(|| text.raw.clone().into_iter().chain(own).collect());
    Ok(Stated { full, text })
}

impl ClassCheck {
    fn compare(&mut self, stated: &Stated, python: &Path) -> Result<(), Error> {
        let folder = files::draft(&std::env::temp_dir())
            .map_err(|why| Error::file("make a folder in", &std::env::temp_dir(), &why))?;
        let folder = folder.path();
        let smaller = small(&stated.text.raw, u64::MAX)?;
        match reply(python, folder, &stated.full, &smaller)? {
            Outcome::Why(why) => self.unchecked.push(format!("count, logits and gradients: {why}")),
            Outcome::Value(Reply { versions, parameters, batch, loss }) => {
                self.versions = Some(versions);
                self.count(stated, parameters)?;
                match loss {
                    Outcome::Why(why) => self.unchecked.push(format!("logits and gradients: {why}")),
                    Outcome::Value(loss) => self.example = Some(example::compare(folder, &smaller, batch, loss)?),
                }
            }
        }
        Ok(())
    }

    /// Compares the counts, without layers that predict further tokens: the class has none.
    fn count(&mut self, stated: &Stated, of_class: Outcome<u64>) -> Result<(), Error> {
        let own = own_count(&stated.text)?;
        if own != count(&stated.text.config)? {
            self.unchecked.push("layers that predict further tokens: the class has none".to_string());
        }
        match of_class {
            Outcome::Why(why) => self.unchecked.push(format!("count: {why}")),
            Outcome::Value(count) if count == own => self.class_parameters = Some(count),
            Outcome::Value(count) => {
                return Err(fault(format!("{own} parameters, but its class has {count}")));
            }
        }
        Ok(())
    }
}

/// The parameters of a model without layers that predict further tokens.
fn own_count(text: &Description) -> Result<u64, ConfigError> {
    let mut keys = text.raw.clone();
    leave_out_further(&mut keys);
    count(&Description::of(keys)?.config)
}

/// The parameters of a configuration.
fn count(config: &ModelConfig) -> Result<u64, ConfigError> {
    Ok(config.build(&Batch { batch: 1, seq: 1, dtype: DType::F32 })?.parameter_count())
}

fn fault(why: String) -> Error {
    Error::fault("comparison with transformers", why)
}
