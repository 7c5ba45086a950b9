//! Flags of an estimated job: a model and a batch, the hardware, the software and the number formats.

use super::parallel::{help, long_help};
use super::request::{asked_fields, read};
use super::sizes::ModelSizes;
use crate::error::Error;
use clap::Args;
use cost::Stack;
use estimator::Estimator;
use exports::Present;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;
use support::quantities::{count_of, finite};

/// Position of the devices in the help: after the second flag of a job. `plan` and `estimate` describe them
/// differently.
pub(in crate::cli) const AFTER_STACK: usize = 2;

/// Message of a command that lacks a model: everything that it lacks, named at once.
pub(in crate::cli) fn missing(command: &str, job: &JobFlags, gpus: Option<&Option<u64>>) -> Option<String> {
    let all = [
        ("a MODEL", job.model.is_none()),
        ("--gpus", gpus.is_some_and(Option::is_none)),
        ("--seq", job.seq.is_none()),
        ("--global-batch", job.global_batch.is_none()),
    ];
    let lacking: Vec<&str> = all.iter().filter(|(_, lacks)| *lacks).map(|(name, _)| *name).collect();
    let names = match lacking.as_slice() {
        [some @ .., last] if !some.is_empty() => format!("{} and {last}", some.join(", ")),
        some => some.concat(),
    };
    job.model.is_none().then(|| format!("`{command}` needs {names}"))
}

/// Flags that `plan` and `estimate` have alike.
#[derive(Args, Serialize)]
pub(in crate::cli) struct JobFlags {
    /// A preset (see `meshwright models`), a config.json or its folder, a .pt2 file of torch.export, or a .ir file. `+lora=16` behind it freezes it and gives the products of its layers adapters of rank 16; `+lora=16,alpha=32,q,v` has another scale, and those of q and v alone. `+balance=sequence=1e-4,bias=1e-3` keeps the routers of experts balanced. `+images=1024x1024:0.3,512x512:0.7` behind the config.json of a model that reads images, or `+images=4096` patches, adds its encoder, for that number of images in a sequence
    pub(in crate::cli) model: Option<String>,
    /// Cluster: a name (see `meshwright clusters`) or a TOML file [default: h100]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Software stack: a name (see `meshwright stacks`) or a TOML file [default: of megatron-core-2025, fsdp-compile and jax-2024
    /// the first that runs on the cluster's devices]. `+launch.graphs=none` or `+hides=tp|dp` behind it change a property
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
    /// Tokens per sequence, such as 8k for 8192
    #[arg(long, value_name = "TOKENS", value_parser = count_of)]
    seq: Option<u64>,
    /// Sequences per step, over all ranks, such as 1k for 1024
    #[arg(long, value_name = "N", value_parser = count_of)]
    global_batch: Option<u64>,
    /// Precision recipe: bf16, fp16, fp8-tensor, fp8-delayed, fp8-row, fp8-block, mxfp8, mxfp4, nvfp4, f32 [default: bf16]
    #[arg(long, value_name = "RECIPE")]
    precision: Option<String>,
    /// Gradient type, for accumulation and communication [default: the stack's]
    #[arg(long, value_name = "TYPE")]
    grad_dtype: Option<String>,
    /// Type of the master weights, or `none` [default: f32 unless the parameters are f32]
    #[arg(long, value_name = "TYPE")]
    master: Option<String>,
    /// Optimizer: adamw, adamw-bf16 (moments in bf16), momentum or sgd [default: adamw]
    #[arg(long, value_name = "NAME")]
    optimizer: Option<String>,
    /// Tokens of each document in a sequence, comma-separated; attention does not cross documents
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', value_parser = count_of)]
    lengths: Option<Vec<u64>>,
    /// Largest chance that a device runs out of memory, in percent, by the errors of predictions on measured runs [default: 5]
    #[arg(long, value_name = "PERCENT OF CHANCE", value_parser = finite)]
    headroom: Option<f64>,
    /// Share of device memory to leave free, in place of --headroom
    #[arg(long, value_name = "SHARE", value_parser = finite)]
    memory_margin: Option<f64>,
    /// Allow configurations with features that the stack does not support (see `meshwright stacks NAME`)
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    beyond_stack: bool,
}

/// Stacks of requests that name none, the first one that runs on the devices.
const USUAL: [&str; 3] = ["megatron-core-2025", "fsdp-compile", "jax-2024"];

/// The configuration of a request that names none.
const ALL_IN_DP: &str = "all devices in dp";

/// The request of a subcommand with [`JobFlags`], as [`asked`](super::request::asked) reads others. If it names a cluster without a stack,
/// it gets one that runs there.
pub(in crate::cli) fn asked_job<R: DeserializeOwned>(
    file: Option<&Path>,
    missing: Option<&str>,
    flags: &impl Serialize,
) -> Result<R, Error> {
    let mut fields = asked_fields::<R>(file, missing, flags)?;
    if let (None, Some(Value::String(cluster))) = (fields.get("stack"), fields.get("cluster"))
        && let Some(stack) = usual_stack(cluster)
    {
        fields.insert("stack".into(), stack.into());
    }
    read(fields)
}

/// The usual stack for the devices of a cluster; none if none runs there, or if the cluster cannot be read, which is an error where it is
/// used.
fn usual_stack(cluster: &str) -> Option<&'static str> {
    let cluster = Estimator::new().cluster(cluster).ok()?;
    let runs =
        |name: &&str| Stack::find(name).is_ok_and(|stack| stack.supports.vendor(cluster.device.vendor.as_deref()));
    USUAL.into_iter().find(runs)
}

/// Flags of one configuration of a job.
#[derive(Args, Serialize)]
pub(in crate::cli) struct ConfigFlags {
    #[command(flatten)]
    #[serde(flatten)]
    pub(in crate::cli) job: JobFlags,
    /// Number of devices; dp follows from it if left out [default: those of the configuration]
    #[arg(long, value_name = "N", display_order = AFTER_STACK, value_parser = count_of)]
    pub(in crate::cli) gpus: Option<u64>,
    #[arg(long, value_name = "CONFIG", help = help("Parallel configuration", ALL_IN_DP), long_help = long_help("Parallel configuration", ALL_IN_DP))]
    pub(in crate::cli) parallel: Option<String>,
}

impl JobFlags {
    /// The cluster, if one is named.
    pub(in crate::cli) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Takes what another framework's file says of a job, where no flag of this program does.
    pub(in crate::cli) fn fill(&mut self, present: &Present) {
        self.seq = self.seq.or(present.seq);
        self.global_batch = self.global_batch.or(present.global_batch);
        self.precision.get_or_insert_with(|| present.precision.clone());
        self.optimizer.get_or_insert_with(|| present.optimizer.clone());
        self.model = self.model.take().or(present.model.clone());
        self.stack = self.stack.take().or(present.stack.clone());
        self.grad_dtype = self.grad_dtype.take().or(present.grad_dtype.clone());
        self.master = self.master.take().or(present.master.clone());
    }

    /// Takes a stack, if a MODEL is given without one.
    pub(in crate::cli) fn with_stack(&mut self, stack: Option<&str>) {
        if self.model.is_some() && self.stack.is_none() {
            self.stack = stack.map(str::to_string);
        }
    }

    /// Takes a model in numbers, if its sizes are given, as the text of its configuration.
    ///
    /// # Errors
    /// A size is missing, or there is a MODEL too.
    pub(in crate::cli) fn in_numbers(&mut self, sizes: &ModelSizes) -> Result<(), Error> {
        if let Some(config) = sizes.config(self.model.as_deref())? {
            self.model = Some(config);
        }
        Ok(())
    }
}
