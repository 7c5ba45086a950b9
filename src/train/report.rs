//! Progress and final reports of a training run.

use ir::goal::ParallelConfig;
use runtime::metrics::{EvalRecord, StepRecord};
use runtime::trace::{KernelTime, Peak};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Told of a run as it goes.
pub trait Progress {
    /// All is compiled and loaded; the first step is next.
    fn started(&mut self, run: &RunHeader);
    /// A step is done.
    fn step(&mut self, step: &StepRecord);
    /// A validation begins, of so many batches.
    fn evaluating(&mut self, batches: u64);
    /// So many of its batches are done.
    fn batch_evaluated(&mut self, done: u64) {
        let _ = done;
    }
    /// A validation is done.
    fn evaluated(&mut self, eval: &EvalRecord);
    /// Something that a user should know has been seen; the run goes on.
    fn noted(&mut self, _note: &str) {}
    /// Whether the run is asked to end before its last step; it then saves a checkpoint.
    fn asked_to_end(&self) -> Option<Signal> {
        None
    }
}

/// A signal that asks a run to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// The terminal is gone.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// What `kill` sends, and schedulers of jobs.
    Terminate,
}

impl Signal {
    /// All of them.
    pub const ALL: [Signal; 3] = [Signal::Hangup, Signal::Interrupt, Signal::Terminate];

    /// Its number, the same on all Unix systems.
    pub fn number(self) -> u8 {
        match self {
            Signal::Hangup => 1,
            Signal::Interrupt => 2,
            Signal::Terminate => 15,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Hangup => "SIGHUP",
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
        }
    }
}

/// Progress that nobody watches.
pub struct Quiet;

impl Progress for Quiet {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, _: &StepRecord) {}
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

/// What a run is, known before its first step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunHeader {
    /// The model, as asked for.
    pub model: String,
    /// Its parameters.
    pub parameters: u64,
    /// How it deals tokens out to experts; none of a model without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routed>,
    /// Keys of its `config.json` that mean nothing to any family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_keys: Vec<String>,
    /// Virtual devices, each a thread.
    pub devices: u64,
    /// The axes of the mesh in rank order, innermost last: `pp=2 dp=2 tp=2`.
    pub mesh: String,
    /// Who holds what, as asked for.
    pub parallel: ParallelConfig,
    /// The blocks of each pipeline stage: `embed, layer[0..3]`.
    pub stages: Vec<String>,
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// Sequences of a step.
    pub global_batch: u64,
    /// Tokens per sequence.
    pub seq: u64,
    /// Steps.
    pub steps: u64,
    /// Steps that were done before: those of the checkpoint that the run goes on from.
    pub done: u64,
    /// That checkpoint.
    pub resumed: Option<PathBuf>,
    /// Where the text came from.
    pub data: PathBuf,
    /// Text files.
    pub documents: u64,
    /// Tokens to learn from.
    pub train_tokens: u64,
    /// Tokens held out.
    pub valid_tokens: u64,
    /// Cross-entropy of a held-out byte given the one before it, in nats, under counts of the training part.
    pub bigram_entropy: Option<f64>,
}

impl RunHeader {
    /// Tokens of a step.
    pub fn tokens_per_step(&self) -> u64 {
        self.global_batch * self.seq
    }
}

/// How tokens are dealt out to experts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Routed {
    /// Experts of a layer.
    pub experts: u64,
    /// Experts that a token chooses.
    pub chosen: u64,
    /// Tokens that are dealt out together.
    pub group: u64,
    /// Tokens of a group that an expert takes; choices beyond it are dropped.
    pub capacity: u64,
    /// The share of choices that is dropped where all experts are chosen alike.
    pub expected: f64,
    /// Choices of a step, of all layers.
    pub choices: u64,
}

/// How a run ended: `train --format json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TrainReport {
    /// `meshwright.train/1`.
    pub schema: &'static str,
    /// What ran.
    #[serde(flatten)]
    pub run: RunHeader,
    /// Mean over the valid labels of the last steps (a tenth of them, at least one), in nats per token; none if a run that
    /// went on did none of them and has no record of them.
    pub train_loss: Option<f64>,
    /// The share of choices of experts in these steps that were dropped because the expert was full; none of a model without
    /// experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// How many choices of experts were dropped since the run was resumed, and of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_choices: Option<[u64; 2]>,
    /// Mean over the valid labels of the held-out part, in nats per token. An end of document is a token like any other; a
    /// label across the border of a chunk is ignored.
    pub valid_loss: f64,
    /// The share of the held-out part that `valid_loss` was measured on.
    pub valid_share: f64,
    /// `bigram_entropy - valid_loss`: what the model knows beyond pairs of bytes.
    pub below_bigram: Option<f64>,
    /// Tokens trained on, since the run was resumed.
    pub tokens: u64,
    /// Tokens per second of training, without validation and checkpoints.
    pub tokens_per_s: f64,
    /// Seconds from the first step to the end of the last validation.
    pub seconds: f64,
    /// The last checkpoint that was saved.
    pub checkpoint: Option<PathBuf>,
    /// Where the outputs lie.
    pub out: PathBuf,
    /// Where the time went, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReport>,
}

/// Where the time of a run went.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProfileReport {
    /// Steps that were measured: all but the first, which warms up.
    pub steps: u64,
    /// Seconds of a step, from the first order to the last answer of the devices.
    pub step_s: f64,
    /// Ranks.
    pub ranks: u64,
    /// How many of them compute at once: no more than there are cores.
    pub at_once: u64,
    /// What the machine can do, measured just before the run.
    pub peak: Peak,
    /// Matrix products and attention FLOPs of the model, per second of a step.
    pub model_flops_per_s: f64,
    /// Shares of the ranks' time: kernels by kind, communication by axes, waiting, idle. They sum to 1.
    pub shares: BTreeMap<String, f64>,
    /// By op and shapes, the longest first.
    pub kernels: Vec<KernelTime>,
}
