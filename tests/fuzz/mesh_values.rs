//! Values of every key of a configuration, and random configurations that have a given pair of them.

use crate::random::Random;
use ir::config_key::ConfigKey;
use ir::options::Gather;
use meshwright::compiler::parallel;
use meshwright::{CpKind, ParallelConfig, SCHEDULES};
use scheduler::predict::pipeline_of;
use std::sync::LazyLock;

/// Sequences of a step.
pub(crate) const GLOBAL_BATCH: u64 = 24;
/// The most devices of a case: each is a thread.
const DEVICES: u64 = 8;
/// Random configurations that a pair gets before one is taken that its schedule or the number of devices refuses.
const ATTEMPTS: u32 = 1000;
/// The chance in per cent that a key outside the pair has its first value.
const PLAIN: u64 = 65;

/// The values of a key, its default first. Degenerate ones are among them: `full:0`, more sequences than a step has, empty stages.
fn values(key: ConfigKey) -> Vec<&'static str> {
    let names = |default: &'static str, all: Vec<&'static str>| {
        let others = all.into_iter().filter(|&name| name != default);
        std::iter::once(default).chain(others).collect()
    };
    match key {
        ConfigKey::Dp | ConfigKey::Tp | ConfigKey::Pp | ConfigKey::Cp => vec!["1", "2", "3", "4"],
        ConfigKey::Ep => vec!["1", "2", "4"],
        ConfigKey::Etp => vec!["1", "2"],
        ConfigKey::Sp | ConfigKey::OffloadOptimizer => vec!["false", "true"],
        ConfigKey::Zero => vec!["0", "1", "2", "3"],
        ConfigKey::Mbs => vec!["1", "2", "3", "6", "25"],
        ConfigKey::Schedule => names("1f1b", SCHEDULES.iter().map(|kind| kind.name).collect()),
        ConfigKey::RankOrder => vec!["pp,dp,cp,tp", "tp,cp,dp,pp", "dp,pp,tp,cp", "cp,tp,pp,dp"],
        ConfigKey::Vp => vec!["1", "2", "3"],
        ConfigKey::Group => vec!["default", "1", "2", "3"],
        ConfigKey::Slices => vec!["default", "1", "2", "3", "4"],
        ConfigKey::CpKind => names("allgather", CpKind::ALL.iter().map(|(name, _)| *name).collect()),
        ConfigKey::Shard => vec!["all", "1", "2", "3", "4"],
        ConfigKey::Gather => names("use", Gather::ALL.iter().map(|(name, _)| *name).collect()),
        ConfigKey::Recompute => {
            vec!["none", "full", "full:0", "full:1", "full:9", "selective", "selective:mlp+layernorm", "selective:n+q"]
        }
        ConfigKey::Offload => vec!["none", "all", "all:0", "all:1", "all:9"],
        ConfigKey::TpOverlap | ConfigKey::DpOverlap => vec!["default", "true", "false"],
        ConfigKey::Stages => vec!["even", "4", "2,5", "2,4,6", "1,2,3,4,5", "0", "4,4", "9"],
    }
}

/// The values of every key, in the order of the table.
static VALUES: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| ConfigKey::ALL.map(values).into());

/// A key and its value, by their places.
pub(crate) type Item = (usize, usize);

/// A configuration: for each key the place of its value.
#[derive(Clone, Debug)]
pub(crate) struct Drawn(Vec<usize>);

impl Drawn {
    /// A random configuration of one pair, which the grammar and the schedule accept if one of [`ATTEMPTS`] does.
    pub(crate) fn with(pair: [Item; 2], random: &mut Random) -> Drawn {
        let mut drawn = Drawn(Vec::new());
        for _ in 0..ATTEMPTS {
            let places = VALUES.iter().map(|values| if random.chance(PLAIN) { 0 } else { random.below(values.len()) });
            drawn = Drawn(places.collect());
            pair.into_iter().for_each(|(key, value)| drawn.0[key] = value);
            if drawn.is_plausible() {
                break;
            }
        }
        drawn
    }

    /// The configuration in the grammar of `--parallel`, without the keys that have their first value.
    pub(crate) fn text(&self) -> String {
        let items = ConfigKey::ALL.iter().zip(&*VALUES).zip(&self.0).filter(|(_, place)| **place > 0);
        items.map(|((key, values), &place)| format!("{key}={}", values[place])).collect::<Vec<_>>().join(",")
    }

    /// True if it shards experts, which few models have.
    pub(crate) fn shards_experts(&self) -> bool {
        [ConfigKey::Ep, ConfigKey::Etp].into_iter().any(|key| parallel::has_key(&self.text(), key))
    }

    /// The pairs of values that it has.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = [Item; 2]> {
        let items = || self.0.iter().copied().enumerate();
        items().flat_map(move |one| items().skip(one.0 + 1).map(move |other| [one, other]))
    }

    fn is_plausible(&self) -> bool {
        let Ok(parallel) = parallel::parse(&self.text()) else { return false };
        let ParallelConfig { dp, mbs, .. } = parallel;
        let microbatches = (GLOBAL_BATCH / (dp * mbs)).max(1) as u32;
        let fits = parallel.devices() <= DEVICES && GLOBAL_BATCH.is_multiple_of(dp * mbs) && parallel.fold().is_ok();
        fits && pipeline_of(&parallel, microbatches).is_ok_and(|(kind, pipeline)| kind.accepts(&pipeline))
    }
}

/// All pairs of values of two keys.
pub(crate) fn all_pairs() -> Vec<[Item; 2]> {
    let items: Vec<Item> =
        VALUES.iter().enumerate().flat_map(|(key, values)| (0..values.len()).map(move |value| (key, value))).collect();
    let after = |one: Item| items.iter().copied().filter(move |other| other.0 > one.0).map(move |other| [one, other]);
    items.iter().copied().flat_map(after).collect()
}
