//! Errors of parallel configurations.

use super::{key_text, names};
use ir::catalogue::Code;
use ir::config_key::ConfigKey;
use ir::diag::{Coded, nearest};
use ir::limits;
use ir::options::{Offload, ParallelConfig, Recompute};
use ir::zero_groups::UnevenGroups;

/// Error of the text or the values of a parallel configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParallelError {
    /// A key has two values.
    #[error("`{key}` is given twice in `{text}`")]
    GivenTwice {
        /// The key.
        key: String,
        /// The whole text.
        text: String,
    },
    /// An item of the text has no characters.
    #[error("an item of `{text}` is empty")]
    EmptyItem {
        /// The whole text.
        text: String,
    },
    /// The first item has no key.
    #[error("`{item}` in `{text}` is not of the form key=value")]
    NoKey {
        /// The item.
        item: String,
        /// The whole text.
        text: String,
    },
    /// A key that takes one value has a list.
    #[error("`{item}` after `{key}={value}` is not of the form key=value")]
    NoList {
        /// The item without a key.
        item: String,
        /// The key before it.
        key: String,
        /// The value of this key.
        value: String,
    },
    /// No configuration has the key.
    #[error("there is no `{key}` in a configuration")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A value is not of its key's type.
    #[error("`{key}={value}` {must}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Requirement of its type.
        must: &'static str,
    },
    /// A set or a range in a configuration.
    #[error("`{key}` has several values, but a configuration has one of each key")]
    SeveralValues {
        /// The key.
        key: String,
    },
    /// A range of a key whose values are no numbers.
    #[error("`{key}` has no range: {keys} have")]
    NoRange {
        /// The key.
        key: String,
        /// The keys that have ranges.
        keys: String,
    },
    /// A set of a key that no search chooses.
    #[error("`{key}` has no set of values: it has one value, or is left out")]
    NoSet {
        /// The key.
        key: String,
    },
    /// Two ranges without a common value.
    #[error("`{key}` has no value from {least} to {most}")]
    EmptyRange {
        /// The key.
        key: String,
        /// The larger of the lower ends.
        least: u64,
        /// The smaller of the upper ends.
        most: u64,
    },
    /// A value is none of the names that its key takes.
    #[error("`{key}={value}`: it must be one of {names}")]
    NotOneOf {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The names.
        names: String,
    },
    /// The value of `recompute` or `offload` is wrong.
    #[error("`{key}`: {why}")]
    Choice {
        /// The key.
        key: String,
        /// The cause.
        why: String,
    },
    /// A number is 0.
    #[error("`{key}` is 0, but must be 1 or more")]
    Zero {
        /// The key.
        key: &'static str,
    },
    /// Degrees multiply to more devices than a cluster may have.
    #[error("{product} is more than {} devices", limits::DEVICES)]
    TooManyDevices {
        /// The degrees.
        product: &'static str,
    },
    /// A ZeRO stage that does not exist.
    #[error("`zero={zero}`: there are ZeRO stages 0 to 3")]
    ZeroStage {
        /// The stage.
        zero: u8,
    },
    /// The rank order lacks an axis or has one twice.
    #[error("`rank_order={order}` does not name each of pp, dp, cp and tp once")]
    RankOrder {
        /// The order.
        order: String,
    },
    /// The schedule does not have that number of stages per rank.
    #[error("`schedule={schedule},vp={vp}`: {why}")]
    Chunks {
        /// Name of the schedule.
        schedule: &'static str,
        /// Stages per rank.
        vp: u32,
        /// The cause.
        why: String,
        /// Name of the schedule that has several stages per rank, if it is derived from this one.
        instead: Option<&'static str>,
    },
    /// The number of stages differs from that of the schedule.
    #[error(
        "`stages` lists the first block of each stage but the first: {starts} of them for pp={pp}{},schedule={schedule}, \
         not {given}", vp(.chunks)
    )]
    Stages {
        /// Number of stages except the first.
        starts: usize,
        /// Pipeline ranks.
        pp: u64,
        /// Stages per rank, if the configuration has them.
        chunks: Option<u32>,
        /// Name of the schedule.
        schedule: String,
        /// Number of listed blocks.
        given: usize,
    },
    /// The ranks of dp and cp do not divide into groups of ZeRO.
    #[error(transparent)]
    ZeroGroups(UnevenGroups),
    /// The configuration can be predicted, but not run.
    #[error("`{item}` ({what}) is not in this version")]
    NotInThisVersion {
        /// The item.
        item: String,
        /// Its meaning.
        what: &'static str,
        /// The fix.
        instead: &'static str,
    },
}

