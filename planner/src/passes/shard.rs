//! `shard`: with `--shard auto`, decides by cost every dim that `annotate` leaves open; otherwise a no-op.

use crate::PlanError;
use crate::passes::annotate;
use crate::shard::{self, Watch};
use cost::Cluster;
use ir::goal::{Goal, Sharding};
use ir::graph::Model;

pub(crate) fn run(model: &mut Model, goal: &Goal, cluster: &Cluster, watch: &mut Watch<'_>) -> Result<(), PlanError> {
    if let Sharding::Auto { .. } = goal.sharding
        && !model.is_settled()
        && shard::decide(model, goal, cluster, watch)?.is_none()
    {
        // No cost-based decision: `propagate` propagates the stated shardings.
        annotate::close(model, goal)?;
    }
    Ok(())
}
