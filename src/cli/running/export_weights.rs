//! `meshwright export-weights`: writes the parameters of a checkpoint in the form of the hub.

use crate::cli::TableFormat;
use crate::error::Error;
use crate::hub::config_keys;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use support::quantities::bytes_of;
use support::units::{bytes, plural};
use weights::{Export, Exported, MOST_SHARDS, OutFormat, export};

/// Files that the report lists; the rest are counted.
const LISTED: usize = 8;

/// Write the parameters of a checkpoint as a folder that transformers loads
///
/// The folder has safetensors under the names of the model's class in transformers, with an index if there are several files,
/// and a config.json. Files of the tokenizer are copied from the folder of `train --init-from`, if it is still there. The
/// parameters are those that the optimizer updates, in f32 for every precision of training. The checkpoint is read tensor by
/// tensor, without devices; the new folder appears when it is complete. With --shards, torch.distributed.checkpoint loads it
/// by its HuggingFaceStorageReader, under any sharding. A model in the language of the IR has no class: its tensors have the
/// names of its parameters, as `layer.3.w1`. Adapters are merged with the parameters that they adapt.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright train tiny-llama --data notes/ --steps 2 --save-every 2 --out runs/exported
  meshwright export-weights runs/exported --out exported
  meshwright export-weights runs/exported/step-00000002 --out exported-bf16 --dtype bf16 \\
      --max-shard 4MB
  meshwright export-weights runs/exported --out exported-shards --shards 8")]
pub(in crate::cli) struct ExportWeights {
    /// A checkpoint, or the folder of a run for its newest one
    checkpoint: PathBuf,
    /// Folder to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Element type [default: that of the checkpoint's parameters]
    #[arg(long, value_name = "TYPE", value_enum)]
    dtype: Option<Dtype>,
    /// Largest size of a file; one tensor may exceed it
    #[arg(long, value_name = "SIZE", value_parser = bytes_of, default_value = "5GB")]
    max_shard: u64,
    /// Split the rows of each tensor into N shards, each in files of its own, for torch.distributed.checkpoint
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SHARDS))]
    shards: Option<u64>,
    /// The model, for a checkpoint of an earlier version, which does not name it: a preset, or a config.json or its folder
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

/// An element type.
#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F16,
    F32,
}

impl ExportWeights {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let format = self.dtype.map(|dtype| match dtype {
            Dtype::Bf16 => OutFormat::Bf16,
            Dtype::F16 => OutFormat::F16,
            Dtype::F32 => OutFormat::F32,
        });
        let model = self.model.as_deref().map(config_keys).transpose()?;
        let (checkpoint, out, max_shard, shards) = (&self.checkpoint, &self.out, self.max_shard, self.shards);
        let exported = export(&Export { checkpoint, out, format, max_shard, shards, model })?;
        match self.format {
            TableFormat::Json => crate::cli::json(&exported),
            TableFormat::Table => Ok(text(&exported)),
        }
    }
}

fn text(exported: &Exported) -> String {
    let Exported { checkpoint, step, class, format, tensors, shards, bytes: size, out, files } = exported;
    let format = format!("{format:?}").to_lowercase();
    let (checkpoint, out) = (checkpoint.display(), out.display());
    let class = class.as_deref().unwrap_or("of no class: tensors are named as parameters");
    let shards = shards.map_or(String::new(), |count| format!(", rows in {}", plural(count, "shard")));
    let rest = files.len().saturating_sub(LISTED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!(
        "checkpoint  {checkpoint}, after {}\nmodel       {class}, {}, {} in {format}{shards}\noutputs     {out}: {}{more}\n",
        plural(*step, "step"),
        plural(*tensors as u64, "tensor"),
        bytes(*size),
        files[..files.len() - rest].join(", ")
    )
}
