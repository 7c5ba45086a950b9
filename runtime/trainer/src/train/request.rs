//! Request of a training run; `run.toml` has the same fields.

use super::backend::BACKENDS;
use super::comm::{Comm, sums};
use super::inject::Faults;
use crate::error::Error;
use comm::Limits;
use compiler::batch::ConfigOptions;
use compiler::compile::DEFAULT_SEQ;
use compiler::parallel;
use compiler::precision::precision;
use data::text::DEFAULT_VALID_FRACTION;
use exec::Options;
use ir::catalogue::Code;
use ir::optimizer::Matrices;
use ir::options::ParallelConfig;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A training run. Every missing field has its default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainRequest {
    /// A preset, a `config.json`, or a `.ir` file.
    pub model: String,
    /// The configuration in the grammar of [`parallel`].
    #[serde(alias = "mesh")]
    pub parallel: String,
    /// Sequences per micro-batch and data-parallel rank; overrides `parallel`. By default at most 8, and few enough to
    /// leave two micro-batches per pipeline stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbs: Option<u64>,
    /// Sequence parallelism; overrides `mesh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sp: Option<bool>,
    /// ZeRO stage; overrides `mesh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<u8>,
    /// Pipeline schedule; overrides `mesh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Path of a text file, of a folder of text files, or of tokenised data: a prefix of `.bin` and `.idx`, or a file.
    pub data: PathBuf,
    /// Several sets of data instead of `data`, each with its share of the sequences: `web:0.7,books:0.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blend: Option<String>,
    /// Form of tokenised data that does not say it: `raw-u16` or `raw-u32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_format: Option<String>,
    /// The token that ends a document, in forms that have no index of documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos: Option<u32>,
    /// Tokens that count in the loss of data with labels of its own: `completion`, those whose label counts, or `all`; default: `completion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_on: Option<String>,
    /// Tokenised data for validation, instead of a part of `data` or of each set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<PathBuf>,
    /// Share of the bytes that is held out.
    pub valid_fraction: f64,
    /// Number of optimizer steps.
    pub steps: u64,
    /// Tokens per sequence.
    pub seq: u64,
    /// Sequences per step.
    pub global_batch: u64,
    /// Learning rate after warm-up.
    pub lr: f64,
    /// Learning rate at the end; default: a tenth of `lr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_lr: Option<f64>,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Course of the learning rate after the warm-up: `cosine`, `linear`, `wsd` (`lr`, then a line in the last `decay_steps`) or
    /// `constant`, which never comes to `min_lr`.
    pub lr_schedule: String,
    /// Steps in which the rate of `wsd` falls, the last ones; default: a tenth of `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay_steps: Option<u64>,
    /// Update rule: `adamw`, `muon` or `sgd`.
    pub optimizer: String,
    /// Decay of the mean of gradients, of `adamw` and of what `muon` leaves to it; default: 0.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// Decay of the mean of squared gradients, of the same; default: 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f64>,
    /// Added to the root of the second mean, of the same; default: 1e-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// Decay of the velocity of `sgd`, by default 0, which has none, and of the mean of `muon`, by default 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// True for Nesterov's momentum: the default of `muon`, not of `sgd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nesterov: Option<bool>,
    /// The matrices that `muon` makes orthogonal where a model has the parts of one apart, as latent attention has: each part, `split`, or
    /// `whole` ones; default: `split`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrices: Option<Matrices>,
    /// Weight decay of the parameters that are declared to decay.
    pub weight_decay: f64,
    /// Bound of the gradient norm; 0 for none.
    pub clip: f64,
    /// Steps of the run whose update may be skipped because the gradient's norm is not finite.
    pub skip_nonfinite: u64,
    /// Seed of the initial parameters and of the data order.
    pub seed: u64,
    /// Precision of parameters and compute: f32, bf16, f16, fp8-block, fp8-tensor or fp8-delayed.
    pub precision: String,
    /// Name of the backend.
    pub backend: String,
    /// Steps between validations; 0 for only one at the end.
    pub eval_every: u64,
    /// Batches of a validation between steps, each of the global batch size.
    pub eval_batches: u64,
    /// Largest number of batches of the final validation, spread over the held-out part; 0 for all of it. By default as many as the
    /// run has steps, from 4 to 256: a batch costs about a third of a step, so that it takes at most a quarter of a run of 4 steps or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_eval_batches: Option<u64>,
    /// Steps between checkpoints, with one after the last step; 0 for none.
    pub save_every: u64,
    /// Number of newest checkpoints to keep.
    pub keep_last: u64,
    /// Checkpoint to resume from: its folder, or a run's folder for its newest one; empty for `out`. The field does not
    /// describe the run, and is not written to `run.toml`.
    #[serde(skip_serializing)]
    pub resume: Option<PathBuf>,
    /// Folder of weights to begin from, in the form of the hub: `config.json` and `safetensors`. The first step is 1, with fresh
    /// optimizer states. A resumed run has the weights of its checkpoint instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_from: Option<PathBuf>,
    /// Folder of `run.toml`, `metrics.jsonl` and checkpoints.
    pub out: PathBuf,
    /// Steps between records of the tokens of each expert; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub routing_every: u64,
    /// Steps between comparisons of the replicas of parameters and states; 0 for none.
    pub check_replicas: u64,
    /// True to compare all of the data of several processes at the start, not only its sizes, its index and blocks spread over it. This and
    /// all further fields are not written to `run.toml` either.
    #[serde(skip_serializing)]
    pub compare_data: bool,
    /// Processes of the ranks: `threads` for this one alone, or `looped:PROCESSES`, joined by a wire in memory.
    #[serde(skip_serializing)]
    pub comm: String,
    /// True if nobody else can reach the network of the processes, so that they need no secret.
    #[serde(skip_serializing)]
    pub trusted_network: bool,
    /// Sums of ranks in several processes: `exact`, by the ranks, or `engine`, by what joins the processes. Default: `engine` with NCCL,
    /// else `exact`.
    #[serde(skip_serializing)]
    pub sums: Option<String>,
    /// Seconds after which a process that says nothing has failed, and after which processes that all wait do so for each other.
    #[serde(skip_serializing)]
    pub silence: f64,
    /// Seconds after which a rank that stays at one instruction is stuck, or 20 times its longest instruction so far if that is more. In
    /// the first step and the first validation they are 300 at least.
    #[serde(skip_serializing)]
    pub timeout: f64,
    /// True to run statements one by one instead of in groups.
    #[serde(skip_serializing)]
    pub no_fusion: bool,
    /// True to launch the kernels of a step one by one instead of as a CUDA graph.
    #[serde(skip_serializing)]
    pub no_graphs: bool,
    /// True to time several algorithms of a GPU for each product at load, and take the fastest.
    #[serde(skip_serializing)]
    pub time_products: bool,
    /// True to fill what is freed with poison.
    #[serde(skip_serializing)]
    pub poison: bool,
    /// True to profile the run by op, by kernel and by wait reason.
    #[serde(skip_serializing)]
    pub profile: bool,
    /// Output file of the trace of one step, for ui.perfetto.dev.
    #[serde(skip_serializing)]
    pub trace: Option<PathBuf>,
    /// Step that `trace` records; default: the last.
    #[serde(skip_serializing)]
    pub trace_step: Option<u64>,
    /// Faults that the run has, to test what finds them: `nan=STEP:RANK`, `flip=STEP:RANK`, `slow=RANK:MILLISECONDS`,
    /// `stuck=STEP:RANK`.
    #[doc(hidden)]
    #[serde(skip_serializing)]
    pub inject: Option<String>,
}

