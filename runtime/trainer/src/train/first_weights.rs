//! First weights of a run, from a folder of the hub's form or an exported archive, and that form of the run's model for its checkpoints.

use super::request::TrainRequest;
use crate::error::Error;
use checkpoint::Origin;
use compiler::model_source::ModelSource;
use ir::graph::{Model, is_record};
use ir::models::LlamaConfig;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use weights::{Description, Weights, described, lacks_further, leave_out_further};

/// The weights that a run begins from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FirstWeights {
    /// Their folder.
    pub folder: PathBuf,
    /// The number of tensors.
    pub tensors: usize,
    /// The number of files.
    pub files: usize,
    /// The element types of the files.
    pub formats: Vec<&'static str>,
}

impl FirstWeights {
    pub(super) fn of(weights: &Weights) -> FirstWeights {
        let (tensors, files) = weights.counts();
        FirstWeights { folder: weights.path().to_path_buf(), tensors, files, formats: weights.formats.clone() }
    }
}

/// Opens the weights that the request names and compares them with the model. A resumed run has those of its checkpoint.
///
/// # Errors
/// They cannot be read, or are not those of the model.
pub(super) fn open(request: &TrainRequest, source: &ModelSource) -> Result<Option<Arc<Weights>>, Error> {
    let Some(folder) = request.init_from.as_ref().filter(|_| request.resume.is_none()) else { return Ok(None) };
    let weights = match source.base() {
        ModelSource::Config { config, .. } => Weights::open(folder, config, request.seq)?,
        ModelSource::Exported { graph, .. } => Weights::open_exported(folder, &**graph)?,
        ModelSource::Text { file, .. } => Weights::open_named(folder, parameters(&file.model))?,
        ModelSource::Adapted { from, .. } => {
            return Err(Error::fault("weights", format!("{from} has adapters on adapters")));
        }
    };
    Ok(Some(Arc::new(weights)))
}

/// Leaves layers that predict further tokens out of the request's model if the folder of first weights has none of their tensors, and
/// says so. The request then holds the configuration itself, so that a resumed run has the same model.
///
/// # Errors
/// The folder cannot be read, or the model cannot be opened.
pub(super) fn without_absent_layers(request: &mut TrainRequest) -> Result<Option<String>, Error> {
    let Some(folder) = request.init_from.clone().filter(|_| request.resume.is_none()) else { return Ok(None) };
    let source = ModelSource::open(&request.model)?;
    let ModelSource::Config { from, text, config, .. } = source.base() else { return Ok(None) };
    let ir::models::ModelConfig::Llama(LlamaConfig { mtp: Some(mtp), .. }) = &**config else { return Ok(None) };
    let keys = text.as_ref().filter(|_| folder.is_dir()).and_then(|text| stated(text, config));
    let Some(mut keys) = keys else { return Ok(None) };
    if !lacks_further(&folder)? {
        return Ok(None);
    }
    leave_out_further(&mut keys);
    let base = ModelSource::split(&request.model).0.len();
    request.model.replace_range(..base, &Value::from(keys).to_string());
    let depth = mtp.depth;
    Ok(Some(format!(
        "{from} states {depth} layer{} behind the others that predict further tokens (`num_nextn_predict_layers`), but {} has no tensor of \
         them: the run trains the model without, as `transformers` does",
        if depth == 1 { "" } else { "s" },
        folder.display()
    )))
}

/// The names and sizes of all parameter instances of a model, without records of delayed scaling.
fn parameters(model: &Model) -> impl Iterator<Item = (String, Vec<u64>)> {
    let instances = model.params.values().flat_map(|param| (0..param.instances()).map(move |at| (param, at)));
    instances.map(|(param, at)| (param.instance_name(at), param.ty.sizes())).filter(|(name, _)| !is_record(name))
}

/// Keys that mean nothing, of the model's `config.json` and of the one next to the weights.
pub(super) fn unknown_keys(source: &ModelSource, weights: Option<&Weights>) -> Vec<String> {
    let own = if let ModelSource::Config { unknown, .. } = source.base() { unknown.as_slice() } else { &[] };
    let all: BTreeSet<&String> = own.iter().chain(weights.iter().flat_map(|weights| &weights.unknown)).collect();
    all.into_iter().cloned().collect()
}

/// The form of the run's model on the hub: its `config.json`, or one that reads as the same model. None if no class has it.
pub(super) fn origin(request: &TrainRequest, source: &ModelSource) -> Option<Origin> {
    let ModelSource::Config { config, text, .. } = source.base() else { return None };
    let stated = text.as_ref().and_then(|text| stated(text, config));
    let config = stated.or_else(|| described(config, request.seq))?;
    let folder = request.init_from.as_deref().map(weights::snapshot);
    Some(Origin { config, folder: folder.map(|folder| fs::canonicalize(&folder).unwrap_or(folder)) })
}

/// The keys of the text that a model was read from, if it says the model as it is.
fn stated(text: &str, config: &ir::models::ModelConfig) -> Option<Map<String, Value>> {
    let description = Description::read(text).ok()?;
    (description.config == *config).then_some(description.raw)
}
