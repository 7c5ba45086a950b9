//! Degrees of data, tensor, context and pipeline parallelism, and the order of their ranks.

use super::words::{number_of, spent};
use super::{ChoiceGroup, Neighbours, PLAIN, Row};
use crate::search::Level;
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;

pub(super) const DP: Row = Row {
    spends: |predicted| predicted.exposed_comm_s.dp,
    meaning: |best| match best.parallel.dp {
        1 => "no data parallelism: the other degrees use all devices".into(),
        dp => {
            let each = number_of(best.inputs.global_batch / dp.max(1), "sequence");
            format!("{dp} data-parallel replicas of the model, each with {each} per step")
        }
    },
    ..PLAIN
};

pub(super) const TP: Row = Row {
    level: Level::Degrees,
    is_usual: |space, node| node.parallel.tp <= space.node,
    choice: Some(ChoiceGroup::Tp),
    agrees: |centre, node| node.parallel.tp == centre.tp,
    neighbours: |near| exchanges(near, ConfigKey::Tp),
    is_used: |parallel| parallel.tp > 1,
    spends: |predicted| predicted.exposed_comm_s.tp,
    meaning: |best| match best.parallel.tp {
        1 => "matrices are not sharded".into(),
        tp => {
            let spent = spent(best.predicted.exposed_comm_s.tp, "exposed communication", &best.predicted);
            format!("each matrix is sharded over {tp} devices{spent}")
        }
    },
    is_kind: true,
    ..PLAIN
};

pub(super) const CP: Row = Row {
    level: Level::Degrees,
    is_usual: |_, node| node.parallel.cp == 1,
    choice: Some(ChoiceGroup::Cp),
    agrees: |centre, node| node.parallel.cp == centre.cp,
    neighbours: |near| exchanges(near, ConfigKey::Cp),
    is_used: |parallel| parallel.cp > 1,
    spends: |predicted| predicted.exposed_comm_s.cp,
    meaning: |best| match best.parallel.cp {
        1 => "sequences are not sharded".into(),
        cp => {
            let spent = spent(best.predicted.exposed_comm_s.cp, "exposed communication", &best.predicted);
            format!("each sequence is sharded over {cp} devices{spent}")
        }
    },
    is_kind: true,
    ..PLAIN
};

pub(super) const PP: Row = Row {
    level: Level::Degrees,
    choice: Some(ChoiceGroup::Pipeline),
    agrees: |centre, node| node.parallel.pp == centre.pp,
    neighbours: |near| exchanges(near, ConfigKey::Pp),
    is_used: |parallel| parallel.pp > 1,
    spends: |predicted| predicted.exposed_comm_s.pp,
    meaning: |best| match best.parallel.pp {
        1 => "every rank has all layers".into(),
        pp => {
            let waiting = best.predicted.time_s.bubble + best.predicted.exposed_comm_s.pp;
            let bubble = spent(waiting, "waiting and pipeline communication", &best.predicted);
            format!("the layers are partitioned over {pp} pipeline ranks{bubble}")
        }
    },
    is_kind: true,
    ..PLAIN
};

pub(super) const RANK_ORDER: Row = Row {
    neighbours: |near| {
        let rank_order = ParallelConfig::default().rank_order;
        if near.best.rank_order != rank_order {
            near.less(ConfigKey::RankOrder, ParallelConfig { rank_order, ..near.open_memory() });
        }
    },
    meaning: |_| "which ranks are next to each other".into(),
    is_setting: true,
    copy: |parallel, other| parallel.rank_order.clone_from(&other.rank_order),
    ..PLAIN
};

/// Degrees between which factors can move.
const DEGREES: [ConfigKey; 4] = [ConfigKey::Dp, ConfigKey::Tp, ConfigKey::Cp, ConfigKey::Pp];

/// Neighbours that exchange a factor between a degree and another one.
fn exchanges(near: &mut Neighbours<'_>, key: ConfigKey) {
    for other in DEGREES.into_iter().filter(|other| *other != key) {
        if let Some(parallel) = moved(near.open_memory(), key, other) {
            near.less(key, parallel);
        }
        if let Some(parallel) = moved(near.open_memory(), other, key) {
            near.more(key, parallel);
        }
    }
}

/// The configuration with the least factor of one degree moved to another; `None` if the first is 1.
fn moved(mut parallel: ParallelConfig, from: ConfigKey, to: ConfigKey) -> Option<ParallelConfig> {
    let whole = *degree(&mut parallel, from);
    let factor = (2..=whole).find(|factor| whole.is_multiple_of(*factor))?;
    *degree(&mut parallel, from) /= factor;
    *degree(&mut parallel, to) *= factor;
    Some(parallel)
}

fn degree(parallel: &mut ParallelConfig, key: ConfigKey) -> &mut u64 {
    match key {
        ConfigKey::Tp => &mut parallel.tp,
        ConfigKey::Cp => &mut parallel.cp,
        ConfigKey::Pp => &mut parallel.pp,
        _ => &mut parallel.dp,
    }
}
