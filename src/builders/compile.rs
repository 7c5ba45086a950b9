//! Builder of a compilation.

use super::values::{ConfigText, ModelInput, PrecisionText};
use crate::error::Error;
use compiler::compile::{CompileRequest, compile_source_with};
use compiler::model_source::ModelSource;
use compiler::parallel;
use compiler::pass::Pass;
use compiler::pass_manager::{PassManager, UnknownPass};
use compiler::pipeline::{Listeners, Observer};
use ir::text::File;
use planner::shard::{Decided, Watch};
use std::time::Duration;

/// Starts the compilation of a model: a name, a path, or a [`Model`](ir::graph::Model), [`File`] or
/// [`ModelConfig`](ir::models::ModelConfig).
///
/// ```
/// use meshwright::{DType, ParallelConfig};
///
/// let config = ParallelConfig { dp: 2, tp: 2, ..Default::default() };
/// let file = meshwright::compile("tiny-llama").parallel(config).batch(8, 128).precision(DType::F32).run()?;
/// let program = file.program.as_ref().unwrap();
/// assert_eq!(program.microbatches, 4);
/// println!("{}", meshwright::ir::text::print(&file));
/// # Ok::<(), meshwright::Error>(())
/// ```
pub fn compile<'a>(model: impl Into<ModelInput>) -> CompileBuilder<'a> {
    CompileBuilder {
        model: model.into(),
        request: CompileRequest::default(),
        passes: Ok(PassManager::standard()),
        stop_after: None,
        observer: Box::new(|_, _| ()),
        progress: Box::new(|_| ()),
    }
}

/// Request of a compilation with typed setters; [`compile`](fn@compile) starts one.
#[must_use = "a builder does nothing until `run`"]
pub struct CompileBuilder<'a> {
    model: ModelInput,
    request: CompileRequest,
    passes: Result<PassManager<'a>, UnknownPass>,
    stop_after: Option<String>,
    observer: Box<Observer<'a>>,
    progress: Box<Watch<'a>>,
}

impl<'a> CompileBuilder<'a> {
    /// Sets keys of the configuration, over those set before; default: one device.
    pub fn parallel(mut self, keys: impl Into<ConfigText>) -> Self {
        self.request.parallel = parallel::pinned(&self.request.parallel, &keys.into().0);
        self
    }

    /// Sets the batch of a step, of a model that does not state its own: the number of sequences over all ranks, and the
    /// tokens of each. Default: two micro-batches per pipeline stage, of sequences of 128 tokens.
    pub fn batch(mut self, sequences: u64, tokens: u64) -> Self {
        (self.request.global_batch, self.request.seq) = (Some(sequences), tokens);
        self
    }

    /// Sets the type of parameters and compute: f32 (default) or bf16.
    pub fn precision(mut self, precision: impl Into<PrecisionText>) -> Self {
        self.request.precision = precision.into().0;
        self
    }

    /// Sets the cluster by whose times collectives and shardings are chosen, a name or a TOML file; default: `cpu`.
    ///
    /// ```
    /// let file = meshwright::compile("tiny-llama").parallel("tp=8").cluster("h100").auto_shard().run()?;
    /// assert_eq!(file.model.mesh.devices(), 8);
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.request.cluster = Some(name.into());
        self
    }

    /// Sets the stack that runs the program there, a name or a TOML file; default: Meshwright's own.
    pub fn stack(mut self, name: impl Into<String>) -> Self {
        self.request.stack = Some(name.into());
        self
    }

    /// Chooses all open shardings by cost within the memory of a device. By default they follow from rules for transformers.
    pub fn auto_shard(mut self) -> Self {
        self.request.shard = "auto".to_string();
        self
    }

    /// Sets the bytes of a device for [`auto_shard`](Self::auto_shard).
    pub fn memory(mut self, bytes: u64) -> Self {
        self.request.memory = Some(bytes);
        self
    }

    /// Limits the time of [`auto_shard`](Self::auto_shard), which then uses the best shardings found; default: a fixed amount of
    /// work.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.request.deadline = Some(deadline.as_secs_f64());
        self
    }

    /// Stops after a pass of [`passes`](compiler::pipeline::passes).
    ///
    /// ```
    /// assert!(meshwright::passes().iter().any(|pass| pass.name == "collectives"));
    /// let file = meshwright::compile("tiny-llama").parallel("tp=2").stop_after("collectives").run()?;
    /// assert!(file.program.is_none());
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    pub fn stop_after(mut self, pass: impl Into<String>) -> Self {
        self.stop_after = Some(pass.into());
        self
    }

    /// Runs a pass of the caller before the pass of a name.
    pub fn pass_before(mut self, name: &str, pass: impl Pass + 'a) -> Self {
        let insert = |mut passes: PassManager<'a>| passes.insert_before(name, pass).map(|()| passes);
        self.passes = self.passes.and_then(insert);
        self
    }

    /// Runs a pass of the caller after the pass of a name; [`PassManager`] shows one.
    pub fn pass_after(mut self, name: &str, pass: impl Pass + 'a) -> Self {
        let insert = |mut passes: PassManager<'a>| passes.insert_after(name, pass).map(|()| passes);
        self.passes = self.passes.and_then(insert);
        self
    }

    /// Calls `observer` with the name of each pass and the file after it.
    pub fn observe(mut self, observer: impl FnMut(&'static str, &File) + 'a) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// Reports the progress of [`auto_shard`](Self::auto_shard): the best shardings so far, and finally the answer.
    pub fn progress(mut self, progress: impl FnMut(&Decided) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Runs the passes. The file has the model with its shardings, its stages, the schedule, and the program of every rank.
    ///
    /// # Errors
    /// The model or a name is wrong, or the model cannot have the configuration.
    pub fn run(self) -> Result<File, Error> {
        let CompileBuilder { model, request, passes, stop_after, mut observer, mut progress } = self;
        let source = match model {
            ModelInput::Name(name) => ModelSource::open(&name)?,
            ModelInput::Source(source) => *source,
        };
        let listeners = Listeners { observer: &mut *observer, watch: &mut *progress };
        Ok(compile_source_with(&mut passes?, &source, &request, stop_after.as_deref(), listeners)?)
    }
}
