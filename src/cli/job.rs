//! The flags of a job that is predicted: a model and a batch, the hardware, the software and the number formats.

use clap::Args;
use serde::Serialize;

/// Where the devices stand in the help, which are not asked for alike: behind the second flag of a job.
pub(super) const AFTER_STACK: usize = 2;

/// Flags that `plan` and `estimate` have alike.
#[derive(Args, Serialize)]
pub(super) struct JobFlags {
    /// A preset (see `meshwright models`), a config.json or its folder, or a .ir file
    pub(super) model: Option<String>,
    /// The hardware: a name (see `meshwright clusters`) or a TOML file [default: h100]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The software: a name (see `meshwright stacks`) or a TOML file [default: megatron-core-2025]
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
    /// Tokens per sequence
    #[arg(long, value_name = "TOKENS")]
    seq: Option<u64>,
    /// Sequences per step, all ranks together
    #[arg(long, value_name = "N")]
    global_batch: Option<u64>,
    /// Number formats: bf16, fp16, fp8-tensor, fp8-row, fp8-block, mxfp8, mxfp4, nvfp4, f32 [default: bf16]
    #[arg(long, value_name = "RECIPE")]
    precision: Option<String>,
    /// Type of gradients, accumulated and on the wire [default: the stack's]
    #[arg(long, value_name = "TYPE")]
    grad_dtype: Option<String>,
    /// Type of the master copy of parameters, or `none` [default: f32 where parameters are not]
    #[arg(long, value_name = "TYPE")]
    master: Option<String>,
    /// adamw, adamw-bf16 (with moments in bf16), momentum or sgd [default: adamw]
    #[arg(long, value_name = "NAME")]
    optimizer: Option<String>,
    /// Tokens of each document of a sequence, parted by commas: attention stays within each
    #[arg(long, value_name = "TOKENS", value_delimiter = ',')]
    lengths: Option<Vec<u64>>,
    /// The share of a device's memory that stays free [default: 0.05]
    #[arg(long, value_name = "SHARE", value_parser = crate::number::finite)]
    memory_margin: Option<f64>,
    /// Layouts may have what the stack does not support: see its file (`meshwright stacks NAME`)
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    beyond_stack: bool,
}
