//! `meshwright export-weights`: writes the parameters of a checkpoint in the form of the hub.

use super::TableFormat;
use crate::error::Error;
use crate::hub::config_keys;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use support::units::{bytes, bytes_of, plural};
use weights::{Export, Exported, OutFormat, export};

/// Write the parameters of a checkpoint as a folder that transformers loads
///
/// The folder has safetensors under the names of the model's class in transformers, with an index if there are several files,
/// and a config.json. Files of the tokenizer are copied from the folder of `train --init-from`, if it is still there. The
/// parameters are those that the optimizer updates, in f32 for every precision of training. The checkpoint is read tensor by
/// tensor, without devices; the new folder appears when it is complete.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright train tiny-llama --data notes/ --steps 2 --save-every 2 --out runs/exported
  meshwright export-weights runs/exported --out exported
  meshwright export-weights runs/exported/step-00000002 --out exported-bf16 --dtype bf16 \\
      --max-shard 4MB")]
pub(super) struct ExportWeights {
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
    pub(super) fn run(self) -> Result<String, Error> {
        let format = self.dtype.map(|dtype| match dtype {
            Dtype::Bf16 => OutFormat::Bf16,
            Dtype::F16 => OutFormat::F16,
            Dtype::F32 => OutFormat::F32,
        });
        let model = self.model.as_deref().map(config_keys).transpose()?;
        let (checkpoint, out, max_shard) = (&self.checkpoint, &self.out, self.max_shard);
        let exported = export(&Export { checkpoint, out, format, max_shard, model })?;
        match self.format {
            TableFormat::Json => super::json(&exported),
            TableFormat::Table => Ok(text(&exported)),
        }
    }
}

fn text(exported: &Exported) -> String {
    let Exported { checkpoint, step, class, format, tensors, bytes: size, out, files } = exported;
    let format = format!("{format:?}").to_lowercase();
    let (checkpoint, out) = (checkpoint.display(), out.display());
    format!(
        "checkpoint  {checkpoint}, after {}\nmodel       {class}, {}, {} in {format}\noutputs     {out}: {}\n",
        plural(*step, "step"),
        plural(*tensors as u64, "tensor"),
        bytes(*size),
        files.join(", ")
    )
}
