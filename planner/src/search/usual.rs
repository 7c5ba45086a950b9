//! The layouts that most runs have.

use super::space::Space;
use super::{Family, Level};
use ir::goal::Recompute;

/// Whether all that is decided of a family is usual or pinned: one sequence a micro-batch, whole sequences, whole experts,
/// ZeRO-1, 1F1B on equal stages, whole layers computed again or none, all else as the stack has it.
pub(super) fn is_usual(space: &Space, family: &Family) -> bool {
    let (layout, level) = (&family.layout, family.level);
    let replicated = layout.dp * layout.cp > 1;
    let order = || family.schedules.iter().any(|name| ["1f1b", "interleaved-1f1b"].contains(name));
    let least_batch = space.batch.unwrap_or(1);
    let usual = [
        ("cp", layout.cp == 1),
        ("etp", layout.etp == 1),
        ("mbs", level < Level::Batch || layout.mbs == least_batch),
        ("zero", level < Level::Shards || layout.zero == u8::from(replicated)),
        ("shard", layout.shard.is_none()),
        ("schedule", level < Level::Pipeline || order()),
        ("stages", layout.stages.is_empty()),
        ("offload", !layout.offload),
        ("tp_overlap", layout.tp_overlap.is_none()),
        ("dp_overlap", layout.dp_overlap.is_none()),
        ("recompute", !matches!(layout.recompute, Recompute::Selective(_))),
    ];
    usual.into_iter().all(|(key, is_usual)| is_usual || space.pin.has(key))
}