fn vp(chunks: &Option<u32>) -> String {
    chunks.map_or_else(String::new, |chunks| format!(",vp={chunks}"))
}

/// Keys by the names that they had, and by those that they have.
const RENAMED: [(&str, &str); 1] = [("order", "rank_order")];

impl Coded for ParallelError {
    fn code(&self) -> Option<Code> {
        match self {
            ParallelError::NotInThisVersion { .. } => Some(Code::NotInThisVersion),
            _ => Some(Code::BadOption),
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            ParallelError::NotInThisVersion { instead, .. } => Some((*instead).to_string()),
            ParallelError::ZeroGroups(error) => Some(error.help()),
            ParallelError::Chunks { instead: Some(name), .. } => {
                Some(format!("take schedule={name}, or leave out `vp`"))
            }
            ParallelError::Chunks { .. } => Some("leave out `vp` or `schedule`".to_string()),
            ParallelError::UnknownKey { key } => {
                let renamed = RENAMED.iter().find(|(old, _)| old == key);
                Some(match (renamed, nearest(key, ConfigKey::ALL.map(ConfigKey::name))) {
                    (Some((old, new)), _) => format!("`{old}` is now `{new}`"),
                    (None, Some(near)) => format!("did you mean `{near}`?"),
                    (None, None) => format!("the keys of a configuration are {}", names()),
                })
            }
            ParallelError::SeveralValues { .. } => Some("sets and ranges are for the --pin of a plan".to_string()),
            ParallelError::NoRange { .. } | ParallelError::NoSet { .. } | ParallelError::EmptyRange { .. } => {
                Some("for example --pin 'tp<=8,zero=1|3'".to_string())
            }
            ParallelError::GivenTwice { .. } => Some("give each key once".to_string()),
            ParallelError::TooManyDevices { .. } => Some("lower the degrees".to_string()),
            ParallelError::Value { key, value, .. } if value.contains(OTHER_SEPARATORS) => {
                Some(format!("commas separate items: {key}={}", value.replace(OTHER_SEPARATORS, ",")))
            }
            ParallelError::Value { key, .. }
            | ParallelError::NotOneOf { key, .. }
            | ParallelError::Choice { key, .. } => Some(meaning(key)),
            ParallelError::Zero { key } => Some(meaning(key)),
            ParallelError::ZeroStage { .. } => Some(meaning("zero")),
            ParallelError::RankOrder { .. } => Some(meaning("rank_order")),
            ParallelError::Stages { .. } => {
                Some("list that many blocks, or leave `stages` out to divide the work evenly".into())
            }
            ParallelError::EmptyItem { .. } | ParallelError::NoKey { .. } | ParallelError::NoList { .. } => {
                Some("for example dp=2,tp=2,pp=2".to_string())
            }
        }
    }
}

/// Characters that separate no items here, but do elsewhere.
const OTHER_SEPARATORS: [char; 4] = [';', '+', ' ', '/'];

/// Text on a key and its values.
fn meaning(key: &str) -> String {
    let row = ConfigKey::of_name(key).map(key_text);
    row.map_or_else(String::new, |row| {
        format!("`{key}` means {}; for example {key}={}", row.about, (row.text)(&example()))
    })
}

/// The configuration whose values are examples.
fn example() -> ParallelConfig {
    ParallelConfig {
        dp: 2,
        tp: 2,
        pp: 2,
        cp: 2,
        ep: 2,
        etp: 2,
        vp: Some(2),
        group: Some(4),
        slices: Some(2),
        shard: Some(8),
        zero: 1,
        sp: true,
        tp_overlap: Some(true),
        dp_overlap: Some(true),
        recompute: Recompute::Full(Some(2)),
        offload: Offload::All(Some(2)),
        stages: vec![4, 8],
        ..ParallelConfig::default()
    }
}
