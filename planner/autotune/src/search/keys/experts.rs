//! Degrees of experts.

use super::words::spent;
use super::{ChoiceGroup, PLAIN, Row};
use crate::search::Level;
use ir::config_key::ConfigKey;
use ir::heads::common_divisor;
use ir::options::ParallelConfig;

pub(super) const EP: Row = Row {
    level: Level::Axes,
    choice: Some(ChoiceGroup::Ep),
    agrees: |centre, node| node.parallel.ep == centre.ep,
    neighbours: |near| {
        let ep = near.best.ep;
        if ep > 1 {
            near.less(ConfigKey::Ep, ParallelConfig { ep: ep / 2, ..near.open_memory() });
            near.more(ConfigKey::Ep, ParallelConfig { ep: ep * 2, ..near.open_memory() });
        }
    },
    repair: |parallel, _| {
        let ranks = parallel.dp * parallel.cp * parallel.tp / parallel.etp.max(1);
        parallel.ep = common_divisor(parallel.ep, ranks).max(1);
    },
    is_used: |parallel| parallel.ep > 1,
    spends: |predicted| predicted.exposed_comm_s.ep,
    meaning: |best| {
        let spent = spent(best.predicted.exposed_comm_s.ep, "exposed communication", &best.predicted);
        format!("the experts are distributed over {} ranks{spent}", best.parallel.ep)
    },
    is_kind: true,
    ..PLAIN
};

pub(super) const ETP: Row = Row {
    level: Level::Axes,
    is_usual: |_, node| node.parallel.etp == 1,
    choice: Some(ChoiceGroup::Etp),
    agrees: |centre, node| node.parallel.etp == centre.etp,
    neighbours: |near| {
        let etp = near.best.etp;
        if etp > 1 {
            near.less(ConfigKey::Etp, ParallelConfig { etp: etp / 2, ..near.open_memory() });
        }
    },
    is_used: |parallel| parallel.etp > 1,
    spends: |predicted| predicted.exposed_comm_s.ep,
    meaning: |best| format!("each expert is sharded over {} devices", best.parallel.etp),
    is_kind: true,
    ..PLAIN
};
