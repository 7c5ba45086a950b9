//! Text that the model of a checkpoint continues, on the processor: to see what was trained.

use crate::codec::TextCodec;
use crate::error::Error;
use crate::forward::Forward;
use crate::sampling::Sampling;
use crate::train::{Feed, TrainRequest, free_memory, refused};
use checkpoint::{Checkpoint, Shard, run_of};
use compiler::compile::open;
use compiler::model_source::ModelSource;
use compiler::precision::precision;
use data::sampler::Batch;
use data::{END_OF_DOCUMENT, VOCAB};
use exec::state::MASTER;
use ir::catalogue::Code;
use ir::options::ParallelConfig;
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use transforms::evaluation::evaluation;

/// A request to continue a text.
#[derive(Clone, PartialEq, Debug)]
pub struct GenerateRequest {
    /// A checkpoint, or the folder of a run for its newest.
    pub checkpoint: PathBuf,
    /// The model, of a checkpoint that does not have it.
    pub model: Option<String>,
    /// The text to continue.
    pub prompt: String,
    /// A `tokenizer.json` or its folder; without one, tokens are bytes.
    pub tokenizer: Option<PathBuf>,
    /// The token that ends the text: an id, or a token of the tokenizer. Bytes have an end of their own.
    pub eos: Option<String>,
    /// The most tokens to add.
    pub tokens: u64,
    /// The choice of each.
    pub sampling: Sampling,
}

/// A text that was continued.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Generated {
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// Its step.
    pub step: u64,
    /// The text that was given.
    pub prompt: String,
    /// Its number of tokens.
    pub prompt_tokens: u64,
    /// The text that was added.
    pub text: String,
    /// Its tokens; the end of the text is not one of them.
    pub ids: Vec<u32>,
    /// True if the model ended the text.
    pub ended: bool,
}

/// Continues a text. Each token takes a forward of all that is before it, in f32; text beyond the sequence length of the training is
/// left out at its begin. `added` gets the tokens so far after each one.
///
/// # Errors
/// The checkpoint is missing or damaged, its model is not known or not of text, or the tokenizer is another model's.
pub fn generate(request: &GenerateRequest, added: &mut dyn FnMut(u64)) -> Result<Generated, Error> {
    let checkpoint = Checkpoint::open(&request.checkpoint).map_err(|why| match refused(why) {
        missing if missing.code() == Some(Code::CheckpointMissing) => {
            missing.help("give a checkpoint, or the folder of a run that has one: train --save-every writes them")
        }
        other => other,
    })?;
    checkpoint.verify().map_err(refused)?;
    let alphabet = Alphabet::open(request)?;
    let mut ids = alphabet.ids(&request.prompt)?;
    let given = ids.len();
    if ids.is_empty() {
        return Err(option("the prompt has no tokens".into()).help("give --prompt a text to continue"));
    }
    let source = source_of(&checkpoint, request.model.as_deref())?;
    let trained = checkpoint.manifest.fixed.get("seq").and_then(serde_json::Value::as_u64).unwrap_or(1);
    let seq = trained.min(ids.len() as u64 + request.tokens);
    let mut model = Loaded::load(&checkpoint, &source, seq, &alphabet)?;
    let mut ended = false;
    for number in 0..request.tokens {
        let logits = model.logits(&ids)?;
        let known = logits.len().min(usize::try_from(alphabet.vocabulary()).unwrap_or(usize::MAX));
        let next = request.sampling.pick(&logits[..known], number).ok_or_else(|| not_finite(&checkpoint.path))? as u32;
        ended = Some(next) == alphabet.end;
        if ended {
            break;
        }
        ids.push(next);
        added(number + 1);
    }
    let (prompt, added) = (request.prompt.clone(), ids.split_off(given));
    let (text, step) = (alphabet.text(&ids, &added)?, checkpoint.manifest.position.step);
    Ok(Generated { checkpoint: checkpoint.path, step, prompt, prompt_tokens: given as u64, text, ids: added, ended })
}

/// Tokens of a text: bytes, or those of a tokenizer.
struct Alphabet {
    codec: Option<TextCodec>,
    end: Option<u32>,
}

impl Alphabet {
    fn open(request: &GenerateRequest) -> Result<Alphabet, Error> {
        let codec = request.tokenizer.as_deref().map(TextCodec::open).transpose()?;
        let end = match (&codec, &request.eos) {
            (None, None) => Some(u32::from(END_OF_DOCUMENT)),
            (None, Some(eos)) => {
                let what = format!("`{eos}` is to end the text, but without a tokenizer its tokens are bytes");
                return Err(option(what).help("leave --eos out, or name the --tokenizer"));
            }
            (Some(codec), eos) => eos.as_deref().map(|eos| codec.id(eos)).transpose()?,
        };
        Ok(Alphabet { codec, end })
    }

    fn vocabulary(&self) -> u64 {
        self.codec.as_ref().map_or(VOCAB as u64, TextCodec::vocabulary)
    }

    fn ids(&self, text: &str) -> Result<Vec<u32>, Error> {
        match &self.codec {
            Some(codec) => Ok(codec.ids(text)?),
            None => Ok(text.bytes().map(u32::from).collect()),
        }
    }

    /// The text that ids add to those that are given. Bytes that are no text become the sign for that.
    fn text(&self, given: &[u32], ids: &[u32]) -> Result<String, Error> {
        match &self.codec {
            Some(codec) => Ok(codec.continuation(given, ids)?),
            None => Ok(String::from_utf8_lossy(&ids.iter().map(|&id| id as u8).collect::<Vec<u8>>()).into_owned()),
        }
    }
}

