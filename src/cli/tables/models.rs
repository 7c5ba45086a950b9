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

/// List the preset models, or check how a model is read
///
/// Other models of the same families are given by their config.json, and models of PyTorch by a .pt2 archive of torch.export.
#[derive(Args)]
pub(in crate::cli) struct Models {
    /// Show how each key of a config.json is handled instead
    #[arg(long)]
    keys: bool,
    /// Compare a model with its class of transformers instead: the count of parameters, and logits, loss and gradients of a small one
    ///
    /// The small model has layers of the same kinds and random weights. What PyTorch computes needs PyTorch and transformers in --python;
    /// without them the answer says what was not compared. An archive of torch.export runs next to its recorded graph, on its own weights
    /// and without PyTorch. Commands that take a .pt2 file as MODEL do so themselves for models of at most a million parameters
    #[arg(long, value_name = "MODEL", conflicts_with = "keys")]
    check: Option<String>,
    /// The Python of a comparison
    #[arg(long, value_name = "PROGRAM", default_value = "python3", requires = "check")]
    python: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Models {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        if self.keys {
            return keys::print(self.format);
        }
        if let Some(model) = &self.check {
            let path = Path::new(model);
            let is_archive = path.extension().is_some_and(|extension| extension == "pt2");
            return if is_archive { imported(path, self.format) } else { checked(model, &self.python, self.format) };
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
fn imported(_: &Path, _: TableFormat) -> Result<String, Error> {
    Err(absent("train,pt2"))
}

/// The figures of an import next to its graph.
#[cfg(all(feature = "train", feature = "pt2"))]
fn imported(path: &Path, format: TableFormat) -> Result<String, Error> {
    let found = &compare(path)?;
    if let TableFormat::Json = format {
        return crate::cli::json(found);
    }
    let rows = [
        ["parameters".to_string(), count(found.parameters as f64)],
        ["layers".to_string(), found.layers.to_string()],
        ["tokens".to_string(), tokens(found.batch)],
        ["largest logit".to_string(), format!("{:.3}", found.largest)],
        ["largest difference".to_string(), format!("{:.1e}", found.difference)],
    ];
    Ok(table(["IMPORT", "VALUE"], &rows))
}

/// This build runs no model.
#[cfg(not(feature = "train"))]
fn checked(_: &str, _: &Path, _: TableFormat) -> Result<String, Error> {
    Err(absent("train"))
}

#[cfg(not(all(feature = "train", feature = "pt2")))]
fn absent(features: &str) -> Error {
    Error::Usage(format!(
        "`models --check` is not in this build: build it with cargo build --release --features {features}"
    ))
}

/// The figures of a model next to its class.
#[cfg(feature = "train")]
fn checked(model: &str, python: &Path, format: TableFormat) -> Result<String, Error> {
    let found = &crate::pytorch::check(model, python)?;
    if let TableFormat::Json = format {
        return crate::cli::json(found);
    }
    let mut rows = vec![row("parameters", found.parameters.to_string())];
    rows.extend(found.class.map(|class| row("class", class.to_string())));
    rows.extend(found.versions.clone().map(|versions| row("compared with", versions)));
    rows.extend(found.class_parameters.map(|count| row("parameters of the class", count.to_string())));
    if let Some(example) = &found.example {
        let size = format!(
            "{} parameters, {} layers, {} tokens",
            count(example.parameters as f64),
            example.layers,
            tokens(example.batch)
        );
        rows.push(row("small model", size));
        let offs = [("logits", example.off.logits), ("loss", example.off.loss), ("gradients", example.off.gradients)];
        rows.extend(offs.map(|(name, off)| row(&format!("difference of {name}"), format!("{off:.1e}"))));
    }
    rows.extend(found.unchecked.iter().map(|what| row("not compared", what.clone())));
    Ok(table(["MODEL", "VALUE"], &rows))
}

#[cfg(feature = "train")]
fn row(name: &str, value: String) -> [String; 2] {
    [name.to_string(), value]
}

#[cfg(feature = "train")]
fn tokens(batch: [u64; 2]) -> String {
    format!("{} x {}", batch[0], batch[1])
}

fn parameters(preset: &Preset) -> Result<u64, Error> {
    let batch = Batch { batch: 1, seq: 1, dtype: DType::F32 };
    let model = preset.config.build(&batch).map_err(|why| Error::fault(preset.name, why))?;
    Ok(model.parameter_count())
}
