//! Request of a plan.

use estimator::EstimateRequest;
use serde::{Deserialize, Serialize};

/// The quantity to minimise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The time of a step, among what fits.
    #[default]
    Time,
    /// The memory of the worst rank.
    Memory,
}

/// A model and a batch, to be planned on a cluster. Fields that are left out have their defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanRequest {
    /// A preset, a `config.json`, or a `.ir` file.
    pub model: String,
    /// The hardware: a preset, or a TOML file.
    pub cluster: String,
    /// The software: a preset, or a TOML file.
    pub stack: String,
    /// Devices: as many are used.
    pub gpus: u64,
    /// Given, fewer may be used too: any number up to this one, and `gpus` is the least.
    pub max_gpus: Option<u64>,
    /// Tokens per sequence.
    pub seq: u64,
    /// Sequences per step, all ranks together.
    pub global_batch: u64,
    /// Number formats: see [`recipe`](estimator::recipe()).
    pub precision: String,
    /// Type of accumulated gradients and of those on the wire; left out: as the stack has it.
    pub grad_dtype: Option<String>,
    /// Type of the master copy of parameters, or `none`; left out: f32 where parameters are not.
    pub master: Option<String>,
    /// `adamw`, `momentum` or `sgd`.
    pub optimizer: String,
    /// Lengths of the documents of a sequence, in tokens. Empty: one document.
    pub lengths: Vec<u64>,
    /// Pinned items of the configuration, in the grammar of [`compiler::parallel`].
    pub pin: String,
    /// How many configurations are wanted, the best one included.
    pub top: usize,
    /// The quantity to minimise.
    pub objective: Objective,
    /// Seconds within which there is an answer, with what is known by then: it depends on the machine.
    pub deadline: Option<f64>,
    /// Every configuration is predicted, none is ruled out by a bound.
    pub exhaustive: bool,
    /// Tokens to train on in all: the plan says how many days.
    pub tokens: Option<f64>,
    /// The share of a device's memory that stays free.
    pub memory_margin: f64,
    /// True if configurations may have what the stack does not support.
    pub beyond_stack: bool,
}

impl Default for PlanRequest {
    fn default() -> PlanRequest {
        let EstimateRequest { model, cluster, stack, precision, optimizer, memory_margin, .. } =
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
            memory_margin,
            beyond_stack: false,
        }
    }
}

impl PlanRequest {
    /// Creates a request from the fields without defaults: model, cluster, devices, tokens of a sequence, sequences of a step.
    pub fn new(model: &str, cluster: &str, gpus: u64, seq: u64, global_batch: u64) -> PlanRequest {
        let (model, cluster) = (model.to_string(), cluster.to_string());
        PlanRequest { model, cluster, gpus, seq, global_batch, ..PlanRequest::default() }
    }

    /// The least and the most devices that may be used.
    pub fn devices(&self) -> [u64; 2] {
        [self.gpus, self.max_gpus.unwrap_or(self.gpus)]
    }

    /// The same job under a configuration, to be predicted.
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
            memory_margin: self.memory_margin,
            beyond_stack: self.beyond_stack,
        }
    }
}
