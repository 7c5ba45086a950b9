//! `shard`: with `--shard auto`, decides all that seeds leave open by its cost; else it does nothing.

use crate::PlanError;
use crate::shard;
use cost::Cluster;
use ir::goal::{Goal, Sharding};
use ir::graph::Model;

pub(crate) fn run(model: &mut Model, goal: &Goal, cluster: &Cluster) -> Result<(), PlanError> {
    match goal.sharding {
        Sharding::Auto { .. } => shard::decide(model, goal, cluster).map(|_| ()),
        Sharding::Rules => Ok(()),
    }
}
