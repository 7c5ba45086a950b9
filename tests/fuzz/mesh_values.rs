//! Values of every key of a configuration, and random configurations that have a given pair of them.

use crate::random::Random;
use ir::options::Gather;
use meshwright::compiler::parallel::{self, KEYS};
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
///
/// # Panics
/// The key has no values yet: each row of the table needs some here.
fn values(key: &str) -> Vec<&'static str> {
    let names = |default: &'static str, all: Vec<&'static str>| {
        let others = all.into_iter().filter(|&name| name != default);
        std::iter::once(default).chain(others).collect()
    };
    match key {
        "dp" | "tp" | "pp" | "cp" => vec!["1", "2", "3", "4"],
        "ep" => vec!["1", "2", "4"],
        "etp" => vec!["1", "2"],
        "sp" | "offload_optimizer" => vec!["false", "true"],
        "zero" => vec!["0", "1", "2", "3"],
        "mbs" => vec!["1", "2", "3", "6", "25"],
        "schedule" => names("1f1b", SCHEDULES.iter().map(|kind| kind.name).collect()),
        "rank_order" => vec!["pp,dp,cp,tp", "tp,cp,dp,pp", "dp,pp,tp,cp", "cp,tp,pp,dp"],
        "vp" => vec!["1", "2", "3"],
        "group" => vec!["default", "1", "2", "3"],
        "slices" => vec!["default", "1", "2", "3", "4"],
        "cp_kind" => names("allgather", CpKind::ALL.iter().map(|(name, _)| *name).collect()),
        "shard" => vec!["all", "1", "2", "3", "4"],
        "gather" => names("use", Gather::ALL.iter().map(|(name, _)| *name).collect()),
        "recompute" => {
            vec!["none", "full", "full:0", "full:1", "full:9", "selective", "selective:mlp+layernorm", "selective:n+q"]
        }
        "offload" => vec!["none", "all", "all:0", "all:1", "all:9"],
        "tp_overlap" | "dp_overlap" => vec!["default", "true", "false"],
        "stages" => vec!["even", "4", "2,5", "2,4,6", "1,2,3,4,5", "0", "4,4", "9"],
        other => panic!("tests/fuzz/mesh_values.rs draws no values of the key `{other}`: add them to `values`"),
    }
}

/// The values of every key, in the order of the table.
static VALUES: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| KEYS.iter().map(|key| values(key.name)).collect());

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
        let items = KEYS.iter().zip(&*VALUES).zip(&self.0).filter(|(_, place)| **place > 0);
        items.map(|((key, values), &place)| format!("{}={}", key.name, values[place])).collect::<Vec<_>>().join(",")
    }

    /// True if it shards experts, which few models have.
    pub(crate) fn shards_experts(&self) -> bool {
        ["ep", "etp"].iter().any(|key| parallel::has_key(&self.text(), key))
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
