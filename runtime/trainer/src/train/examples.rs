//! Examples of a run: documents with labels of their own, whose windows are filled when the data is loaded.

use super::report::ExampleReport;
use super::request::{TrainRequest, option};
use crate::error::Error;
use data::DataError;
use data::packing::{ExampleCounts, LossOn, Packing};
use data::sampler::Sampler;
use data::tokens::{TokenData, TokenPart};
use ir::catalogue::Code;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use support::files;

/// A set of tokenised data, with the windows of the sides that are examples.
pub(super) struct TokenSet {
    pub(super) data: TokenData,
    train: Option<Packing>,
    valid: Option<Packing>,
}

impl TokenSet {
    /// Fills the windows of a set.
    ///
    /// # Errors
    /// A side of examples has none with labels, or a file cannot be read.
    pub(super) fn of(data: TokenData, seq: usize, loss_on: LossOn) -> Result<TokenSet, DataError> {
        let [train, valid] = [&data.train, &data.valid].map(|part| packed(part, seq, loss_on));
        let (train, valid) = (train?, valid?);
        Ok(TokenSet { data, train, valid })
    }

    /// Samples of the training side.
    pub(super) fn train(&self, seq: usize, seed: u64) -> Result<Sampler<'_>, DataError> {
        match &self.train {
            Some(packing) => Ok(Sampler::of_examples(&self.data.train, packing, Some(seed))),
            None => Sampler::new(&self.data.train, seq, seed),
        }
    }

    /// Samples of the held-out side.
    pub(super) fn valid(&self, seq: usize) -> Result<Sampler<'_>, DataError> {
        match &self.valid {
            Some(packing) => Ok(Sampler::of_examples(&self.data.valid, packing, None)),
            None => Sampler::in_order(&self.data.valid, seq),
        }
    }

    /// Bytes of memory: the places of documents, and which examples each window has.
    pub(super) fn bytes(&self) -> u64 {
        self.data.bytes() + self.train.iter().chain(&self.valid).map(Packing::bytes).sum::<u64>()
    }

    /// True if the set has examples.
    pub(super) fn has_labels(&self) -> bool {
        self.train.is_some() || self.valid.is_some()
    }
}

/// The windows of a part, if its documents are examples.
fn packed(part: &TokenPart, seq: usize, loss_on: LossOn) -> Result<Option<Packing>, DataError> {
    part.has_labels().then(|| Packing::of(part, seq, loss_on)).transpose()
}

/// The tokens that count in the loss of examples.
///
/// # Errors
/// The request has another name.
pub(super) fn loss_on(request: &TrainRequest) -> Result<LossOn, Error> {
    let Some(name) = &request.loss_on else { return Ok(LossOn::default()) };
    LossOn::named(name).ok_or_else(|| option(format!("`loss_on` is {name}, but must be completion or all")))
}

/// The report of the examples of sets, of which `held_out` hold out data of their own; none without examples.
///
/// # Errors
/// The request asks for a part of the loss, and there are no examples.
pub(super) fn report(
    request: &TrainRequest,
    sets: &[TokenSet],
    held_out: usize,
) -> Result<Option<ExampleReport>, Error> {
    let has_labels = sets.iter().any(TokenSet::has_labels);
    if !has_labels && request.loss_on.is_some() {
        let what = "`loss_on` is for data with labels of its own, but this has none";
        return Err(option(what.into()).help("`meshwright tokenize` writes labels for JSON lines of examples"));
    }
    let (mut train, mut valid) = (ExampleCounts::default(), ExampleCounts::default());
    sets.iter().flat_map(|set| &set.train).for_each(|packing| train += packing.counts());
    sets.iter().take(held_out).flat_map(|set| &set.valid).for_each(|packing| valid += packing.counts());
    let loss_on = loss_on(request)?;
    Ok(has_labels.then_some(ExampleReport { loss_on, train, valid }))
}

/// The bytes of a file in which its first line must end to be looked at.
const HEAD: u64 = 1 << 20;

/// Refuses lines of JSON that are examples, whose bytes would be trained on as text.
///
/// # Errors
/// The path is a file of such lines.
pub(super) fn check_text(path: &Path) -> Result<(), Error> {
    let is_lines = path.extension().is_some_and(|end| end == "jsonl" || end == "ndjson");
    let Some(file) = is_lines.then(|| files::open(path).ok()).flatten() else { return Ok(()) };
    let mut line = Vec::new();
    // Whoever reads the text says what is wrong with the file.
    let _ = BufReader::new(file).take(HEAD).read_until(b'\n', &mut line);
    let fields: Map<String, Value> = serde_json::from_slice(&line).unwrap_or_default();
    let is_example = EXAMPLE_KEYS.iter().any(|keys| keys.iter().all(|key| fields.contains_key(*key)));
    if !is_example {
        return Ok(());
    }
    let what = format!("{} has examples as lines of JSON, whose bytes are no text to train on", path.display());
    Err(Error::input(Code::BadOption, what).help("make files of tokens of it with `meshwright tokenize`"))
}

/// The keys that make a line of JSON an example, as `tokenize` reads it.
const EXAMPLE_KEYS: [&[&str]; 3] = [&["messages"], &["input_ids"], &["prompt", "completion"]];