/// A model with the parameters of a checkpoint.
struct Loaded {
    forward: Forward,
    feed: Feed,
}

impl Loaded {
    /// Builds the model for a sequence of `seq` tokens. A text in the language of the IR has its own length.
    fn load(checkpoint: &Checkpoint, source: &ModelSource, seq: u64, alphabet: &Alphabet) -> Result<Loaded, Error> {
        let (parallel, precision) = (ParallelConfig::default(), precision("f32")?);
        let model = evaluation(&open(source, &parallel, seq, precision.dtype)?.model);
        let least = if alphabet.codec.is_none() { VOCAB as u64 } else { 0 };
        let feed = Feed::of(&model, &parallel, &precision, least)?;
        if feed.reads_images() {
            let what = format!("{} reads images, and generate has none to give it", source.name());
            return Err(
                Error::input(Code::NotATextModel, what).help("export its weights, and generate with `transformers`")
            );
        }
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let forward = Forward::new(model, threads, free_memory().unwrap_or(u64::MAX));
        let mut forward = forward.map_err(|why| {
            Error::input(Code::NotATextModel, format!("{} generates no text: {why}", source.name()))
                .help("generate needs a model that fits into memory, without a mesh, and with logits of tokens")
        })?;
        read_params(checkpoint, &mut forward)?;
        Ok(Loaded { forward, feed })
    }

    /// The logits of the token after these.
    fn logits(&mut self, ids: &[u32]) -> Result<Vec<f32>, Error> {
        let (seq, rows) = (self.feed.seq as usize, self.feed.sequences as usize);
        let last = &ids[ids.len().saturating_sub(seq)..];
        if let Some(id) = last.iter().find(|&&id| u64::from(id) >= self.feed.vocabulary) {
            let what = format!("the text has the token {id}, but the model has {} tokens", self.feed.vocabulary);
            return Err(
                Error::input(Code::TokenOutOfRange, what).help("name the tokenizer that wrote the model's data")
            );
        }
        // What is behind the text is another document, of position 0: it is not seen, and the sequence is no longer than the text.
        let mut batch = Batch {
            tokens: last.iter().map(|&id| id as i32).collect(),
            labels: vec![-1; seq * rows],
            positions: (0..last.len() as i32).collect(),
            segments: vec![0; last.len()],
            ..Batch::default()
        };
        batch.tokens.resize(seq * rows, 0);
        batch.positions.resize(seq * rows, 0);
        batch.segments.resize(seq * rows, 1);
        let input = self.feed.of_batches(std::iter::once(batch)).microbatches.pop().unwrap_or_default();
        let logits = self.forward.logits(&input, last.len() - 1..last.len());
        logits.map_err(|why| Error::fault("forward", why))
    }
}

/// Reads all parameters, or the f32 copies that the optimizer updates.
fn read_params(checkpoint: &Checkpoint, forward: &mut Forward) -> Result<(), Error> {
    let mut reader = checkpoint.reader();
    for (name, sizes) in forward.params() {
        let copy = format!("{name}.{MASTER}");
        let stored = if reader.sizes(&copy).is_some() { &copy } else { &name };
        if reader.sizes(stored) != Some(&sizes) {
            let saved = reader.sizes(stored).map_or("absent".to_string(), |sizes| format!("{sizes:?}"));
            let message = format!("`{name}` is {saved} in {}, but {sizes:?} in the model", checkpoint.path.display());
            let help = "name the model that the run trained with --model, or leave it out";
            return Err(Error::input(Code::CheckpointMismatch, message).help(help));
        }
        let whole = Shard { offset: vec![0; sizes.len()], shape: sizes };
        let numbers = reader.read(stored, &whole).map_err(refused)?;
        forward.set_param(&name, &numbers).map_err(|why| Error::fault("forward", why))?;
    }
    Ok(())
}

/// The model of a checkpoint: the one that is named, its own, or that of its run.
fn source_of(checkpoint: &Checkpoint, named: Option<&str>) -> Result<ModelSource, Error> {
    if let Some(named) = named {
        return Ok(ModelSource::open(named)?);
    }
    if let Some(origin) = &checkpoint.manifest.origin {
        return Ok(ModelSource::open(&serde_json::Value::from(origin.config.clone()).to_string())?);
    }
    let run = run_of(&checkpoint.path).join("run.toml");
    let text = fs::read_to_string(&run).map_err(|why| match why.kind() {
        ErrorKind::NotFound => unnamed(checkpoint, "there is no run.toml next to it"),
        _ => unnamed(checkpoint, &format!("{} cannot be read: {why}", run.display())),
    })?;
    let request: TrainRequest = toml::from_str(&text)
        .map_err(|why| unnamed(checkpoint, &format!("{} is not that of a run: {}", run.display(), why.message())))?;
    Ok(ModelSource::open(&request.model)?)
}

fn unnamed(checkpoint: &Checkpoint, why: &str) -> Error {
    option(format!("{} does not name its model, and {why}", checkpoint.path.display()))
        .help("name the model with --model: a preset, a config.json, or a .ir file")
}

fn not_finite(checkpoint: &Path) -> Error {
    let message = format!("the logits of {} are not numbers", checkpoint.display());
    Error::Hopeless { code: Code::NotFinite, message, help: "take an older checkpoint of the run".into() }
}

fn option(message: String) -> Error {
    Error::input(Code::BadOption, message)
}
