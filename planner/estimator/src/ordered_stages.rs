//! Ordered stages: the input of the time (`step`) and the memory (`memory`) of a step.

use super::blocks::Tied;
use super::pipeline::PipelineTimeline;
use super::replicas::Replicas;
use super::stages::StageCost;
use ir::options::ParallelConfig;

/// Stages in the order in which their ranks run them.
#[derive(Clone, Copy)]
pub(super) struct OrderedStages<'a> {
    /// The configuration.
    pub(super) parallel: &'a ParallelConfig,
    /// The data-parallel ranks.
    pub(super) replicas: &'a Replicas<'a>,
    /// The stages.
    pub(super) loads: &'a [StageCost],
    /// Parameters that several block instances share.
    pub(super) tied: &'a [Tied],
    /// Timeline of the ranks up to their last backward.
    pub(super) flow: &'a PipelineTimeline,
    /// Memory budget of a device in bytes.
    pub(super) budget: f64,
}
