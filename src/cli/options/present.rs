//! The configuration that a job has now, in the language of another framework.

use crate::error::Error;
use clap::Args;
use compiler::model_source::ModelSource;
use compiler::text_files::read_text;
use estimator::{EstimateRequest, Estimator};
use exports::maxtext::Devices;
use exports::torchtitan_file::Form;
use exports::{FlagError, Present, deepspeed_file, maxtext, megatron, megatron_bridge, nanotron_file, torchtitan_file};
use ir::catalogue::Code;
use ir::models::ModelConfig;
use std::path::{Path, PathBuf};

/// Files of other frameworks that a configuration is taken from.
#[derive(Args)]
#[group(multiple = false)]
pub(in crate::cli) struct PresentFlags {
    /// Take the configuration from flags of Megatron-LM, or from a script that has them
    #[arg(long, value_name = "FLAGS|FILE", conflicts_with_all = ["parallel", "configs"], allow_hyphen_values = true)]
    from_megatron: Option<String>,
    /// Take the configuration, and the model if no MODEL is given, from a YAML file of Megatron-Bridge: `run_config.yaml` of a checkpoint
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["parallel", "configs"])]
    from_megatron_bridge: Option<PathBuf>,
    /// Take the configuration from a function of a Python file of torchtitan, or from a TOML file of versions up to 0.2
    #[arg(long, value_name = "FILE.py[:NAME]|FILE.toml", conflicts_with_all = ["parallel", "configs"])]
    from_torchtitan: Option<String>,
    /// Take the configuration, and the model if no MODEL is given, from a YAML file of nanotron
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["parallel", "configs"])]
    from_nanotron: Option<PathBuf>,
    /// Take the configuration from a JSON file of DeepSpeed
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["parallel", "configs"])]
    from_deepspeed: Option<PathBuf>,
    /// Take the configuration, and the model if no MODEL is given, from a YAML file of MaxText, or from a script with its keys
    #[arg(long, value_name = "FILE.yml|SCRIPT", conflicts_with_all = ["parallel", "configs"])]
    from_maxtext: Option<PathBuf>,
}

impl PresentFlags {
    /// The configuration of the flag that is given, for a number of devices of a cluster.
    ///
    /// # Errors
    /// The file or the cluster cannot be read, or has a value that the framework refuses.
    pub(in crate::cli) fn read(&self, gpus: Option<u64>, cluster: Option<&str>) -> Result<Option<Present>, Error> {
        let (place, present) = if let Some(given) = &self.from_megatron {
            // Flags begin with two hyphens; a name without them is a file's.
            let path = Some(Path::new(given)).filter(|path| path.is_file() || !given.contains("--"));
            let text = path.map_or_else(|| Ok(given.clone()), text_of)?;
            (path.map(|path| path.display().to_string()), megatron::read(&text, gpus))
        } else if let Some(path) = &self.from_megatron_bridge {
            (Some(path.display().to_string()), megatron_bridge::read(&text_of(path)?, gpus))
        } else if let Some(given) = &self.from_torchtitan {
            let (file, form) = form_of(given);
            (Some(file.to_string()), torchtitan_file::read(&text_of(Path::new(file))?, form, gpus))
        } else if let Some(path) = &self.from_nanotron {
            (Some(path.display().to_string()), nanotron_file::read(&text_of(path)?))
        } else if let Some(path) = &self.from_deepspeed {
            (Some(path.display().to_string()), deepspeed_file::read(&text_of(path)?, gpus))
        } else if let Some(path) = &self.from_maxtext {
            let devices = gpus.map(|count| devices(count, cluster)).transpose()?;
            (Some(path.display().to_string()), maxtext::read(&text_of(path)?, devices))
        } else {
            return Ok(None);
        };
        let unreadable = |fault: FlagError| {
            let error = Error::input(Code::FlagsUnreadable, fault.to_string());
            let error = place.iter().fold(error, |error, place| error.within(place));
            error.help("correct the value, or give the configuration with --parallel")
        };
        present.map(Some).map_err(unreadable)
    }
}

/// The text of a file, without the mark of UTF-8 that some editors put in front.
fn text_of(path: &Path) -> Result<String, Error> {
    Ok(read_text(path)?.trim_start_matches('\u{feff}').to_string())
}

/// Devices of a cluster, the default one if none is named.
fn devices(count: u64, cluster: Option<&str>) -> Result<Devices, Error> {
    let default = EstimateRequest::default().cluster;
    let cluster = Estimator::new().cluster(cluster.unwrap_or(&default))?;
    Ok(Devices { count, per_node: cluster.devices_of_node() })
}

/// The file, and what it is written in: `FILE.py:NAME` names a function.
fn form_of(given: &str) -> (&str, Form<'_>) {
    match given.rsplit_once(':') {
        Some((file, name)) if file.ends_with(".py") => (file, Form::Python(Some(name))),
        _ if given.ends_with(".py") => (given, Form::Python(None)),
        _ => (given, Form::Toml),
    }
}

/// The configuration that was read, and what the prediction does not know of the rest.
///
/// # Errors
/// A size that the file states is another one in the model, or its layers do not divide as the file says.
pub(in crate::cli) fn told(present: &mut Present, model: Option<&str>) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    if model.is_none() && present.model.is_none() {
        let preset = present.stated.preset().ok_or_else(no_model)?;
        lines.push(format!("model: {preset}, which has the sizes that are stated; give MODEL for another one"));
        present.model = Some(preset.to_string());
    }
    divide(present, model)?;
    lines.push(format!("configuration: {}", present.parallel));
    lines.extend(present.warnings.iter().cloned());
    let Some(model) = model.filter(|_| !present.stated.is_empty()) else { return Ok(lines) };
    let Some(config) = config_of(model)? else { return Ok(lines) };
    let wrong = present.stated.contradictions(&config);
    if !wrong.is_empty() {
        let error = Error::input(Code::FlagsUnreadable, format!("the flags contradict MODEL: {}", wrong.join("; ")));
        return Err(error.help("leave MODEL out to take the model from the flags, or correct them"));
    }
    lines.extend(present.stated.missing_in(&config));
    Ok(lines)
}

/// The fault of a file that states no model, or not all of it.
fn no_model() -> Error {
    let error = Error::input(Code::FlagsUnreadable, "it states no model, or not all of its sizes and no vocabulary");
    error.help("give MODEL: a preset, or the config.json of the model")
}

/// States the stages of a file that divides the layers of any model.
///
/// # Errors
/// The layers do not divide as the file says, or the model cannot be read.
fn divide(present: &mut Present, model: Option<&str>) -> Result<(), Error> {
    let (Some(split), Some(model)) = (present.split.take(), model.or(present.model.as_deref())) else { return Ok(()) };
    if let Some(ModelConfig::Llama(config)) = config_of(model)? {
        let keys = split
            .keys(u64::from(config.layers))
            .map_err(|fault| Error::input(Code::FlagsUnreadable, fault.to_string()))?;
        present.parallel.push_str(&keys);
    }
    Ok(())
}

/// The configuration of a model, if it has one.
fn config_of(model: &str) -> Result<Option<ModelConfig>, Error> {
    let source = ModelSource::open(model)?;
    Ok(match source.base() {
        ModelSource::Config { config, .. } => Some(config.as_ref().clone()),
        _ => None,
    })
}
