//! `meshwright models`: the table of presets, and exported models next to their graphs.

use super::keys;
use crate::cli::TableFormat;
use crate::error::Error;
#[cfg(all(feature = "train", feature = "pt2"))]
use crate::exported::compare;
use clap::Args;
use ir::models::{Batch, Preset, presets};
use ir::types::DType;
use serde_json::json;
use std::path::{Path, PathBuf};
use support::table::table;
use support::units::count;

/// List the preset models
///
/// Other models of the same families are given by their config.json, and models of PyTorch by a .pt2 archive of torch.export.
#[derive(Args)]
pub(in crate::cli) struct Models {
    /// Show how each key of a config.json is handled instead
    #[arg(long)]
    keys: bool,
    /// Import an archive of torch.export instead, run it next to its recorded graph, and compare their logits
    ///
    /// Commands that take a .pt2 file as MODEL do so themselves for models of at most a million parameters
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    check: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Models {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        if self.keys {
            return keys::print(self.format);
        }
        if let Some(path) = &self.check {
            return checked(path, self.format);
        }
        let parameters: Vec<u64> = presets().map(parameters).collect::<Result<_, _>>()?;
        let presets = presets().zip(parameters);
        match self.format {
            TableFormat::Table => {
                let rows: Vec<_> = presets
                    .map(|(p, n)| {
                        let context = p.context.to_string();
                        [p.name.into(), p.config.family().into(), count(n as f64), context, p.about.into()]
                    })
                    .collect();
                Ok(table(["MODEL", "FAMILY", "PARAMETERS", "CONTEXT", "DESCRIPTION"], &rows))
            }
            TableFormat::Json => {
                let rows = presets.map(|(p, n)| {
                    json!({"name": p.name, "family": p.config.family(), "parameters": n, "context": p.context,
                           "about": p.about})
                });
                crate::cli::json(&rows.collect::<Vec<_>>())
            }
        }
    }
}

/// This build runs no exported model.
#[cfg(not(all(feature = "train", feature = "pt2")))]
fn checked(_: &Path, _: TableFormat) -> Result<String, Error> {
    Err(Error::Usage(
        "`models --check` is not in this build: build it with cargo build --release --features train,pt2".into(),
    ))
}

/// The figures of a comparison.
#[cfg(all(feature = "train", feature = "pt2"))]
fn checked(path: &Path, format: TableFormat) -> Result<String, Error> {
    let found = &compare(path)?;
    if let TableFormat::Json = format {
        return crate::cli::json(found);
    }
    let [sequences, tokens] = found.batch;
    let rows = [
        ["parameters".to_string(), count(found.parameters as f64)],
        ["layers".to_string(), found.layers.to_string()],
        ["tokens".to_string(), format!("{sequences} x {tokens}")],
        ["largest logit".to_string(), format!("{:.3}", found.largest)],
        ["largest difference".to_string(), format!("{:.1e}", found.difference)],
    ];
    Ok(table(["IMPORT", "VALUE"], &rows))
}

fn parameters(preset: &Preset) -> Result<u64, Error> {
    let batch = Batch { batch: 1, seq: 1, dtype: DType::F32 };
    let model = preset.config.build(&batch).map_err(|why| Error::fault(preset.name, why))?;
    Ok(model.parameter_count())
}
