//! Request of a plan.

use compiler::parallel;
use estimator::{EstimateRequest, Predicted};
use ir::options::ParallelConfig;
use serde::{Deserialize, Serialize};
use support::quantities::Price;

/// Objective to minimise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Step time, among configurations that fit.
    #[default]
    Time,
    /// Memory of the worst rank.
    Memory,
}

impl Objective {
    /// Value of a prediction: seconds of the step, or GiB of the fullest device.
    pub fn value(self, predicted: &Predicted) -> f64 {
        match self {
            Objective::Time => predicted.step_time_s,
            Objective::Memory => predicted.fullest().device,
        }
    }
}

/// A model and a batch to plan on a cluster. Missing fields have their defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanRequest {
    /// A preset, a `config.json`, or a `.ir` file.
    pub model: String,
    /// The hardware: a preset, or a TOML file.
    pub cluster: String,
    /// The software: a preset, or a TOML file.
    pub stack: String,
    /// Number of devices.
    pub gpus: u64,
    /// Largest number of devices. If given, `gpus` is the smallest number.
    pub max_gpus: Option<u64>,
    /// Tokens per sequence.
    pub seq: u64,
    /// Sequences per step, all ranks together.
    pub global_batch: u64,
    /// Number formats: see [`recipe`](estimator::recipe()).
    pub precision: String,
    /// Type of accumulated and communicated gradients; `None`: as the stack has it.
    pub grad_dtype: Option<String>,
    /// Type of the master copy of parameters, or `none`; `None`: f32 unless the parameters are f32.
    pub master: Option<String>,
    /// `adamw`, `momentum` or `sgd`.
    pub optimizer: String,
    /// Lengths of the documents of a sequence, in tokens. Empty: one document.
    pub lengths: Vec<u64>,
    /// Pinned options, in the grammar of [`compiler::parallel`].
    pub pin: String,
    /// Number of configurations to return, the best one included.
    pub top: usize,
    /// Objective to minimise.
    pub objective: Objective,
    /// Seconds until the answer, which then has the best found so far and depends on the machine.
    pub deadline: Option<f64>,
    /// `true` to predict every configuration instead of pruning by bounds.
    pub exhaustive: bool,
    /// Number of tokens to train on; the plan then has the number of days and of device hours.
    pub tokens: Option<f64>,
    /// Price of an hour of a device, in any unit: the plan then has the price of tokens, and with `tokens` that of the training.
    #[serde(with = "super::price")]
    pub price: Option<Price>,
    /// Largest chance that a device runs out of memory, in percent.
    pub headroom: f64,
    /// Fraction of a device's memory that stays free, in place of the headroom.
    pub memory_margin: Option<f64>,
    /// `true` to allow options that the stack does not support.
    pub beyond_stack: bool,
    /// Share of the step by which the plan may be slower than the nominally fastest configuration if it is simpler.
    pub tie: f64,
}

/// Default of [`PlanRequest::tie`]. Predictions order few pairs of published runs that differ by less
/// ([`TIE`](crate::explain::TIE)), and less than half of that is at stake.
const SIMPLER: f64 = 0.02;

impl Default for PlanRequest {
    fn default() -> PlanRequest {
        let EstimateRequest { model, cluster, stack, precision, optimizer, headroom, memory_margin, .. } =
            EstimateRequest::default();
        PlanRequest {
            model,
            cluster,
            stack,
            gpus: 0,
            max_gpus: None,
            seq: 0,
            global_batch: 0,
            precision,
            grad_dtype: None,
            master: None,
            optimizer,
            lengths: Vec::new(),
            pin: String::new(),
            top: 5,
            objective: Objective::Time,
            deadline: None,
            exhaustive: false,
            tokens: None,
            price: None,
            headroom,
            memory_margin,
            beyond_stack: false,
            tie: SIMPLER,
        }
    }
}

impl PlanRequest {
    /// A request from the fields without defaults: model, cluster, number of devices, tokens per sequence, sequences per step.
    pub fn new(model: &str, cluster: &str, gpus: u64, seq: u64, global_batch: u64) -> PlanRequest {
        let (model, cluster) = (model.to_string(), cluster.to_string());
        PlanRequest { model, cluster, gpus, seq, global_batch, ..PlanRequest::default() }
    }

    /// Least and largest number of devices.
    pub fn devices(&self) -> [u64; 2] {
        [self.gpus, self.max_gpus.unwrap_or(self.gpus)]
    }

    /// Request of an estimate of a configuration on its devices.
    pub fn of(&self, parallel: &ParallelConfig) -> EstimateRequest {
        EstimateRequest { gpus: Some(parallel.devices()), ..self.under(parallel::print(parallel)) }
    }

    /// Request of an estimate of the same job under a configuration.
    pub fn under(&self, parallel: String) -> EstimateRequest {
        EstimateRequest {
            model: self.model.clone(),
            cluster: self.cluster.clone(),
            stack: self.stack.clone(),
            gpus: None,
            seq: self.seq,
            global_batch: self.global_batch,
            precision: self.precision.clone(),
            grad_dtype: self.grad_dtype.clone(),
            master: self.master.clone(),
            optimizer: self.optimizer.clone(),
            parallel,
            lengths: self.lengths.clone(),
            headroom: self.headroom,
            memory_margin: self.memory_margin,
            beyond_stack: self.beyond_stack,
        }
    }
}
