//! `meshwright schedules`: the table of pipeline schedules.

use crate::cli::TableFormat;
use crate::error::Error;
use clap::Args;
use scheduler::schedules::SCHEDULES;
use serde_json::json;
use support::table::table;

/// List the pipeline schedules, with their bubble, memory and constraints
///
/// Symbols: p ranks, rank r, v stages per rank, m micro-batches, groups of g (--group), q slices (--slices). f, i, w, fb are
/// the times of F, I, W and an overlapped F and B of one stage and slice. Memory is in forward activations of one stage and
/// slice.
#[derive(Args)]
pub(in crate::cli) struct Schedules {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Schedules {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        match self.format {
            TableFormat::Table => {
                let rows: Vec<_> = SCHEDULES
                    .iter()
                    .map(|k| [k.name, k.does, k.bubble, k.memory, k.constraint].map(str::to_string))
                    .collect();
                Ok(table(["KIND", "DESCRIPTION", "BUBBLE", "MEMORY OF RANK R", "CONSTRAINT"], &rows))
            }
            TableFormat::Json => {
                let rows = SCHEDULES.iter().map(|k| {
                    json!({"name": k.name, "does": k.does, "bubble": k.bubble, "memory": k.memory,
                           "constraint": k.constraint, "placement": k.placement})
                });
                crate::cli::json(&rows.collect::<Vec<_>>())
            }
        }
    }
}
