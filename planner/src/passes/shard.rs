//! `shard`: with `--shard auto`, decides all that seeds leave open by its cost; else it does nothing.

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
        // Nothing is to be decided by cost: `propagate` carries on what is stated.
        annotate::close(model, goal)?;
    }
    Ok(())
}
