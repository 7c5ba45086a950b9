//! Progress and final reports of a training run.

use super::first_weights::FirstWeights;
use crate::learning_rate::LearningRate;
use crate::metrics::{EvalRecord, StepRecord};
use data::packing::{ExampleCounts, LossOn};
use ir::optimizer::Optimizer;
use ir::options::ParallelConfig;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trace::{KernelTime, Peak};

/// Observer of a training run.
pub trait Progress {
    /// Called before the first step, when the model is compiled and loaded.
    fn started(&mut self, run: &RunHeader);
    /// Called after each step.
    fn step(&mut self, step: &StepRecord);
    /// Called before a validation, with its number of batches.
    fn evaluating(&mut self, batches: u64);
    /// Called after each batch of a validation, with the number of batches done.
    fn batch_evaluated(&mut self, done: u64) {
        let _ = done;
    }
    /// Called after a validation.
    fn evaluated(&mut self, eval: &EvalRecord);
    /// Called with a note for the user; the run continues.
    fn noted(&mut self, _note: &str) {}
    /// Returns the signal that asks the run to end early, if any. The run then saves a checkpoint.
    fn asked_to_end(&self) -> Option<Signal> {
        None
    }
    /// Returns whether the caller asks the run to end early. The run then saves a checkpoint.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Signal that asks a run to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGHUP: the terminal was closed.
    Hangup,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: sent by `kill` and by job schedulers.
    Terminate,
}

impl Signal {
    /// All signals that end a run.
    pub const ALL: [Signal; 3] = [Signal::Hangup, Signal::Interrupt, Signal::Terminate];

    /// Signal number, which is the same on all Unix systems.
    pub fn number(self) -> u8 {
        match self {
            Signal::Hangup => 1,
            Signal::Interrupt => 2,
            Signal::Terminate => 15,
        }
    }

    /// Signal name.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Hangup => "SIGHUP",
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
        }
    }
}

/// Observer that ignores all events.
pub struct Quiet;

impl Progress for Quiet {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, _: &StepRecord) {}
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

/// Description of a run, known before its first step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunHeader {
    /// The model of the request.
    pub model: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Routing of tokens to experts; `None` for a model without experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routed>,
    /// The precision of the request.
    pub precision: String,
    /// The optimizer with all of its settings.
    pub optimizer: Optimizer,
    /// The learning rate of every step.
    pub learning_rate: LearningRate,
    /// Keys of the `config.json` that no family has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_keys: Vec<String>,
    /// Number of virtual devices.
    pub devices: u64,
    /// The devices: `threads of this process`, or `one GPU, an NVIDIA H200`.
    pub place: String,
    /// The axes of the mesh in rank order, innermost last: `pp=2 dp=2 tp=2`.
    pub mesh: String,
    /// The parallel configuration of the run.
    pub parallel: ParallelConfig,
    /// The blocks of each pipeline stage: `embed, layer[0..3]`.
    pub stages: Vec<String>,
    /// Micro-batches per step.
    pub microbatches: u32,
    /// Sequences per step.
    pub global_batch: u64,
    /// Tokens per sequence.
    pub seq: u64,
    /// Number of steps of the run.
    pub steps: u64,
    /// Steps of the checkpoint from which the run is resumed.
    pub done: u64,
    /// The checkpoint from which the run is resumed.
    pub resumed: Option<PathBuf>,
    /// The weights that the run begins from, if it does not draw them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<FirstWeights>,
    /// Path of the text or the tokens.
    pub data: PathBuf,
    /// The sets of a blend, which is trained on instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blend: Vec<SetShare>,
    /// Number of text files.
    pub documents: u64,
    /// Number of training tokens.
    pub train_tokens: u64,
    /// Number of held-out tokens.
    pub valid_tokens: u64,
    /// The name of a token, in the plural: `bytes`, or `tokens` of tokenised data.
    pub unit: &'static str,
    /// The examples of data with labels of its own; none of other data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examples: Option<ExampleReport>,
    /// Bytes of held-out text for each token, ends of documents included; `None` if they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_token: Option<f64>,
    /// Baseline: cross-entropy of a held-out byte given the byte before it, in nats, by counts of the training part.
    pub bigram_entropy: Option<f64>,
}

