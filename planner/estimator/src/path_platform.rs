//! The platform by whose times reshard paths are chosen. Requests whose clusters have the same links share the paths, and so the plans of
//! blocks.

use cost::{Cluster, Platform, Stack};
use planner::reshard::ReshardCache;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The links of a cluster under a stack, with the paths that are known. Of the stack it has what decides between paths: whether
/// collectives run level by level. What it has fitted does not decide, so that fits share all plans.
#[derive(Clone, Debug)]
pub(super) struct PathPlatform(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cluster: Cluster,
    stack: Stack,
    known: ReshardCache,
}

/// Each is made once, by its key.
impl PartialEq for PathPlatform {
    fn eq(&self, other: &PathPlatform) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PathPlatform {}

impl Hash for PathPlatform {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl PathPlatform {
    /// Text that distinguishes the platform from others.
    pub(super) fn key(cluster: &Cluster, stack: &Stack) -> String {
        format!("{} {:?}", stack.traits.network.hierarchical, cluster.links)
    }

    /// The platform of a cluster under a stack, without paths.
    pub(super) fn new(cluster: &Cluster, stack: &Stack) -> PathPlatform {
        let mut stack = stack.clone();
        stack.fitted.network.value = 1.0;
        PathPlatform(Arc::new(Inner { cluster: cluster.clone(), stack, known: ReshardCache::default() }))
    }

    /// The platform.
    pub(super) fn platform(&self) -> Platform<'_> {
        Platform { stack: &self.0.stack, ..Platform::of_program(&self.0.cluster) }
    }

    /// The paths that are known.
    pub(super) fn known(&self) -> &ReshardCache {
        &self.0.known
    }
}
