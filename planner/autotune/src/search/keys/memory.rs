//! Recomputation and offloading.

use super::words::{number_of, spent};
use super::{PLAIN, Row};
use crate::search::Level;
use ir::config_key::ConfigKey;
use ir::options::{Offload, ParallelConfig, Recompute};

pub(super) const RECOMPUTE: Row = Row {
    level: Level::Complete,
    is_usual: |_, node| !matches!(node.parallel.recompute, Recompute::Selective(_)),
    neighbours: |near| {
        let best = near.best;
        if best.recompute != Recompute::None {
            near.less(ConfigKey::Recompute, ParallelConfig { recompute: Recompute::None, ..best.clone() });
        }
        if matches!(best.recompute, Recompute::Full(_)) {
            near.less(ConfigKey::Recompute, near.open_memory());
        }
    },
    spends: |predicted| predicted.time_s.recompute,
    meaning: |best| {
        let spent = spent(best.predicted.time_s.recompute, "which takes", &best.predicted);
        format!("recomputed in the backward{spent}")
    },
    copy: |parallel, other| parallel.recompute.clone_from(&other.recompute),
    compiled: |parallel| parallel.recompute = Recompute::None,
    ..PLAIN
};

pub(super) const OFFLOAD: Row = Row {
    level: Level::Offload,
    neighbours: |near| {
        if !near.best.offload.is_none() {
            near.less(ConfigKey::Offload, ParallelConfig { offload: Offload::None, ..near.open_memory() });
        }
    },
    meaning: |best| match best.parallel.offload {
        Offload::All(Some(layers)) => {
            let first = number_of(layers.into(), "layer");
            format!("host memory holds the activations of the first {first} of each stage")
        }
        _ => "activations are offloaded to host memory".into(),
    },
    is_pinned_in_searches: false,
    copy: |parallel, other| parallel.offload = other.offload,
    compiled: |parallel| parallel.offload = Offload::None,
    ..PLAIN
};

pub(super) const OFFLOAD_OPTIMIZER: Row = Row {
    level: Level::Degrees,
    neighbours: |near| {
        if near.best.offload_optimizer {
            let parallel = ParallelConfig { offload_optimizer: false, ..near.open_memory() };
            near.less(ConfigKey::OffloadOptimizer, parallel);
        }
    },
    meaning: |_| "host memory holds the optimizer states between updates".into(),
    is_pinned_in_searches: false,
    copy: |parallel, other| parallel.offload_optimizer = other.offload_optimizer,
    compiled: |parallel| parallel.offload_optimizer = false,
    ..PLAIN
};
