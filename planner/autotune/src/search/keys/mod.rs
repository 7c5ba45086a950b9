//! Behaviour of the keys of a configuration in the search and in its explanations: a row for each key.
//!
//! The search, the neighbourhoods, the notes and the simplest plan loop over the rows. A new key is a constant in one of these files
//! and an arm of [`row`]; the compiler names it if it has none.

mod degrees;
mod experts;
mod memory;
mod neighbours;
mod pipeline;
mod sequences;
mod shards;
mod words;

pub(crate) use neighbours::{Neighbour, Neighbours};

use crate::search::{Level, SearchNode, Space};
use cost::EnumSet;
use estimator::{EstimateReport, Predicted};
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use std::sync::LazyLock;

/// Behaviour of a key in the search and the explanations.
pub(crate) struct Row {
    /// Level of the search that decides the key.
    pub(crate) level: Level,
    /// Configurations with each value that the key may have in a space if it is not pinned; `None` of keys that levels of their
    /// own decide. Earlier keys of the level are decided.
    pub(crate) open: Option<fn(&Space, &ParallelConfig) -> Vec<ParallelConfig>>,
    /// Returns whether a node that has decided the key has a value that most runs use.
    pub(crate) is_usual: fn(&Space, &SearchNode) -> bool,
    /// ChoiceGroup that a difference in the key counts to; `None` of keys that follow from others or from the memory budget.
    pub(crate) choice: Option<ChoiceGroup>,
    /// Returns whether a node that has decided the key agrees with a configuration.
    pub(crate) agrees: fn(&ParallelConfig, &SearchNode) -> bool,
    /// Adds the neighbours of a configuration that change the key.
    pub(crate) neighbours: fn(&mut Neighbours<'_>),
    /// Makes the key fit the others, in a neighbour of a configuration.
    pub(crate) repair: fn(&mut ParallelConfig, &Repair<'_>),
    /// Returns whether a configuration makes use of a technique that the key is the degree of.
    pub(crate) is_used: fn(&ParallelConfig) -> bool,
    /// Seconds that a step spends on the key.
    pub(crate) spends: fn(&Predicted) -> f64,
    /// Meaning and cost of its value, as text.
    pub(crate) meaning: fn(&EstimateReport) -> String,
    /// Key that gives it a meaning: the kind of context parallelism means nothing without its degree.
    pub(crate) context: Option<ConfigKey>,
    /// True if its values make configurations of other kinds, of which alternatives are the best ones.
    pub(crate) is_kind: bool,
    /// True if searches may be made with it pinned: some keys have no text for what the stack chooses, and offloading is proposed
    /// only if nothing fits without it.
    pub(crate) is_pinned_in_searches: bool,
    /// True if most runs leave it to the framework.
    pub(crate) is_setting: bool,
    /// Gives the key the value that it has in another configuration.
    pub(crate) copy: fn(&mut ParallelConfig, &ParallelConfig),
    /// Gives the key a value that `compile` supports.
    pub(crate) compiled: fn(&mut ParallelConfig),
}

/// A choice that a user makes, of one or several keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ChoiceGroup {
    Tp,
    Cp,
    Ep,
    Etp,
    Batch,
    Pipeline,
    Shards,
}

/// Facts that a repair depends on, in addition to the configuration.
pub(crate) struct Repair<'a> {
    /// The configuration that a neighbour was made of.
    pub(crate) best: &'a ParallelConfig,
    /// Sequences of a step.
    pub(crate) global_batch: u64,
}

