//! Inputs of the builders: each is a name, a text or a typed value.

use crate::error::Error;
use compiler::model_source::ModelSource;
use compiler::parallel;
use cost::{Cluster, Stack};
use estimator::Estimator;
use ir::graph::Model;
use ir::models::ModelConfig;
use ir::options::ParallelConfig;
use ir::text::File;
use ir::types::DType;
use std::path::{Path, PathBuf};

/// Keys of a parallel configuration as text, `tp=2,zero=1`.
///
/// A text fixes the keys that it names. A [`ParallelConfig`] fixes the keys whose value is not the default, so that
/// `ParallelConfig { tp: 2, ..Default::default() }` leaves dp open as `"tp=2"` does. To fix a key at its default, use a text:
/// `"dp=1"`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigText(pub(super) String);

impl From<&str> for ConfigText {
    fn from(text: &str) -> ConfigText {
        ConfigText(text.to_string())
    }
}

impl From<String> for ConfigText {
    fn from(text: String) -> ConfigText {
        ConfigText(text)
    }
}

impl From<ParallelConfig> for ConfigText {
    fn from(config: ParallelConfig) -> ConfigText {
        ConfigText(parallel::print_changed(&config))
    }
}

impl From<&ParallelConfig> for ConfigText {
    fn from(config: &ParallelConfig) -> ConfigText {
        ConfigText(parallel::print_changed(config))
    }
}

/// A number format: the name of a recipe such as `fp8-block`, or a [`DType`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrecisionText(pub(super) String);

impl From<&str> for PrecisionText {
    fn from(text: &str) -> PrecisionText {
        PrecisionText(text.to_string())
    }
}

impl From<String> for PrecisionText {
    fn from(text: String) -> PrecisionText {
        PrecisionText(text)
    }
}

impl From<DType> for PrecisionText {
    fn from(dtype: DType) -> PrecisionText {
        PrecisionText(dtype.name().to_string())
    }
}

/// The update rules by name. Requests have settings such as the weight decay in fields of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateRule {
    /// `adamw`: AdamW, with states in f32.
    AdamW,
    /// `adamw-bf16`: AdamW, with states in bf16; only for estimates.
    AdamWBf16,
    /// `momentum`: stochastic gradient descent with a velocity; not for training.
    Momentum,
    /// `muon`: Muon for matrices of layers, AdamW for all other parameters; only for training.
    Muon,
    /// `sgd`: stochastic gradient descent.
    Sgd,
}

/// An optimizer: the name of an update rule, or an [`UpdateRule`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptimizerText(pub(super) String);

impl From<&str> for OptimizerText {
    fn from(name: &str) -> OptimizerText {
        OptimizerText(name.to_string())
    }
}

impl From<String> for OptimizerText {
    fn from(name: String) -> OptimizerText {
        OptimizerText(name)
    }
}

impl From<UpdateRule> for OptimizerText {
    fn from(rule: UpdateRule) -> OptimizerText {
        match rule {
            UpdateRule::AdamW => "adamw",
            UpdateRule::AdamWBf16 => "adamw-bf16",
            UpdateRule::Momentum => "momentum",
            UpdateRule::Muon => "muon",
            UpdateRule::Sgd => "sgd",
        }
        .into()
    }
}

/// The hardware: the name of a preset, the path of a TOML file, or a [`Cluster`].
#[derive(Clone, PartialEq, Debug)]
pub enum ClusterInput {
    /// A preset, or a path that ends in `.toml`.
    Name(String),
    /// A value, known in the request by its own name.
    Value(Box<Cluster>),
}

impl From<&str> for ClusterInput {
    fn from(name: &str) -> ClusterInput {
        ClusterInput::Name(name.to_string())
    }
}

impl From<String> for ClusterInput {
    fn from(name: String) -> ClusterInput {
        ClusterInput::Name(name)
    }
}

impl From<Cluster> for ClusterInput {
    fn from(cluster: Cluster) -> ClusterInput {
        ClusterInput::Value(Box::new(cluster))
    }
}

/// The training software: the name of a preset, the path of a TOML file, or a [`Stack`].
#[derive(Clone, PartialEq, Debug)]
pub enum StackInput {
    /// A preset, or a path that ends in `.toml`.
    Name(String),
    /// A value, known in the request by its own name.
    Value(Box<Stack>),
}

impl From<&str> for StackInput {
    fn from(name: &str) -> StackInput {
        StackInput::Name(name.to_string())
    }
}

impl From<String> for StackInput {
    fn from(name: String) -> StackInput {
        StackInput::Name(name)
    }
}

impl From<Stack> for StackInput {
    fn from(stack: Stack) -> StackInput {
        StackInput::Value(Box::new(stack))
    }
}

