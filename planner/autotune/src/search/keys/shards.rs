//! How data-parallel ranks share the model's states.

use super::sequences::OVERLAPS;
use super::words::spent;
use super::{ChoiceGroup, PLAIN, Row};
use crate::search::Level;
use ir::config_key::ConfigKey;
use ir::options::{Gather, ParallelConfig};

pub(super) const ZERO: Row = Row {
    level: Level::Shards,
    open: Some(|_, parallel| {
        let most = if parallel.dp * parallel.cp > 1 { 3 } else { 0 };
        (0..=most).map(|zero| ParallelConfig { zero, ..parallel.clone() }).collect()
    }),
    is_usual: |space, node| node.parallel.zero == space.usual_zero(&node.parallel),
    choice: Some(ChoiceGroup::Shards),
    agrees: |centre, node| node.parallel.zero == centre.zero,
    neighbours: |near| {
        let best = near.best;
        if best.dp * best.cp == 1 {
            return;
        }
        for zero in (0..=3).filter(|zero| *zero != best.zero) {
            let parallel = ParallelConfig { zero, shard: None, gather: Gather::Use, ..near.open_memory() };
            if zero > best.zero {
                near.more(ConfigKey::Zero, parallel);
            } else {
                near.less(ConfigKey::Zero, parallel);
            }
        }
    },
    repair: |parallel, _| {
        if parallel.dp * parallel.cp == 1 {
            parallel.zero = 0;
        }
    },
    spends: |predicted| predicted.exposed_comm_s.dp,
    meaning: |best| {
        let spent = spent(best.predicted.exposed_comm_s.dp, "exposed communication", &best.predicted);
        format!("{}{spent}", sharded(best.parallel.zero))
    },
    is_kind: true,
    copy: |parallel, other| parallel.zero = other.zero,
    compiled: |parallel| parallel.zero = parallel.zero.min(1),
    ..PLAIN
};

pub(super) const SHARD: Row = Row {
    level: Level::Shards,
    open: Some(|space, parallel| {
        let replicas = parallel.dp * parallel.cp;
        let near = (space.node / parallel.tp.min(space.node)).max(1);
        let has_groups = parallel.zero > 0 && near > 1 && near < replicas && replicas.is_multiple_of(near);
        let values = [None, Some(near)].into_iter().take(if has_groups { 2 } else { 1 });
        let groups = values.map(|shard| ParallelConfig { shard, ..parallel.clone() });
        groups.filter(ParallelConfig::has_even_groups).collect()
    }),
    is_usual: |_, node| node.parallel.shard.is_none(),
    choice: Some(ChoiceGroup::Shards),
    agrees: |centre, node| node.parallel.shard == centre.shard,
    neighbours: |near| {
        if near.best.shard.is_some() {
            near.more(ConfigKey::Shard, ParallelConfig { shard: None, ..near.open_memory() });
        }
    },
    repair: |parallel, _| {
        if !parallel.has_even_groups() {
            parallel.shard = None;
        }
    },
    spends: |predicted| predicted.exposed_comm_s.dp,
    meaning: |_| "parameters and states are sharded within groups of data-parallel ranks".into(),
    context: Some(ConfigKey::Zero),
    is_setting: true,
    copy: |parallel, other| parallel.shard = other.shard,
    compiled: |parallel| parallel.shard = None,
    ..PLAIN
};

pub(super) const GATHER: Row = Row {
    level: Level::Shards,
    open: Some(|_, parallel| {
        let values = if parallel.zero == 3 { &[Gather::Use, Gather::Step][..] } else { &[Gather::Use] };
        values.iter().map(|&gather| ParallelConfig { gather, ..parallel.clone() }).collect()
    }),
    is_usual: |_, node| node.parallel.gather == Gather::Use,
    choice: Some(ChoiceGroup::Shards),
    agrees: |centre, node| node.parallel.gather == centre.gather,
    neighbours: |near| match (near.best.zero, near.best.gather) {
        (3, Gather::Use) => near.more(ConfigKey::Gather, ParallelConfig { gather: Gather::Step, ..near.open_memory() }),
        (3, Gather::Step) => near.less(ConfigKey::Gather, ParallelConfig { gather: Gather::Use, ..near.open_memory() }),
        _ => {}
    },
    repair: |parallel, _| {
        if parallel.zero != 3 {
            parallel.gather = Gather::Use;
        }
    },
    spends: |predicted| predicted.exposed_comm_s.dp,
    meaning: |best| match best.parallel.gather {
        Gather::Step => "parameters are gathered once a step, and stay gathered".into(),
        Gather::Use => "parameters are gathered at each use".into(),
    },
    context: Some(ConfigKey::Zero),
    is_setting: true,
    copy: |parallel, other| parallel.gather = other.gather,
    compiled: |parallel| parallel.gather = Gather::Use,
    ..PLAIN
};

pub(super) const DP_OVERLAP: Row = Row {
    level: Level::Shards,
    open: Some(|space, parallel| {
        let values = space.hides.dp.values(parallel.dp * parallel.cp > 1);
        values.iter().map(|&dp_overlap| ParallelConfig { dp_overlap, ..parallel.clone() }).collect()
    }),
    is_usual: |_, node| node.parallel.dp_overlap.is_none(),
    choice: Some(ChoiceGroup::Shards),
    agrees: |centre, node| node.parallel.dp_overlap == centre.dp_overlap,
    neighbours: |near| {
        if near.best.dp_overlap.is_some() {
            near.less(ConfigKey::DpOverlap, ParallelConfig { dp_overlap: None, ..near.open_memory() });
        }
    },
    spends: |predicted| predicted.exposed_comm_s.dp,
    meaning: |_| OVERLAPS.into(),
    is_setting: true,
    copy: |parallel, other| parallel.dp_overlap = other.dp_overlap,
    compiled: |parallel| parallel.dp_overlap = None,
    ..PLAIN
};

/// States that a ZeRO stage shards, as text.
fn sharded(zero: u8) -> &'static str {
    match zero {
        0 => "optimizer states are replicated on every data-parallel rank",
        1 => "optimizer states are sharded over the data-parallel ranks",
        2 => "optimizer states and gradients are sharded over the data-parallel ranks",
        _ => "parameters, gradients and optimizer states are sharded over the data-parallel ranks",
    }
}
