//! `meshwright clusters`: the table of presets, and the file of one.

use super::cluster_figures;
use crate::cli::TableFormat;
use crate::cli::toml_text;
use crate::error::Error;
use clap::Args;
use compiler::machine_source;
use cost::{CLUSTERS, Cluster};
use serde_json::json;
use support::table::table;
use support::units::{bytes, with_unit};

/// List the preset clusters, or print the file of one
///
/// Other clusters are TOML files of the same form.
#[derive(Args)]
pub(in crate::cli) struct Clusters {
    /// Preset to print, or file to check and print with all its figures
    name: Option<String>,
    /// Print by how much each figure of another preset or file differs
    #[arg(long, value_name = "CLUSTER", requires = "name")]
    compare: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Clusters {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        if let Some(name) = &self.name {
            let cluster = machine_source::cluster(name)?;
            if let Some(other) = &self.compare {
                return cluster_figures::compared(&cluster, &machine_source::cluster(other)?, self.format);
            }
            let file = CLUSTERS.iter().find(|preset| preset.name == cluster.name && !name.ends_with(".toml"));
            return match (self.format, file) {
                (TableFormat::Table, Some(preset)) => Ok(preset.text.to_string()),
                (TableFormat::Table, None) => toml_text::text("clusters", &cluster),
                (TableFormat::Json, _) => crate::cli::json(&cluster),
            };
        }
        let all = CLUSTERS.iter().map(|preset| Cluster::parse(preset.text)).collect::<Result<Vec<_>, _>>()?;
        match self.format {
            TableFormat::Table => {
                let head = ["CLUSTER", "ALIASES", "BF16", "MEMORY", "NODE", "DESCRIPTION"];
                Ok(table(head, &all.iter().map(row).collect::<Vec<_>>()))
            }
            TableFormat::Json => crate::cli::json(&all.iter().map(summary).collect::<Vec<_>>()),
        }
    }
}

fn row(cluster: &Cluster) -> [String; 6] {
    let node = &cluster.links[0];
    let node = if node.joins == u64::MAX { "all".to_string() } else { node.joins.to_string() };
    let (peak, memory) = (with_unit(cluster.device.flops_bf16, "FLOP/s"), bytes(cluster.device.memory));
    [cluster.name.clone(), cluster.aliases.join(", "), peak, memory, node, cluster.about.clone()]
}

fn summary(cluster: &Cluster) -> serde_json::Value {
    json!({"name": cluster.name, "aliases": cluster.aliases, "flops_bf16": cluster.device.flops_bf16,
           "memory": cluster.device.memory, "about": cluster.about})
}
