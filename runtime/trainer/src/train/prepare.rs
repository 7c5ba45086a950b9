//! From a request to a compiled model, before any data is read.

use super::backend::check_device;
use super::data::{OpenedData, OwnTokens};
use super::feed::Feed;
use super::first_weights::{open as open_weights, without_absent_layers};
use super::request::{TrainRequest, option};
use crate::error::Error;
use compiler::batch::microbatches;
use compiler::compile::{compile, open};
use compiler::model_source::ModelSource;
use compiler::pipeline::PipelineOptions;
use compiler::precision::precision;
use cost::PROGRAM;
use inspect::predicting::{self, StepPrediction};
use ir::catalogue::Code;
use ir::graph::{COUNTS, Model};
use ir::options::{ParallelConfig, PlanOptions};
use ir::text::File;
use std::sync::Arc;
use trace::Trace;
use weights::Weights;

/// A request with its compiled model.
pub(super) struct Prepared {
    /// The request with all defaults resolved.
    pub(super) request: TrainRequest,
    pub(super) source: ModelSource,
    pub(super) parallel: ParallelConfig,
    /// At the level of programs.
    pub(super) compiled: File,
    pub(super) feed: Feed,
    pub(super) microbatches: u32,
    pub(super) data: OpenedData,
    /// The weights that the run begins from, if it does not draw them.
    pub(super) weights: Option<Arc<Weights>>,
    /// A note about the model.
    pub(super) note: Option<String>,
}

/// Model and tokens of a run that a program has in memory, in place of those that a request names.
#[derive(Default)]
pub struct Given {
    /// The model.
    pub model: Option<ModelSource>,
    /// The tokens.
    pub tokens: Option<OwnTokens>,
}

/// Resolves the request and compiles its model: the given one, or the one that the request names.
///
/// # Errors
/// The request is invalid, or this version cannot run it.
pub(super) fn prepare(request: &TrainRequest, given: Given) -> Result<Prepared, Error> {
    let mut request = request.resolved()?;
    check_device(&request)?;
    let parallel = request.parallel()?;
    let Given { model: source, tokens } = given;
    let note = if source.is_none() { without_absent_layers(&mut request)? } else { None };
    let source = source.map_or_else(|| ModelSource::open(&request.model), Ok)?;
    let data = OpenedData::of(&request, source.vision(), tokens)?;
    let precision = precision(&request.precision)?;
    let file = open(&source, &parallel, request.seq, precision.dtype)?;
    precision.check(&file.model, &request.precision)?;
    check_routing(&request, &file.model)?;
    let feed = Feed::of(&file.model, &parallel, &precision, data.least_vocabulary())?;
    if feed.reads_images() && source.vision().is_none() {
        let message = format!("{} has inputs of images, but no encoder that says how to read them", source.name());
        return Err(Error::input(Code::NotATextModel, message).help("name a config.json with `+images=` behind it"));
    }
    data.check_vocabulary(feed.vocabulary)?;
    request.seq = feed.seq;
    let weights = open_weights(&request, &source)?;
    let microbatches = microbatches(request.global_batch, feed.sequences)?;
    let order = PipelineOptions {
        options: PlanOptions::of(parallel.clone()),
        optimizer: request.optimizer()?,
        quantisation: precision.quantisation,
        fusion: !request.no_fusion,
        microbatches,
        stop_after: None,
    };
    let compiled = compile(&source, file, &order, &mut |_, _| {})?;
    Ok(Prepared { request, source, parallel, compiled, feed, microbatches, data, weights, note })
}

/// Checks that the model notes the counts that the run is to record.
fn check_routing(request: &TrainRequest, model: &Model) -> Result<(), Error> {
    let mut fields = model.params.values().filter_map(|param| param.field.as_deref());
    if request.routing_every == 0 || fields.any(|field| field == COUNTS) {
        return Ok(());
    }
    let message =
        format!("`routing_every` is {}, but {} notes no tokens of experts", request.routing_every, request.model);
    Err(option(message).help("a model with experts notes them with +balance=counts behind its name"))
}

/// Checks that a run can be, as far as can be known before its data is read.
///
/// # Errors
/// The request is invalid, or this version cannot run it.
pub(crate) fn check_request(request: &TrainRequest) -> Result<(), Error> {
    prepare(request, Given::default()).map(drop)
}

/// Predicts a step of a training run, without data and without running it. Returns the prediction and the trace of the
/// step.
///
/// # Errors
/// The request is invalid, or this version cannot run it.
pub fn predict(request: &TrainRequest) -> Result<(StepPrediction, Trace), Error> {
    Ok(predicting::predict(&prepare(request, Given::default())?.compiled, &PROGRAM)?)
}
