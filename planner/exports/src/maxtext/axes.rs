//! Axes of MaxText's mesh, with their degrees within a node and across nodes.

use crate::job::Job;
use ir::heads::common_divisor;
use ir::options::ParallelConfig;

/// An axis of the mesh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Axis {
    /// Replicas.
    Data,
    /// Ranks that share parameters, gradients and states.
    Fsdp,
    /// Experts; a replica for all other layers.
    Expert,
    /// Ranks that share a sequence.
    Context,
    /// Tensor parallelism whose activations between products are replicated along the sequence.
    Tensor,
    /// Tensor parallelism whose activations between products are sharded along the sequence.
    TensorSequence,
    /// Stages.
    Pipeline,
}

impl Axis {
    /// All, the innermost first.
    pub(super) const ALL: [Axis; 7] =
        [Axis::TensorSequence, Axis::Tensor, Axis::Context, Axis::Expert, Axis::Fsdp, Axis::Data, Axis::Pipeline];

    /// Its name in keys: `ici_NAME_parallelism`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Axis::Data => "data",
            Axis::Fsdp => "fsdp",
            Axis::Expert => "expert",
            Axis::Context => "context",
            Axis::Tensor => "tensor",
            Axis::TensorSequence => "tensor_sequence",
            Axis::Pipeline => "pipeline",
        }
    }

    /// Its degree in a job.
    fn degree(self, job: &Job) -> u64 {
        let ParallelConfig { tp, pp, cp, sp, .. } = job.parallel;
        match self {
            Axis::Data => replicas(job) / fsdp(job),
            Axis::Fsdp => fsdp(job),
            Axis::Expert => expert(job),
            Axis::Context => cp,
            Axis::Tensor if !sp => tp,
            Axis::TensorSequence if sp => tp,
            Axis::Tensor | Axis::TensorSequence => 1,
            Axis::Pipeline => pp,
        }
    }
}

/// Ranks of experts, which are ranks of data parallelism too.
pub(super) fn expert(job: &Job) -> u64 {
    let ParallelConfig { dp, ep, .. } = job.parallel;
    if job.experts > 0 && dp.is_multiple_of(ep) { ep } else { 1 }
}

/// Ranks of data parallelism for each rank of experts.
fn replicas(job: &Job) -> u64 {
    job.parallel.dp / expert(job)
}

/// Ranks that share parameters, apart from those of experts and of a sequence, which share them too.
fn fsdp(job: &Job) -> u64 {
    if job.parallel.zero < 3 {
        return 1;
    }
    let share = (job.shard() / (expert(job) * job.parallel.cp)).max(1);
    if replicas(job).is_multiple_of(share) { share } else { replicas(job) }
}

/// Ranks that share the parameters of dense layers, by the axes.
pub(super) fn sharing(job: &Job) -> u64 {
    fsdp(job) * expert(job) * job.parallel.cp
}

/// Degree of an axis within a node and across nodes.
pub(super) struct Placed {
    pub(super) axis: Axis,
    pub(super) within: u64,
    pub(super) across: u64,
}

/// The axes on nodes of `per_node` devices. The innermost axes fill a node.
pub(super) fn placed(job: &Job, per_node: u64) -> Vec<Placed> {
    let mut free = per_node.max(1);
    let placed = Axis::ALL.into_iter().map(|axis| {
        let degree = axis.degree(job);
        let within = common_divisor(degree, free);
        free /= within;
        Placed { axis, within, across: degree / within }
    });
    placed.collect()
}
