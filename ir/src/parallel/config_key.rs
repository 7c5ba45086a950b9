//! The keys of a parallel configuration. Each layer that gives them a meaning matches them all, so that the compiler names what a new
//! key lacks.

use std::fmt;

/// A key: the name of a field of [`ParallelConfig`](crate::options::ParallelConfig).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the fields of the configuration say what they are")]
pub enum ConfigKey {
    Dp,
    Tp,
    Pp,
    Cp,
    Ep,
    Etp,
    Sp,
    Zero,
    Mbs,
    Schedule,
    RankOrder,
    Vp,
    Group,
    Slices,
    CpKind,
    Shard,
    Gather,
    Recompute,
    Offload,
    OffloadOptimizer,
    TpOverlap,
    DpOverlap,
    Stages,
}

impl ConfigKey {
    /// All keys, in the order of a printed configuration.
    pub const ALL: [ConfigKey; 23] = [
        ConfigKey::Dp,
        ConfigKey::Tp,
        ConfigKey::Pp,
        ConfigKey::Cp,
        ConfigKey::Ep,
        ConfigKey::Etp,
        ConfigKey::Sp,
        ConfigKey::Zero,
        ConfigKey::Mbs,
        ConfigKey::Schedule,
        ConfigKey::RankOrder,
        ConfigKey::Vp,
        ConfigKey::Group,
        ConfigKey::Slices,
        ConfigKey::CpKind,
        ConfigKey::Shard,
        ConfigKey::Gather,
        ConfigKey::Recompute,
        ConfigKey::Offload,
        ConfigKey::OffloadOptimizer,
        ConfigKey::TpOverlap,
        ConfigKey::DpOverlap,
        ConfigKey::Stages,
    ];

    /// Its name in texts.
    pub fn name(self) -> &'static str {
        match self {
            ConfigKey::Dp => "dp",
            ConfigKey::Tp => "tp",
            ConfigKey::Pp => "pp",
            ConfigKey::Cp => "cp",
            ConfigKey::Ep => "ep",
            ConfigKey::Etp => "etp",
            ConfigKey::Sp => "sp",
            ConfigKey::Zero => "zero",
            ConfigKey::Mbs => "mbs",
            ConfigKey::Schedule => "schedule",
            ConfigKey::RankOrder => "rank_order",
            ConfigKey::Vp => "vp",
            ConfigKey::Group => "group",
            ConfigKey::Slices => "slices",
            ConfigKey::CpKind => "cp_kind",
            ConfigKey::Shard => "shard",
            ConfigKey::Gather => "gather",
            ConfigKey::Recompute => "recompute",
            ConfigKey::Offload => "offload",
            ConfigKey::OffloadOptimizer => "offload_optimizer",
            ConfigKey::TpOverlap => "tp_overlap",
            ConfigKey::DpOverlap => "dp_overlap",
            ConfigKey::Stages => "stages",
        }
    }

    /// The key of a name.
    pub fn of_name(name: &str) -> Option<ConfigKey> {
        ConfigKey::ALL.into_iter().find(|key| key.name() == name)
    }
}

impl fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ParallelConfig;
    use std::collections::BTreeSet;

    /// The list has every key, each at its own place.
    #[test]
    fn keys_are_the_fields_of_a_configuration() {
        assert!(ConfigKey::ALL.into_iter().enumerate().all(|(at, key)| key as usize == at));
        let fields = serde_json::to_value(ParallelConfig::default()).unwrap();
        let fields: BTreeSet<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(ConfigKey::ALL.into_iter().map(ConfigKey::name).collect::<BTreeSet<_>>(), fields);
    }
}