impl RunHeader {
    /// Tokens per step.
    pub fn tokens_per_step(&self) -> u64 {
        self.global_batch * self.seq
    }
}

/// A set of data of a blend.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SetShare {
    /// Path of the text or the tokens.
    pub data: PathBuf,
    /// Its share of the sequences; all sum to 1.
    pub share: f64,
    /// Number of its training tokens.
    pub train_tokens: u64,
}

/// Examples in windows, of both sides of the data.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ExampleReport {
    /// The tokens that count in the loss.
    pub loss_on: LossOn,
    /// Examples to train on.
    pub train: ExampleCounts,
    /// Examples that are held out.
    pub valid: ExampleCounts,
}

/// Routing of tokens to experts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Routed {
    /// Number of experts of a layer.
    pub experts: u64,
    /// Number of experts per token.
    pub chosen: u64,
    /// Tokens that are routed together.
    pub group: u64,
    /// Capacity: tokens of a group that an expert takes. Further choices of this expert are dropped.
    pub capacity: u64,
    /// Expected share of dropped choices under uniform routing.
    pub expected: f64,
    /// Number of choices per step, over all layers.
    pub choices: u64,
}

/// Result of a run, printed by `train --format json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TrainReport {
    /// Name and version of the schema: `meshwright.train/1`.
    pub schema: &'static str,
    /// Description of the run.
    #[serde(flatten)]
    pub run: RunHeader,
    /// Training loss in nats per token: mean over the valid labels of the last tenth of the steps, at least one. `None`
    /// if a resumed run did none of these steps and has no record of them.
    pub train_loss: Option<f64>,
    /// Share of expert choices dropped in these steps because the expert was full; `None` for a model without experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// Number of dropped expert choices since the run was resumed, and the number of choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_choices: Option<[u64; 2]>,
    /// Steps of the whole run whose update was skipped, because the norm of the gradient was not finite.
    pub skipped: u64,
    /// Validation loss in nats per token: mean over the valid labels of the held-out part. The end of a document is a
    /// token like any other. A label across the border of a chunk is ignored.
    pub valid_loss: f64,
    /// Perplexity by token: the exponential of `valid_loss`.
    pub perplexity: f64,
    /// Perplexity by byte of the held-out text; `None` if files of tokens do not say how many bytes their text has.
    pub byte_perplexity: Option<f64>,
    /// Share of the held-out part on which `valid_loss` was measured.
    pub valid_share: f64,
    /// Gain over the baseline: `bigram_entropy - valid_loss`.
    pub below_bigram: Option<f64>,
    /// Number of tokens trained on since the run was resumed.
    pub tokens: u64,
    /// Tokens per second of training, without validation and checkpoints.
    pub tokens_per_s: f64,
    /// Seconds from the first step to the end of the last validation.
    pub seconds: f64,
    /// Seconds in which training waited for checkpoints; the rest of the work for them goes on during steps.
    pub save_s: f64,
    /// Path of the last saved checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Folder of the outputs.
    pub out: PathBuf,
    /// The profile, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReport>,
}

/// Profile of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProfileReport {
    /// Number of measured steps: all but the first, which is a warm-up.
    pub steps: u64,
    /// Seconds per step, from the first command to the devices to their last answer.
    pub step_s: f64,
    /// Number of ranks.
    pub ranks: u64,
    /// Number of ranks that compute at the same time: at most the number of cores, 1 on a GPU, on which they take turns.
    pub at_once: u64,
    /// Peak rates of the machine or its GPU, measured before the run.
    pub peak: Peak,
    /// The operations that they were measured with.
    pub peak_by: &'static str,
    /// Matrix products and attention FLOPs of the model, per second of a step.
    pub model_flops_per_s: f64,
    /// Shares of the ranks' time: kernels by kind, communication by axes, waiting, idle. They sum to 1.
    pub shares: BTreeMap<String, f64>,
    /// Kernels by op and shapes, longest first.
    pub kernels: Vec<KernelTime>,
}

/// Returns the mean, or `None` of no numbers.
pub(super) fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}
