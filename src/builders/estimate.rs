//! Builder of an estimate.

use super::values::{ClusterInput, ConfigText, Machine, PrecisionText, StackInput};
use compiler::error::Error;
use compiler::parallel;
use estimator::{EstimateReport, EstimateRequest};

/// Starts the request for step time and memory of a configuration of a model: a preset, the path of a `config.json` or `.ir`
/// file, or the text of a `config.json`.
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
pub fn estimate(model: impl Into<String>) -> EstimateBuilder {
    EstimateBuilder::from(EstimateRequest { model: model.into(), ..EstimateRequest::default() })
}

/// Request of an estimate with typed setters; [`estimate`](fn@estimate) starts one. It must name a batch.
#[must_use = "a builder does nothing until `run`"]
pub struct EstimateBuilder {
    request: EstimateRequest,
    machine: Machine,
}

impl From<EstimateRequest> for EstimateBuilder {
    fn from(request: EstimateRequest) -> EstimateBuilder {
        EstimateBuilder { request, machine: Machine::default() }
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
    pub fn optimizer(mut self, name: impl Into<String>) -> Self {
        self.request.optimizer = name.into();
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
        self.machine.estimator(&self.request.cluster)?.estimate(&self.request)
    }
}
