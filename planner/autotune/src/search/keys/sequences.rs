//! How a sequence is shared by ranks, and how many are in a micro-batch.

use super::words::number_of;
use super::{ChoiceGroup, PLAIN, Row};
use crate::search::Level;
use ir::config_key::ConfigKey;
use ir::heads::common_divisor;
use ir::options::{CpKind, ParallelConfig};

pub(super) const SP: Row = Row {
    level: Level::SequenceSharding,
    open: Some(|_, parallel| {
        let values = if parallel.tp > 1 { &[false, true][..] } else { &[false] };
        values.iter().map(|&sp| ParallelConfig { sp, ..parallel.clone() }).collect()
    }),
    choice: Some(ChoiceGroup::Tp),
    agrees: |centre, node| node.parallel.sp == centre.sp,
    neighbours: |near| {
        let parallel = ParallelConfig { sp: !near.best.sp, ..near.open_memory() };
        match near.best.sp {
            _ if near.best.tp == 1 => {}
            true => near.less(ConfigKey::Sp, parallel),
            false => near.more(ConfigKey::Sp, parallel),
        }
    },
    // No sequence parallelism without tp; with the first of tp, the usual one.
    repair: |parallel, repair| parallel.sp = parallel.tp > 1 && (parallel.sp || repair.best.tp == 1),
    spends: |predicted| predicted.exposed_comm_s.tp,
    meaning: |best| match best.parallel.sp {
        true => "between matmuls, activations are sharded over tp along the sequence".into(),
        false => "between matmuls, activations are replicated over tp".into(),
    },
    context: Some(ConfigKey::Tp),
    copy: |parallel, other| parallel.sp = other.sp,
    ..PLAIN
};

pub(super) const CP_KIND: Row = Row {
    level: Level::SequenceSharding,
    open: Some(|space, parallel| {
        if parallel.cp == 1 {
            return vec![ParallelConfig { cp_kind: CpKind::default(), ..parallel.clone() }];
        }
        let by_heads = space.heads.first().is_some_and(|heads| heads.of_cp(parallel.tp, parallel.cp).is_some());
        let kinds = CP_KINDS.into_iter().filter(|kind| match kind {
            CpKind::AllGather => true,
            CpKind::Ring => !space.gathers_keys,
            CpKind::Ulysses => by_heads && !space.gathers_keys,
        });
        kinds.map(|cp_kind| ParallelConfig { cp_kind, ..parallel.clone() }).collect()
    }),
    choice: Some(ChoiceGroup::Cp),
    agrees: |centre, node| node.parallel.cp_kind == centre.cp_kind,
    neighbours: |near| {
        let own = near.best.cp_kind;
        let others = [CpKind::Ring, CpKind::AllGather, CpKind::Ulysses].into_iter().filter(|kind| *kind != own);
        for cp_kind in others.filter(|_| near.best.cp > 1) {
            near.less(ConfigKey::CpKind, ParallelConfig { cp_kind, ..near.open_memory() });
        }
    },
    repair: |parallel, _| {
        if parallel.cp == 1 {
            parallel.cp_kind = CpKind::default();
        }
    },
    spends: |predicted| predicted.exposed_comm_s.cp,
    meaning: |_| "how cp ranks exchange keys and values".into(),
    context: Some(ConfigKey::Cp),
    copy: |parallel, other| parallel.cp_kind = other.cp_kind,
    compiled: |parallel| parallel.cp_kind = CpKind::default(),
    ..PLAIN
};

/// Kinds of context parallelism, in the order of the search.
const CP_KINDS: [CpKind; 3] = [CpKind::AllGather, CpKind::Ring, CpKind::Ulysses];

pub(super) const TP_OVERLAP: Row = Row {
    level: Level::SequenceSharding,
    open: Some(|space, parallel| {
        let values = space.hides.tp.values(parallel.tp > 1);
        values.iter().map(|&tp_overlap| ParallelConfig { tp_overlap, ..parallel.clone() }).collect()
    }),
    is_usual: |_, node| node.parallel.tp_overlap.is_none(),
    choice: Some(ChoiceGroup::Tp),
    agrees: |centre, node| node.parallel.tp_overlap == centre.tp_overlap,
    neighbours: |near| {
        if near.best.tp_overlap.is_some() {
            near.less(ConfigKey::TpOverlap, ParallelConfig { tp_overlap: None, ..near.open_memory() });
        }
    },
    spends: |predicted| predicted.exposed_comm_s.tp,
    meaning: |_| OVERLAPS.into(),
    context: Some(ConfigKey::Tp),
    is_setting: true,
    copy: |parallel, other| parallel.tp_overlap = other.tp_overlap,
    compiled: |parallel| parallel.tp_overlap = None,
    ..PLAIN
};

/// Meaning of an overlap.
pub(super) const OVERLAPS: &str = "whether communication overlaps with compute";

pub(super) const MBS: Row = Row {
    level: Level::Batch,
    is_usual: |space, node| node.parallel.mbs == space.batch.unwrap_or(1),
    choice: Some(ChoiceGroup::Batch),
    agrees: |centre, node| node.parallel.mbs == centre.mbs,
    neighbours: |near| {
        let mbs = near.best.mbs;
        if mbs > 1 {
            near.less(ConfigKey::Mbs, ParallelConfig { mbs: mbs / 2, ..near.open_memory() });
        }
        near.more(ConfigKey::Mbs, ParallelConfig { mbs: mbs.saturating_mul(2), ..near.open_memory() });
    },
    repair: |parallel, repair| {
        parallel.mbs = common_divisor(parallel.mbs, repair.global_batch / parallel.dp.max(1)).max(1);
    },
    meaning: |best| {
        let microbatches = number_of(best.predicted.microbatches.into(), "micro-batch");
        format!("{} per micro-batch, {microbatches}", number_of(best.parallel.mbs, "sequence"))
    },
    is_kind: true,
    ..PLAIN
};