impl Default for TrainRequest {
    /// The example of the README: a small Llama on local text, which trains in minutes on two cores.
    fn default() -> TrainRequest {
        TrainRequest {
            model: "tiny-llama".into(),
            parallel: "dp=1".into(),
            mbs: None,
            sp: None,
            zero: None,
            schedule: None,
            data: ".".into(),
            blend: None,
            data_format: None,
            eos: None,
            loss_on: None,
            valid: None,
            valid_fraction: DEFAULT_VALID_FRACTION,
            steps: 400,
            seq: DEFAULT_SEQ,
            global_batch: 16,
            lr: 2e-3,
            min_lr: None,
            warmup: 40,
            lr_schedule: "cosine".into(),
            decay_steps: None,
            optimizer: "adamw".into(),
            beta1: None,
            beta2: None,
            eps: None,
            momentum: None,
            nesterov: None,
            matrices: None,
            weight_decay: 0.1,
            clip: 1.0,
            skip_nonfinite: 0,
            seed: 0,
            precision: "f32".into(),
            backend: "cpu".into(),
            eval_every: 100,
            eval_batches: 4,
            final_eval_batches: None,
            save_every: 0,
            keep_last: 3,
            resume: None,
            init_from: None,
            out: "out".into(),
            routing_every: 0,
            check_replicas: 0,
            compare_data: false,
            comm: "threads".into(),
            trusted_network: false,
            sums: None,
            silence: Limits::default().silence.as_secs_f64(),
            timeout: Options::default().timeout.as_secs_f64(),
            no_fusion: false,
            no_graphs: false,
            time_products: false,
            poison: false,
            profile: false,
            trace: None,
            trace_step: None,
            inject: None,
        }
    }
}