/// The row of a key.
pub(crate) fn row(key: ConfigKey) -> &'static Row {
    match key {
        ConfigKey::Dp => &degrees::DP,
        ConfigKey::Tp => &degrees::TP,
        ConfigKey::Pp => &degrees::PP,
        ConfigKey::Cp => &degrees::CP,
        ConfigKey::Ep => &experts::EP,
        ConfigKey::Etp => &experts::ETP,
        ConfigKey::Sp => &sequences::SP,
        ConfigKey::Zero => &shards::ZERO,
        ConfigKey::Mbs => &sequences::MBS,
        ConfigKey::Schedule => &pipeline::SCHEDULE,
        ConfigKey::RankOrder => &degrees::RANK_ORDER,
        ConfigKey::Vp => &pipeline::VP,
        ConfigKey::Group => &pipeline::GROUP,
        ConfigKey::Slices => &pipeline::SLICES,
        ConfigKey::CpKind => &sequences::CP_KIND,
        ConfigKey::Shard => &shards::SHARD,
        ConfigKey::Gather => &shards::GATHER,
        ConfigKey::Recompute => &memory::RECOMPUTE,
        ConfigKey::Offload => &memory::OFFLOAD,
        ConfigKey::OffloadOptimizer => &memory::OFFLOAD_OPTIMIZER,
        ConfigKey::TpOverlap => &sequences::TP_OVERLAP,
        ConfigKey::DpOverlap => &shards::DP_OVERLAP,
        ConfigKey::Stages => &pipeline::STAGES,
    }
}

/// Keys with notes, in the order of these.
pub(crate) const NOTED: [ConfigKey; 19] = [
    ConfigKey::Tp,
    ConfigKey::Sp,
    ConfigKey::Cp,
    ConfigKey::CpKind,
    ConfigKey::Pp,
    ConfigKey::Vp,
    ConfigKey::Schedule,
    ConfigKey::Stages,
    ConfigKey::Ep,
    ConfigKey::Etp,
    ConfigKey::Zero,
    ConfigKey::Shard,
    ConfigKey::Gather,
    ConfigKey::Mbs,
    ConfigKey::Recompute,
    ConfigKey::Offload,
    ConfigKey::OffloadOptimizer,
    ConfigKey::TpOverlap,
    ConfigKey::DpOverlap,
];

/// Keys of a configuration that are decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    /// All of them.
    pub all: EnumSet<ConfigKey>,
    /// Those on which rules have not been checked yet.
    pub new: EnumSet<ConfigKey>,
}

impl Decided {
    /// Keys of which none has been checked.
    pub(crate) fn unchecked(keys: EnumSet<ConfigKey>) -> Decided {
        Decided { all: keys, new: keys }
    }

    /// The keys of some levels, of which the last one has not been checked.
    pub(crate) fn last_of(levels: &[Level]) -> Decided {
        let last = levels.last().copied().into_iter();
        Decided { all: decided_by(levels), new: last.map(decided_at).fold(EnumSet::default(), EnumSet::union) }
    }

    /// The keys that a level and all before it decide, of which its own have not been checked. They are computed once: the search asks
    /// for each node.
    pub(crate) fn up_to(level: Level) -> Decided {
        static DECIDED: LazyLock<Vec<Decided>> =
            LazyLock::new(|| (0..Level::ALL.len()).map(|last| Decided::last_of(&Level::ALL[..=last])).collect());
        DECIDED[level as usize]
    }
}

/// The keys that some levels decide.
pub(crate) fn decided_by(levels: &[Level]) -> EnumSet<ConfigKey> {
    levels.iter().copied().map(decided_at).fold(EnumSet::default(), EnumSet::union)
}

/// The keys that a level decides.
fn decided_at(level: Level) -> EnumSet<ConfigKey> {
    static DECIDED: LazyLock<Vec<EnumSet<ConfigKey>>> = LazyLock::new(|| {
        let keys = Level::ALL.into_iter();
        keys.map(|level| ConfigKey::ALL.into_iter().filter(|&key| row(key).level == level).collect()).collect()
    });
    DECIDED[level as usize]
}

/// The configuration with each key as [`Row::compiled`] leaves it.
pub(crate) fn compiled(parallel: &ParallelConfig) -> ParallelConfig {
    let mut compiled = parallel.clone();
    ConfigKey::ALL.into_iter().for_each(|key| (row(key).compiled)(&mut compiled));
    compiled
}

/// Row of a key that follows from others, has one value in the search, and means nothing by itself.
const PLAIN: Row = Row {
    level: Level::Degrees,
    open: None,
    is_usual: |_, _| true,
    choice: None,
    agrees: |_, _| true,
    neighbours: |_| (),
    repair: |_, _| (),
    is_used: |_| false,
    spends: |_| 0.0,
    meaning: |_| String::new(),
    context: None,
    is_kind: false,
    is_pinned_in_searches: true,
    is_setting: false,
    copy: |_, _| (),
    compiled: |_| (),
};
