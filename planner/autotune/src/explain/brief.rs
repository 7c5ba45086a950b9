//! Short text forms of configurations.

use compiler::parallel::{Pins, item, key_text};
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use scheduler::schedules::{self, Chunks};

/// Options of a configuration that differ from their defaults: `dp=8,tp=4,sp=true,zero=1`.
pub fn brief(parallel: &ParallelConfig) -> String {
    let plain = ParallelConfig::default();
    let is_said = |key: &ConfigKey| is_always_said(*key) || value(*key, parallel) != value(*key, &plain);
    ConfigKey::ALL.into_iter().filter(is_said).map(|key| item(key, parallel)).collect::<Vec<_>>().join(",")
}

/// True of keys that are said at their defaults, too.
fn is_always_said(key: ConfigKey) -> bool {
    matches!(key, ConfigKey::Dp | ConfigKey::Tp | ConfigKey::Pp | ConfigKey::Zero | ConfigKey::Mbs)
}

/// Options of the second configuration that differ from the first: `tp=2,dp=16`. A schedule whose number of stages is its own
/// states that, so that the options make one configuration of the other.
pub fn differences(from: &ParallelConfig, to: &ParallelConfig) -> String {
    let differ = ConfigKey::ALL.into_iter().filter(|&key| value(key, from) != value(key, to));
    differ.map(|key| format!("{key}={}", stated(key, to))).collect::<Vec<_>>().join(",")
}

/// The value of a key; for `vp` the schedule's own number of stages, if it has one.
fn stated(key: ConfigKey, parallel: &ParallelConfig) -> String {
    match (key, schedules::find(&parallel.schedule).ok().map(|kind| kind.chunks)) {
        (ConfigKey::Vp, Some(Chunks::Just(own))) => own.to_string(),
        _ => value(key, parallel),
    }
}

/// Returns whether a configuration has the pinned options; `false` for pins that do not parse.
pub(super) fn holds(parallel: &ParallelConfig, pins: &str) -> bool {
    Pins::parse(pins).is_ok_and(|pins| pins.holds(parallel))
}

/// All options of a configuration by key, in the order of the table.
pub(super) fn values(parallel: &ParallelConfig) -> Vec<(&'static str, String)> {
    ConfigKey::ALL.into_iter().map(|key| (key.name(), value(key, parallel))).collect()
}

fn value(key: ConfigKey, parallel: &ParallelConfig) -> String {
    (key_text(key).text)(parallel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::parallel::{parse_any, print};

    #[test]
    fn the_other_configuration_has_the_stages_of_its_schedule() {
        let [from, to] =
            ["pp=8,vp=2,schedule=interleaved-1f1b", "pp=8,schedule=dualpipe"].map(|text| parse_any(text).unwrap());
        assert_eq!(differences(&from, &to), "schedule=dualpipe,vp=2");
        assert!(parse_any(&format!("pp=8,{}", differences(&from, &to))).is_ok());
        assert_eq!(differences(&to, &from), "schedule=interleaved-1f1b,vp=2");
    }

    #[test]
    fn a_brief_layout_is_the_configuration() {
        for text in ["tp=2,pp=2,vp=2,schedule=interleaved-1f1b,sp=true,zero=1", "dp=4,cp=2,cp_kind=ring,pp=2,stages=2"]
        {
            let parallel = parse_any(text).unwrap();
            assert_eq!(parse_any(&brief(&parallel)).unwrap(), parallel, "{text}: {}", print(&parallel));
        }
    }

    #[test]
    fn pins_hold_or_do_not() {
        let parallel = parse_any("dp=4,tp=2,zero=1").unwrap();
        assert!(
            ["", "tp=2", "vp=1,zero=1", "recompute=auto", "tp<=4,zero=1|3"].iter().all(|pins| holds(&parallel, pins))
        );
        assert!(["tp=4", "tp=2,zero=0", "tp>=4", "no configuration"].iter().all(|pins| !holds(&parallel, pins)));
    }

    #[test]
    fn only_what_differs_is_said() {
        let [a, b] = ["dp=4,tp=2,zero=1", "dp=8,zero=1"].map(|text| parse_any(text).unwrap());
        assert_eq!(differences(&a, &b), "dp=8,tp=1");
        assert_eq!(differences(&a, &a), "");
    }
}
