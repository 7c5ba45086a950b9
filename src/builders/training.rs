//! Builder of a training run.

use super::values::{ConfigText, ModelInput, OptimizerText, PrecisionText};
use crate::error::Error;
use crate::train::{self, EvalRecord, Given, OwnTokens, Progress, RunHeader, StepRecord, TrainReport, TrainRequest};
use compiler::cancel::CancelToken;
use compiler::parallel;
use data::source::{TokenPiece, TokenSource};
use std::path::PathBuf;

/// Starts a training run of a model: a name, a path, or a [`Model`](ir::graph::Model), [`File`](ir::text::File) or
/// [`ModelConfig`](ir::models::ModelConfig).
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("meshwright-train-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let text = folder.join("text.txt");
/// std::fs::write(&text, "Pack my box with five dozen liquor jugs. ".repeat(200))?;
///
/// let mut losses = Vec::new();
/// let run = meshwright::train("tiny-llama").data(&text).batch(4, 32).steps(2).out(folder.join("out"));
/// let report = run.parallel("dp=2").progress(|step| losses.push(step.loss)).run()?;
/// assert_eq!((report.run.devices, losses.len()), (2, 2));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn train<'a>(model: impl Into<ModelInput>) -> TrainBuilder<'a> {
    let (model, source) = model.into().named();
    let given = Given { model: source.map(|source| *source), tokens: None };
    TrainBuilder { given, ..TrainBuilder::from(TrainRequest { model, ..TrainRequest::default() }) }
}

/// Request of a training run with typed setters; [`train`](fn@train) starts one. The defaults are those of `meshwright train`.
#[must_use = "a builder does nothing until `run`"]
pub struct TrainBuilder<'a> {
    request: TrainRequest,
    given: Given,
    observer: Observer<'a>,
}

impl From<TrainRequest> for TrainBuilder<'_> {
    fn from(request: TrainRequest) -> Self {
        TrainBuilder { request, given: Given::default(), observer: Observer::default() }
    }
}

impl<'a> TrainBuilder<'a> {
    /// Sets the text: a file, or a folder of text files; default: the current folder.
    pub fn data(mut self, path: impl Into<PathBuf>) -> Self {
        self.request.data = path.into();
        self
    }

    /// Sets tokens of the program's own, in place of text: a source to train on, such as a
    /// [`TokenStream`](data::source::TokenStream) of an iterator, and documents for the validation.
    ///
    /// ```
    /// use meshwright::TokenStream;
    ///
    /// # let folder = std::env::temp_dir().join(format!("meshwright-tokens-{}", std::process::id()));
    /// let digits = |from: u32| (from..from + 40).map(|x| x % 10).collect::<Vec<u32>>();
    /// let train = TokenStream::documents((0..).map(digits));
    /// let run = meshwright::train("tiny-llama").tokens(train, vec![digits(3), digits(7)]).batch(4, 32).steps(2);
    /// let report = run.out(folder.join("out")).run()?;
    /// assert_eq!(report.run.valid_tokens, 64);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Examples have labels of their own, as fine-tuning on answers needs them: a negative label does not count in the loss.
    ///
    /// ```
    /// use meshwright::{TokenPiece, TokenStream};
    ///
    /// # let folder = std::env::temp_dir().join(format!("meshwright-examples-{}", std::process::id()));
    /// let sum = |a: u32, b: u32| TokenPiece::example(vec![a, b, a + b], vec![-100, -100, (a + b) as i32]);
    /// let train = TokenStream::examples((0..).map(move |x| sum(x % 9, x % 7)));
    /// let run = meshwright::train("tiny-llama").tokens(train, [sum(1, 2), sum(3, 4)]).batch(4, 32).steps(2);
    /// let mut counted = Vec::new();
    /// run.out(folder.join("out")).progress(|step| counted.push(step.examples.map(|tokens| tokens.counted))).run()?;
    /// assert_eq!(counted, [Some(40), Some(40)]);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tokens<T>(mut self, train: impl TokenSource + 'static, held_out: impl IntoIterator<Item = T>) -> Self
    where
        T: Into<TokenPiece>,
    {
        let valid = held_out.into_iter().map(Into::into).collect();
        self.given.tokens = Some(OwnTokens { train: Box::new(train), valid });
        self
    }