impl TrainRequest {
    /// The configuration: the text `parallel`, overridden by the separate fields.
    ///
    /// # Errors
    /// It cannot be.
    pub fn parallel(&self) -> Result<ParallelConfig, Error> {
        let (text, schedule) = (self.parallel.as_str(), self.schedule.as_deref());
        let options = ConfigOptions { text, mbs: self.mbs, sp: self.sp, zero: self.zero, schedule };
        Ok(options.resolve(|parallel| default_mbs(self.global_batch, parallel))?)
    }

    /// Returns the request with all defaults resolved, as `run.toml` records it.
    ///
    /// # Errors
    /// A field has a value out of its range.
    pub fn resolved(&self) -> Result<TrainRequest, Error> {
        let parallel = parallel::print(&self.parallel()?);
        let request = TrainRequest { parallel, mbs: None, sp: None, zero: None, schedule: None, ..self.clone() };
        let request = request.with_settings()?;
        request.check()?;
        Ok(request)
    }

    /// Checks that the trace can be recorded, before the run rather than at its end.
    fn check_trace(&self) -> Result<(), Error> {
        if let Some(step) = self.trace_step.filter(|step| !(1..=self.steps).contains(step)) {
            return Err(option(format!("`trace_step` is {step}, but the steps are 1 to {}", self.steps)));
        }
        let folder = self.trace.as_ref().and_then(|path| path.parent()).filter(|folder| !folder.as_os_str().is_empty());
        match folder {
            Some(folder) if !folder.is_dir() => {
                let message = format!("cannot write a trace into {}: there is no such folder", folder.display());
                Err(Error::input(Code::FileUnreadable, message).help("create the folder, or correct --trace"))
            }
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Error> {
        precision(&self.precision)?;
        check_backend(&self.backend)?;
        Comm::parse(&self.comm)?;
        sums(self.sums.as_deref())?;
        Faults::parse(self.inject.as_deref())?;
        self.check_trace()?;
        let counts = [("steps", self.steps), ("seq", self.seq), ("global_batch", self.global_batch)];
        let others = [("keep_last", self.keep_last), ("decay_steps", self.decay_steps.unwrap_or(1))];
        for (name, value) in counts.into_iter().chain(others) {
            if value == 0 {
                return Err(option(format!("`{name}` is 0, but must be 1 or more")));
            }
        }
        let rates = [("lr", self.lr), ("min_lr", self.min_lr.unwrap_or(0.0))];
        for (name, value) in rates.into_iter().chain([("weight_decay", self.weight_decay), ("clip", self.clip)]) {
            if !value.is_finite() || value < 0.0 {
                return Err(option(format!("`{name}` is {value}, but must be finite and not negative")));
            }
        }
        for (name, seconds) in [("silence", self.silence), ("timeout", self.timeout)] {
            if !(0.1..=86_400.0).contains(&seconds) {
                return Err(option(format!("`{name}` is {seconds}, but must be 0.1 to 86400 seconds")));
            }
        }
        if self.min_lr.is_some_and(|floor| floor > self.lr) {
            return Err(option(format!("`min_lr` is {}, above `lr` = {}", self.min_lr.unwrap_or(0.0), self.lr)));
        }
        if self.valid_fraction <= 0.0 && self.valid.is_none() {
            return Err(option(format!("`valid_fraction` is {}: nothing would be held out", self.valid_fraction))
                .help("0.1 holds out a tenth of the text"));
        }
        Ok(())
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Checks that the backend exists.
fn check_backend(backend: &str) -> Result<(), Error> {
    if BACKENDS.contains(&backend) {
        return Ok(());
    }
    let help = match backend {
        "null" => "`--backend null` is now `--simulate`",
        _ => "cpu runs every device as a thread of this process, cuda needs a GPU; --simulate only predicts a step",
    };
    Err(option(format!("there is no backend `{backend}`")).help(help))
}

/// The largest split of a rank's sequences up to 8 that leaves each of several stages two micro-batches.
fn default_mbs(global_batch: u64, parallel: &ParallelConfig) -> u64 {
    let rank = global_batch / parallel.dp;
    let mut divisors = (1..=8).rev().filter(|mbs| rank.is_multiple_of(*mbs));
    divisors.find(|mbs| parallel.pp == 1 || rank / mbs >= 2 * parallel.pp).unwrap_or(1)
}

/// An error of an option.
pub(super) fn option(message: String) -> Error {
    Error::input(Code::BadOption, message).help("meshwright train --help lists the options and their values")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolved_request_resolves_to_itself() {
        let request = TrainRequest { mbs: Some(2), zero: Some(1), ..TrainRequest::default() };
        let resolved = request.resolved().unwrap();
        assert_eq!(resolved.parallel().unwrap(), ParallelConfig { mbs: 2, zero: 1, ..ParallelConfig::default() });
        assert_eq!(resolved.resolved().unwrap(), resolved);
        let text = toml::to_string(&resolved).unwrap();
        assert_eq!(toml::from_str::<TrainRequest>(&text).unwrap(), resolved);
    }

    #[test]
    fn micro_batches_fill_the_pipeline_unless_told() {
        let mbs =
            |mesh: &str| TrainRequest { parallel: mesh.into(), ..TrainRequest::default() }.parallel().unwrap().mbs;
        assert_eq!(["dp=1", "dp=2,pp=2", "pp=8", "dp=16", "mbs=3"].map(mbs), [8, 2, 1, 1, 3]);
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        let base = TrainRequest::default;
        for (request, part) in [
            (TrainRequest { precision: "f64".into(), ..base() }, "f64"),
            (TrainRequest { optimizer: "adam".into(), ..base() }, "adamw, muon or sgd"),
            (TrainRequest { backend: "tpu".into(), ..base() }, "there is no backend `tpu`"),
            (TrainRequest { sums: Some("fast".into()), ..base() }, "`sums` is `fast`"),
            (TrainRequest { steps: 0, ..base() }, "`steps` is 0"),
            (TrainRequest { keep_last: 0, ..base() }, "`keep_last` is 0"),
            (TrainRequest { lr: f64::NAN, ..base() }, "finite"),
            (TrainRequest { min_lr: Some(1.0), ..base() }, "above `lr`"),
            (TrainRequest { silence: f64::NAN, ..base() }, "`silence` is NaN"),
            (TrainRequest { timeout: 0.0, ..base() }, "`timeout` is 0"),
            (TrainRequest { valid_fraction: 0.0, ..base() }, "nothing would be held out"),
        ] {
            let message = request.resolved().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
