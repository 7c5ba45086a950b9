//! Builder of an estimate.

use super::values::{ClusterInput, ConfigText, Machine, ModelInput, OptimizerText, PrecisionText, StackInput};
use crate::error::Error;
use compiler::model_source::ModelSource;
use compiler::parallel;
use estimator::{EstimateReport, EstimateRequest};

/// Starts the request for step time and memory of a configuration of a model: a preset, the path of a `config.json` or `.ir`
/// file, the text of a `config.json`, or a [`Model`](ir::graph::Model) or [`ModelConfig`](ir::models::ModelConfig).
///
/// ```
/// use meshwright::{DType, ParallelConfig};
///
/// let config = ParallelConfig { tp: 4, pp: 2, sp: true, zero: 1, ..Default::default() };
/// let request = meshwright::estimate("llama3-8b").on("h100", 64).batch(128, 8192).precision(DType::BF16);
/// let report = request.parallel(config).run()?;
/// assert_eq!(report.parallel.dp, 8);
/// println!("{report}");
/// # Ok::<(), meshwright::Error>(())
/// ```
pub fn estimate(model: impl Into<ModelInput>) -> EstimateBuilder {
    let (model, source) = model.into().named();
    EstimateBuilder { source, ..EstimateBuilder::from(EstimateRequest { model, ..EstimateRequest::default() }) }
}

/// Request of an estimate with typed setters; [`estimate`](fn@estimate) starts one. It must name a batch.
#[must_use = "a builder does nothing until `run`"]
pub struct EstimateBuilder {
    request: EstimateRequest,
    source: Option<Box<ModelSource>>,
    machine: Machine,
}

impl From<EstimateRequest> for EstimateBuilder {
    fn from(request: EstimateRequest) -> EstimateBuilder {
        EstimateBuilder { request, source: None, machine: Machine::default() }
    }
}

impl EstimateBuilder {
    /// Sets the cluster and the number of its devices. Without it, the cluster is `h100`, and the devices are those of the
    /// configuration.
    ///
    /// ```
    /// use meshwright::Cluster;
    ///
    /// let mut cluster = Cluster::find("h100")?;
    /// cluster.name = "h100 with half the memory".to_string();
    /// cluster.device.memory /= 2;
    /// let report = meshwright::estimate("llama3-8b").on(cluster, 8).batch(64, 8192).parallel("tp=2").run()?;
    /// assert!(!report.predicted.fits);
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    pub fn on(mut self, cluster: impl Into<ClusterInput>, gpus: u64) -> Self {
        self.request.cluster = self.machine.on(cluster.into());
        self.request.gpus = Some(gpus);
        self
    }

    /// Sets the training software; default: `megatron-core-2025`.
    pub fn stack(mut self, stack: impl Into<StackInput>) -> Self {
        self.request.stack = self.machine.with(stack.into());
        self
    }

    /// Sets the batch of a step: the number of sequences over all ranks, and the tokens of each.
    pub fn batch(mut self, sequences: u64, tokens: u64) -> Self {
        (self.request.global_batch, self.request.seq) = (sequences, tokens);
        self
    }

    /// Sets the number formats; default: `bf16`.
    pub fn precision(mut self, precision: impl Into<PrecisionText>) -> Self {
        self.request.precision = precision.into().0;
        self
    }

    /// Sets the optimizer: `adamw` (default), `adamw-bf16`, `momentum` or `sgd`.
    pub fn optimizer(mut self, optimizer: impl Into<OptimizerText>) -> Self {
        self.request.optimizer = optimizer.into().0;
        self
    }

    /// Sets keys of the configuration, over those set before. The data-parallel degree follows from the number of devices if
    /// no key sets it.
    pub fn parallel(mut self, keys: impl Into<ConfigText>) -> Self {
        self.request.parallel = parallel::pinned(&self.request.parallel, &keys.into().0);
        self
    }

    /// Sets the memory of each device in bytes; default: the cluster's.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.machine.memory(bytes);
        self
    }

    /// Changes the fields of the request that have no setter.
    pub fn with(mut self, change: impl FnOnce(&mut EstimateRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// Predicts the step. A configuration that does not fit in memory gets a prediction too, with `fits` false.
    ///
    /// # Errors
    /// A name is not known, a size is missing or out of range, or the configuration fits neither the devices nor the model.
    pub fn run(self) -> Result<EstimateReport, Error> {
        let estimator = self.machine.estimator(self.source.as_deref(), &self.request.cluster)?;
        Ok(estimator.estimate(&self.request)?)
    }

    /// Predicts the step of each configuration, its keys over those of [`parallel`](Self::parallel), in their order.
    /// Configurations share the work that they have in common.
    ///
    /// ```
    /// let request = meshwright::estimate("llama3-8b").on("h100", 8).batch(64, 8192).parallel("zero=1");
    /// let reports = request.sweep(["tp=2", "tp=4", "tp=3"])?;
    /// assert!(reports[0].is_ok() && reports[1].is_ok() && reports[2].is_err());
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    ///
    /// # Errors
    /// The cluster, the stack or the model is not known. The error of a configuration is in its place of the answer.
    pub fn sweep<C: Into<ConfigText>>(
        self,
        configs: impl IntoIterator<Item = C>,
    ) -> Result<Vec<Result<EstimateReport, Error>>, Error> {
        let estimator = self.machine.estimator(self.source.as_deref(), &self.request.cluster)?;
        let estimate = |config: C| {
            let parallel = parallel::pinned(&self.request.parallel, &config.into().0);
            Ok(estimator.estimate(&EstimateRequest { parallel, ..self.request.clone() })?)
        };
        Ok(configs.into_iter().map(estimate).collect())
    }
}