    /// Sets keys of the configuration, over those set before; default: one device. All devices are threads of this process.
    pub fn parallel(mut self, keys: impl Into<ConfigText>) -> Self {
        self.request.parallel = parallel::pinned(&self.request.parallel, &keys.into().0);
        self
    }

    /// Sets the batch of a step: the number of sequences over all ranks, and the tokens of each; default: 16 of 128.
    pub fn batch(mut self, sequences: u64, tokens: u64) -> Self {
        (self.request.global_batch, self.request.seq) = (sequences, tokens);
        self
    }

    /// Sets the number of steps; default: 400.
    pub fn steps(mut self, steps: u64) -> Self {
        self.request.steps = steps;
        self
    }

    /// Sets the learning rate after warm-up, and the steps of warm-up; default: 2e-3 after 40.
    pub fn learning_rate(mut self, rate: f64, warmup: u64) -> Self {
        (self.request.lr, self.request.warmup) = (rate, warmup);
        self
    }

    /// Sets the optimizer: `adamw` (default), `muon` or `sgd`.
    pub fn optimizer(mut self, optimizer: impl Into<OptimizerText>) -> Self {
        self.request.optimizer = optimizer.into().0;
        self
    }

    /// Sets the precision: `f32` (default), `bf16`, `f16`, `fp8-block`, `fp8-tensor` or `fp8-delayed`.
    pub fn precision(mut self, precision: impl Into<PrecisionText>) -> Self {
        self.request.precision = precision.into().0;
        self
    }

    /// Sets the seed of the initial parameters and of the order of the data; default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.request.seed = seed;
        self
    }

    /// Sets the folder of `run.toml`, `metrics.jsonl` and the checkpoints; default: `out`.
    pub fn out(mut self, folder: impl Into<PathBuf>) -> Self {
        self.request.out = folder.into();
        self
    }

    /// Saves a checkpoint every `steps` steps, and after the last one; default: none.
    pub fn save_every(mut self, steps: u64) -> Self {
        self.request.save_every = steps;
        self
    }

    /// Resumes from a checkpoint, or from the newest one in the folder of a run.
    pub fn resume(mut self, path: impl Into<PathBuf>) -> Self {
        self.request.resume = Some(path.into());
        self
    }

    /// Begins from the weights of a folder in the form of the Hugging Face hub.
    pub fn init_from(mut self, folder: impl Into<PathBuf>) -> Self {
        self.request.init_from = Some(folder.into());
        self
    }

    /// Reports each step: its loss, gradient norm, learning rate and speed.
    pub fn progress(mut self, step: impl FnMut(&StepRecord) + 'a) -> Self {
        self.observer.step = Box::new(step);
        self
    }

    /// Reports each validation.
    pub fn validations(mut self, evaluated: impl FnMut(&EvalRecord) + 'a) -> Self {
        self.observer.evaluated = Box::new(evaluated);
        self
    }

    /// Ends the run once `token` is cancelled: it finishes the current step, saves a checkpoint, and returns an error with
    /// [`Code::Cancelled`](ir::catalogue::Code::Cancelled). [`resume`](Self::resume) continues it.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.observer.cancel = token.clone();
        self
    }

    /// Changes the fields of the request that have no setter.
    pub fn with(mut self, change: impl FnOnce(&mut TrainRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// Trains and validates, and writes the outputs.
    ///
    /// # Errors
    /// The request is invalid or not supported, a rank failed, the loss is not finite, a file cannot be read or written, or the
    /// token is cancelled.
    pub fn run(self) -> Result<TrainReport, Error> {
        let TrainBuilder { request, given, mut observer } = self;
        Ok(train::train_given(given, &request, &mut observer)?)
    }
}

/// Observer of a run that calls the callbacks of a builder.
struct Observer<'a> {
    step: Box<dyn FnMut(&StepRecord) + 'a>,
    evaluated: Box<dyn FnMut(&EvalRecord) + 'a>,
    cancel: CancelToken,
}

impl Default for Observer<'_> {
    fn default() -> Self {
        Observer { step: Box::new(|_| ()), evaluated: Box::new(|_| ()), cancel: CancelToken::new() }
    }
}

impl Progress for Observer<'_> {
    fn started(&mut self, _: &RunHeader) {}

    fn step(&mut self, step: &StepRecord) {
        (self.step)(step);
    }

    fn evaluating(&mut self, _: u64) {}

    fn evaluated(&mut self, eval: &EvalRecord) {
        (self.evaluated)(eval);
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}