/// A model: a name, a path, or a value. Reports name a [`Model`] by the name in its text.
///
/// ```
/// use meshwright::ModelSource;
///
/// let text = "
/// dims [b=4, h=8]
/// param %w: f32[h] init=constant(1.0) decay=false
/// model @scaled(%x: input f32[b, h]) {
///   call @head(%x; %w)
/// }
/// block @head(%x: input f32[b, h]; %w: param f32[h]) -> loss f32[] {
///   %y: f32[b, h] = mul(%x, %w, eq=\"b h, h -> b h\")
///   %l: f32[] = reduce_sum(%y, eq=\"b h ->\")
///   return %l
/// }";
/// // The source checks the text, and its errors show its lines.
/// let source = ModelSource::read("scaled.ir", text)?;
/// let file = meshwright::compile(source).parallel("dp=2").run()?;
/// assert_eq!(file.model.mesh.devices(), 2);
/// assert!(ModelSource::read("scaled.ir", "dims [b=").is_err_and(|error| error.to_string().contains("scaled.ir:1")));
/// # Ok::<(), meshwright::Error>(())
/// ```
pub enum ModelInput {
    /// A preset, the path of a `config.json`, of its folder or of a `.ir` file, or the text of a `config.json`.
    Name(String),
    /// An opened model.
    Source(Box<ModelSource>),
}

impl From<&str> for ModelInput {
    fn from(name: &str) -> ModelInput {
        ModelInput::Name(name.to_string())
    }
}

impl From<String> for ModelInput {
    fn from(name: String) -> ModelInput {
        ModelInput::Name(name)
    }
}

impl From<&Path> for ModelInput {
    fn from(path: &Path) -> ModelInput {
        ModelInput::Name(path.display().to_string())
    }
}

impl From<PathBuf> for ModelInput {
    fn from(path: PathBuf) -> ModelInput {
        path.as_path().into()
    }
}

impl From<ModelSource> for ModelInput {
    fn from(source: ModelSource) -> ModelInput {
        ModelInput::Source(Box::new(source))
    }
}

impl From<ModelConfig> for ModelInput {
    fn from(config: ModelConfig) -> ModelInput {
        let config = Box::new(config);
        let from = "the configuration".to_string();
        ModelSource::Config { from, text: None, config, unknown: Vec::new(), context: None }.into()
    }
}

impl From<File> for ModelInput {
    fn from(file: File) -> ModelInput {
        let name = if file.model.name.is_empty() { "the model".to_string() } else { file.model.name.clone() };
        ModelSource::of_file(&name, file).into()
    }
}

impl From<Model> for ModelInput {
    fn from(model: Model) -> ModelInput {
        File::from(model).into()
    }
}

impl ModelInput {
    /// The name of the model in requests and reports, and the model where it is in memory.
    pub(super) fn named(self) -> (String, Option<Box<ModelSource>>) {
        match self {
            ModelInput::Name(name) => (name, None),
            ModelInput::Source(source) => (source.name().to_string(), Some(source)),
        }
    }
}

/// Hardware and software that a request has as values, or changes.
#[derive(Default)]
pub(super) struct Machine {
    cluster: Option<Box<Cluster>>,
    stack: Option<Box<Stack>>,
    memory: Option<u64>,
}

impl Machine {
    /// Takes the cluster and returns its name.
    pub(super) fn on(&mut self, cluster: ClusterInput) -> String {
        match cluster {
            ClusterInput::Name(name) => {
                self.cluster = None;
                name
            }
            ClusterInput::Value(cluster) => self.cluster.insert(cluster).name.clone(),
        }
    }

    /// Takes the stack and returns its name.
    pub(super) fn with(&mut self, stack: StackInput) -> String {
        match stack {
            StackInput::Name(name) => {
                self.stack = None;
                name
            }
            StackInput::Value(stack) => self.stack.insert(stack).name.clone(),
        }
    }

    /// Sets the bytes of each device.
    pub(super) fn memory(&mut self, bytes: u64) {
        self.memory = Some(bytes);
    }

    /// An estimator that knows these values and the model in memory; `cluster` is the name of the request's cluster.
    ///
    /// # Errors
    /// The memory of a cluster is set that is not known. The model does not compile, or states its own mesh or gradients.
    pub(super) fn estimator(self, model: Option<&ModelSource>, cluster: &str) -> Result<Estimator, Error> {
        let mut estimator = model.cloned().map_or_else(|| Ok(Estimator::new()), Estimator::with_model)?;
        if let Some(stack) = self.stack {
            estimator = estimator.with_stack(*stack);
        }
        if let Some(cluster) = self.cluster {
            estimator = estimator.with_cluster(*cluster);
        }
        match self.memory {
            Some(bytes) => Ok(estimator.with_memory(cluster, bytes)?),
            None => Ok(estimator),
        }
    }
}
