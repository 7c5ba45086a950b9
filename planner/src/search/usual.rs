//! The layouts that most runs have.

use super::space::Space;
use super::{Family, Level};
use ir::goal::Recompute;

/// Orders of one forward and one backward in turn: backwards whole or split, one stage on a rank or several.
const SCHEDULES: [&str; 4] = ["1f1b", "zb-h1", "interleaved-1f1b", "interleaved-zb"];

/// Whether all that is decided of a family is usual or pinned: layers shared within a node, one sequence a micro-batch, whole
/// sequences, whole experts, ZeRO-1, 1F1B on equal stages, nothing made again or whole layers or the values that memory asks
/// for, all else as the stack has it.
pub(super) fn is_usual(space: &Space, family: &Family) -> bool {
    let (layout, level) = (&family.layout, family.level);
    let zero = u8::from(layout.dp * layout.cp > 1);
    let order = || family.schedules.iter().any(|name| SCHEDULES.contains(name));
    let usual = [
        ("tp", layout.tp <= space.node),
        ("cp", layout.cp == 1),
        ("etp", layout.etp == 1),
        ("mbs", level < Level::Batch || layout.mbs == space.batch.unwrap_or(1)),
        ("zero", level < Level::Shards || layout.zero == zero),
        ("shard", layout.shard.is_none()),
        ("schedule", level < Level::Pipeline || order()),
        ("schedule", level < Level::Schedule || SCHEDULES.contains(&layout.schedule.as_str())),
        ("stages", layout.stages.is_empty()),
        ("tp_overlap", layout.tp_overlap.is_none()),
        ("dp_overlap", layout.dp_overlap.is_none()),
        ("recompute", !matches!(layout.recompute, Recompute::Selective(_))),
    ];
    usual.into_iter().all(|(key, is_usual)| is_usual || space.pin.has(key))
}
