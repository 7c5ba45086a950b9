//! `meshwright reshard`: reshards a tensor from one sharding to another.

use super::TableFormat;
use crate::error::Error;
use crate::reshard::{ReshardRequest, reshard};
use clap::Args;

/// Find the cheapest sequence of collectives between two shardings of a tensor
///
/// A sharding lists the mesh axes of each dim in braces, major to minor; then `/{..}` the flat-shard axes, and `+{..}` the axes
/// over which the tensor is a partial sum (`max{..}`: a partial maximum).
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright reshard --mesh x=2,y=4 --shape 16,16 --from '{x},{y}' --to '{},{x}'
  meshwright reshard --mesh dp=4,tp=2 --shape 4096,4096 --dtype bf16 --from '{},{tp}+{dp}' \\
      --to '{},{tp}/{dp}'
  meshwright reshard --mesh x=2,y=2 --shape 5,7 --from '{x,y},{}' --to '{y,x},{}' \\
      --format json")]
pub(super) struct Reshard {
    /// Mesh axes, in rank order
    #[arg(long, value_name = "AXIS=SIZE,..")]
    mesh: String,
    /// Shape of the tensor
    #[arg(long, value_name = "SIZE,..")]
    shape: String,
    /// Source sharding
    #[arg(long, value_name = "SHARDING")]
    from: String,
    /// Target sharding
    #[arg(long, value_name = "SHARDING")]
    to: String,
    /// Element type
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Cluster whose links carry the messages: a name (see `meshwright clusters`) or a TOML file
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    cluster: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Reshard {
    pub(super) fn run(self) -> Result<String, Error> {
        let Reshard { mesh, shape, from, to, dtype, cluster, format } = self;
        let report = reshard(&ReshardRequest { mesh, shape, dtype, from, to, cluster })?;
        match format {
            TableFormat::Table => Ok(report.to_string()),
            TableFormat::Json => super::json(&report),
        }
    }
}
