//! `meshwright models`: the table of presets.

use super::TableFormat;
use super::keys;
use crate::error::Error;
use clap::Args;
use ir::models::{Batch, Preset, presets};
use ir::types::DType;
use serde_json::json;
use support::table::table;
use support::units::count;

/// List the preset models
///
/// Other models of the same families are given by their config.json.
#[derive(Args)]
pub(super) struct Models {
    /// Show how each key of a config.json is handled instead
    #[arg(long)]
    keys: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Models {
    pub(super) fn run(self) -> Result<String, Error> {
        if self.keys {
            return keys::print(self.format);
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
                super::json(&rows.collect::<Vec<_>>())
            }
        }
    }
}

fn parameters(preset: &Preset) -> Result<u64, Error> {
    let batch = Batch { batch: 1, seq: 1, dtype: DType::F32 };
    let model = preset.config.build(&batch).map_err(|why| Error::fault(preset.name, why))?;
    Ok(model.parameter_count())
}
