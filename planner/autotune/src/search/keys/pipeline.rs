//! Schedule of a pipeline and its stages.

use super::{ChoiceGroup, Neighbours, PLAIN, Row};
use crate::search::Level;
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use scheduler::schedules;

pub(super) const SCHEDULE: Row = Row {
    level: Level::Pipeline,
    is_usual: |space, node| match node.level < Level::Schedule {
        true => node.schedules.iter().any(|name| space.common_schedules.contains(name)),
        false => space.common_schedules.contains(&node.parallel.schedule.as_str()),
    },
    choice: Some(ChoiceGroup::Pipeline),
    agrees: |centre, node| {
        let is_chosen = node.level >= Level::Schedule;
        node.schedules.contains(&centre.schedule.as_str()) && (!is_chosen || node.parallel.schedule == centre.schedule)
    },
    neighbours: |near| {
        let best = near.best;
        let is_plain = best.schedule == plain() || best.schedule == schedules::with_chunks(&plain(), Some(2));
        if best.pp > 1 && !is_plain {
            near.less(ConfigKey::Schedule, with_chunks(near, 1));
        }
    },
    repair: |parallel, repair| {
        if parallel.pp != repair.best.pp && (parallel.pp == 1 || repair.best.pp == 1) {
            (parallel.schedule, parallel.vp) = (plain(), None);
        }
    },
    spends: |predicted| predicted.exposed_comm_s.pp,
    meaning: |_| "the order of forward and backward passes".into(),
    context: Some(ConfigKey::Pp),
    ..PLAIN
};

pub(super) const VP: Row = Row {
    level: Level::Pipeline,
    choice: Some(ChoiceGroup::Pipeline),
    agrees: |centre, node| node.parallel.vp == centre.vp,
    neighbours: |near| {
        let best = near.best;
        let chunks = best.vp.unwrap_or(1);
        if best.pp < 2 {
            return;
        }
        if best.schedule == plain() {
            near.more(ConfigKey::Vp, with_chunks(near, 2));
        } else if best.schedule == schedules::with_chunks(&plain(), Some(2)) {
            near.less(ConfigKey::Vp, with_chunks(near, chunks / 2));
            near.more(ConfigKey::Vp, with_chunks(near, chunks * 2));
        }
    },
    spends: |predicted| predicted.exposed_comm_s.pp,
    meaning: |best| match best.parallel.vp.unwrap_or(1) {
        1 => "each rank has one model chunk".into(),
        vp => format!("each rank has {vp} model chunks, so that the pipeline fills sooner"),
    },
    context: Some(ConfigKey::Pp),
    ..PLAIN
};

pub(super) const STAGES: Row = Row {
    level: Level::Stages,
    is_usual: |_, node| node.parallel.stages.is_empty(),
    choice: Some(ChoiceGroup::Pipeline),
    agrees: |centre, node| node.parallel.stages.is_empty() == centre.stages.is_empty(),
    neighbours: |near| {
        if !near.best.stages.is_empty() {
            near.less(ConfigKey::Stages, ParallelConfig { stages: Vec::new(), ..near.open_memory() });
        }
    },
    repair: |parallel, repair| {
        if parallel.pp != repair.best.pp {
            parallel.stages = Vec::new();
        }
    },
    spends: |predicted| predicted.exposed_comm_s.pp,
    meaning: |_| "where the model is partitioned into stages".into(),
    context: Some(ConfigKey::Pp),
    is_pinned_in_searches: false,
    is_setting: true,
    copy: |parallel, other| parallel.stages.clone_from(&other.stages),
    ..PLAIN
};

pub(super) const GROUP: Row = Row {
    level: Level::Pipeline,
    repair: |parallel, repair| {
        if parallel.pp != repair.best.pp {
            parallel.group = None;
        }
    },
    spends: |predicted| predicted.exposed_comm_s.pp,
    meaning: |_| "micro-batches that go through one chunk of a rank before its next chunk".into(),
    is_setting: true,
    copy: |parallel, other| parallel.group = other.group,
    ..PLAIN
};

pub(super) const SLICES: Row = Row {
    level: Level::Schedule,
    repair: |parallel, repair| {
        if parallel.pp != repair.best.pp {
            parallel.slices = None;
        }
    },
    spends: |predicted| predicted.exposed_comm_s.pp,
    meaning: |_| "slices of each sequence, which pass through the pipeline one by one".into(),
    is_setting: true,
    copy: |parallel, other| parallel.slices = other.slices,
    ..PLAIN
};

/// The schedule of a configuration that states none.
fn plain() -> String {
    ParallelConfig::default().schedule
}

/// The configuration in 1F1B with a number of stages per rank.
fn with_chunks(near: &Neighbours<'_>, chunks: u32) -> ParallelConfig {
    ParallelConfig {
        schedule: schedules::with_chunks(&plain(), Some(chunks)).to_string(),
        vp: (chunks > 1).then_some(chunks),
        group: None,
        slices: None,
        stages: Vec::new(),
        ..near.open_memory()
    }
}
