//! The grammar of `--parallel` and `--pin`: `dp=2,tp=2,pp=2,sp=true,zero=1,mbs=4,schedule=1f1b,vp=1,rank_order=pp,dp,tp`.
//!
//! Items are separated by commas; an item without `=` continues the list before it. Degrees left out are 1. [`parse`] reads
//! what can be compiled and run, [`parse_any`] all that can be predicted. [`key_text`] has the text form of each key.

mod error;
mod keys;
mod pins;

pub use error::ParallelError;
pub use keys::{KeyText, json_schema, key_text};
pub use pins::Pins;

use ir::config_key::ConfigKey;
use ir::limits;
use ir::options::{Offload, ParallelConfig, Recompute};
use scheduler::placement::Placement;
use scheduler::schedules;

/// Reads a configuration that can be compiled; the empty text is one device.
///
/// # Errors
/// An unknown key, a value that cannot be, a key given twice, or what this version cannot do.
pub fn parse(text: &str) -> Result<ParallelConfig, ParallelError> {
    let parallel = parse_any(text)?;
    check(&parallel)?;
    Ok(parallel)
}

/// Reads a configuration of the whole grammar, whether or not this version can run it; the empty text is one device. If no schedule
/// is given, several stages per rank have interleaved 1F1B (Narayanan et al. 2021).
///
/// # Errors
/// An unknown key, a value that cannot be, a key given twice, or stages per rank that the given schedule does not have.
pub fn parse_any(text: &str) -> Result<ParallelConfig, ParallelError> {
    let mut parallel = ParallelConfig::default();
    let mut seen: Vec<&str> = Vec::new();
    for (key, values) in items(text)? {
        if seen.contains(&key) {
            return Err(ParallelError::GivenTwice { key: key.to_string(), text: text.to_string() });
        }
        seen.push(key);
        set(&mut parallel, key, &values)?;
    }
    if !seen.contains(&ConfigKey::Schedule.name()) {
        parallel.schedule = schedules::with_chunks(&parallel.schedule, parallel.vp).to_string();
    }
    check_degrees(&parallel)?;
    Ok(parallel)
}

/// True if the text has an item of this key.
pub fn has_key(text: &str, key: ConfigKey) -> bool {
    has_name(text, key.name())
}

fn has_name(text: &str, key: &str) -> bool {
    items(text).is_ok_and(|items| items.iter().any(|(name, _)| key_of(name) == key))
}

/// The key of an item, which a range follows by `<` or `>`.
fn key_of(name: &str) -> &str {
    name.trim_end_matches(['<', '>']).trim_end()
}

/// Items as text.
fn print_items(items: &[(ConfigKey, String)]) -> String {
    items.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The items of a text, each as `key=value`; none of a text that is no configuration.
pub fn pins(text: &str) -> Vec<String> {
    let items = items(text).unwrap_or_default();
    items.into_iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect()
}

/// Two texts as one; where both name a key, the second one's value holds.
pub fn pinned(base: &str, over: &str) -> String {
    let base = pins(base).into_iter().filter(|item| {
        let name = item.split('=').next().unwrap_or_default();
        !has_name(over, key_of(name))
    });
    base.chain(pins(over)).collect::<Vec<_>>().join(",")
}

/// The keys of the text, in its order.
///
/// # Errors
/// The text is no configuration.
pub fn keys(text: &str) -> Result<Vec<&str>, ParallelError> {
    Ok(items(text)?.into_iter().map(|(key, _)| key_of(key)).collect())
}

/// The configuration in full, as [`parse_any`] reads it back.
pub fn print(parallel: &ParallelConfig) -> String {
    let printed = ConfigKey::ALL.into_iter().filter(|&key| (key_text(key).is_printed)(parallel));
    printed.map(|key| item(key, parallel)).collect::<Vec<_>>().join(",")
}

/// The keys whose value is not the default; the empty text for the default configuration.
pub fn print_changed(parallel: &ParallelConfig) -> String {
    let plain = ParallelConfig::default();
    let changed = ConfigKey::ALL.into_iter().filter(|&key| {
        let KeyText { is_printed, text, .. } = key_text(key);
        is_printed(parallel) && (!is_printed(&plain) || text(parallel) != text(&plain))
    });
    changed.map(|key| item(key, parallel)).collect::<Vec<_>>().join(",")
}

/// A key with its value: `tp=8`.
pub fn item(key: ConfigKey, parallel: &ParallelConfig) -> String {
    format!("{key}={}", (key_text(key).text)(parallel))
}

/// The names of all keys, for help texts.
pub fn names() -> String {
    ConfigKey::ALL.map(ConfigKey::name).join(", ")
}

/// True if the configuration can be compiled: nothing that is [`missing`], degrees that can be.
///
/// # Errors
/// It cannot.
pub fn check(parallel: &ParallelConfig) -> Result<(), ParallelError> {
    if let Some(Missing { item, what, instead }) = missing(parallel).into_iter().next() {
        return Err(ParallelError::NotInThisVersion { item, what, instead });
    }
    check_degrees(parallel)?;
    // Degrees of experts that do not fit are refused where the mesh is built.
    if let (1.., Ok(folded)) = (parallel.zero, parallel.fold()) {
        parallel.zero_group(&folded).map_err(ParallelError::ZeroGroups)?;
    }
    Ok(())
}

/// A part of a configuration that can be predicted, but not compiled and run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The item: `offload=auto`.
    pub item: String,
    /// Its meaning.
    pub what: &'static str,
    /// The alternative.
    pub instead: &'static str,
}

/// The slices into which a configuration's schedule divides sequences.
pub fn slices(parallel: &ParallelConfig) -> u32 {
    schedules::find(&parallel.schedule).map_or(1, |kind| kind.slices(parallel.slices))
}

/// Items of a configuration that this version cannot compile and run, without `tp_overlap` and `dp_overlap`: those state how the
/// predicted software works; a program here overlaps communication with all independent work.
pub fn missing(parallel: &ParallelConfig) -> Vec<Missing> {
    let mut missing = Vec::new();
    if parallel.recompute == Recompute::Auto {
        missing.push(Missing {
            item: "recompute=auto".to_string(),
            what: "recomputation chosen by device memory",
            instead: "name what to recompute: recompute=none, selective:NAME+NAME, full or full:N",
        });
    }
    if parallel.offload == Offload::Auto {
        missing.push(Missing {
            item: "offload=auto".to_string(),
            what: "offload chosen by device memory",
            instead: "name what to offload: offload=none, all or all:N",
        });
    }
    if parallel.gathers_once() && slices(parallel) > 1 {
        missing.push(Missing {
            item: "gather=step".to_string(),
            what: "gathering once a step for slices of sequences: each slice has blocks of its own",
            instead: "gather parameters at each use: gather=use, or take a schedule without slices",
        });
    }
    missing
}

/// True if the numbers of a configuration can be, by themselves.
fn check_degrees(parallel: &ParallelConfig) -> Result<(), ParallelError> {
    let optional = [
        ("vp", parallel.vp.map(u64::from)),
        ("group", parallel.group.map(u64::from)),
        ("slices", parallel.slices.map(u64::from)),
        ("shard", parallel.shard),
    ];
    let optional = optional.map(|(key, value)| (key, value.unwrap_or(1)));
    let ParallelConfig { dp, tp, pp, cp, ep, etp, mbs, .. } = *parallel;
    let degrees = [("dp", dp), ("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep), ("etp", etp), ("mbs", mbs)];
    for (key, value) in degrees.into_iter().chain(optional) {
        if value == 0 {
            return Err(ParallelError::Zero { key });
        }
    }
    for (product, degrees) in [("dp x tp x pp x cp", vec![dp, tp, pp, cp]), ("ep x etp", vec![ep, etp])] {
        let devices = degrees.into_iter().try_fold(1u64, u64::checked_mul);
        if devices.is_none_or(|devices| devices > limits::DEVICES) {
            return Err(ParallelError::TooManyDevices { product });
        }
    }
    if parallel.zero > 3 {
        return Err(ParallelError::ZeroStage { zero: parallel.zero });
    }
    let mut order: Vec<&str> = parallel.rank_order.iter().map(String::as_str).collect();
    order.sort_unstable();
    if !order.contains(&"cp") && parallel.cp == 1 {
        order.insert(0, "cp");
    }
    if order != ["cp", "dp", "pp", "tp"] {
        return Err(ParallelError::RankOrder { order: parallel.rank_order.join(",") });
    }
    check_chunks(parallel)?;
    check_starts(parallel)
}

/// Stages per rank that the schedule has. An unknown schedule is refused where it is made.
fn check_chunks(ParallelConfig { vp, schedule, .. }: &ParallelConfig) -> Result<(), ParallelError> {
    let (Some(vp), Ok(kind)) = (*vp, schedules::find(schedule)) else { return Ok(()) };
    let why = match kind.pipeline(1, Some(vp), 1) {
        // The stages of a search for an order are a chain in a configuration.
        Ok(pipeline) if pipeline.placement == Placement::Chain && vp != 1 => {
            format!("a chain has 1 chunk per rank, not {vp}")
        }
        Ok(_) => return Ok(()),
        Err(why) => why.to_string(),
    };
    Err(ParallelError::Chunks { schedule: kind.name, vp, why, instead: kind.interleaved_as })
}

/// One start per stage except the first. An unknown or impossible schedule is refused where it is made.
fn check_starts(parallel: &ParallelConfig) -> Result<(), ParallelError> {
    let kind = schedules::find(&parallel.schedule).ok().filter(|_| !parallel.stages.is_empty());
    let pipeline = kind.and_then(|kind| kind.pipeline(parallel.pp as u32, parallel.vp, 1).ok());
    let Some(starts) = pipeline.map(|pipeline| pipeline.stages() as usize - 1) else { return Ok(()) };
    if parallel.stages.len() == starts {
        return Ok(());
    }
    let ParallelConfig { pp, vp: chunks, ref schedule, ref stages, .. } = *parallel;
    Err(ParallelError::Stages { starts, pp, chunks, schedule: schedule.clone(), given: stages.len() })
}

/// The items as key and values, in the order of the text.
fn items(text: &str) -> Result<Vec<(&str, Vec<&str>)>, ParallelError> {
    let mut items: Vec<(&str, Vec<&str>)> = Vec::new();
    let text = text.trim();
    for item in text.strip_suffix(',').unwrap_or(text).split(',').map(str::trim).filter(|_| !text.is_empty()) {
        if item.is_empty() {
            return Err(ParallelError::EmptyItem { text: text.to_string() });
        }
        match (item.split_once('='), items.last_mut()) {
            (Some((key, value)), _) => items.push((key.trim(), vec![value.trim()])),
            (None, Some((_, values))) => values.push(item),
            (None, None) => return Err(ParallelError::NoKey { item: item.to_string(), text: text.to_string() }),
        }
    }
    Ok(items)
}

fn set(parallel: &mut ParallelConfig, name: &str, values: &[&str]) -> Result<(), ParallelError> {
    if key_of(name) != name || values.iter().any(|value| value.contains('|')) {
        return Err(ParallelError::SeveralValues { key: key_of(name).to_string() });
    }
    let key = key_text(known(name)?);
    if !key.is_list && values.len() > 1 {
        let [value, item] = [values[0], values[1]].map(str::to_string);
        return Err(ParallelError::NoList { item, key: name.to_string(), value });
    }
    (key.read)(parallel, values)
}

/// The key of a name.
fn known(name: &str) -> Result<ConfigKey, ParallelError> {
    ConfigKey::of_name(name).ok_or_else(|| ParallelError::UnknownKey { key: name.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_configuration_comes_back() {
        let parallel =
            parse("tp=2, pp=3, vp=1, group=4, slices=3, rank_order=pp,tp,dp, sp=true, stages=2,5, zero=1").unwrap();
        assert_eq!((parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero), (1, 2, 3, true, 1));
        assert_eq!((parallel.vp, parallel.group, parallel.slices), (Some(1), Some(4), Some(3)));
        assert_eq!((parallel.rank_order.join(" "), parallel.stages.clone()), ("pp tp dp".to_string(), vec![2, 5]));
        assert_eq!(parse(&print(&parallel)).unwrap(), parallel);
        assert_eq!(parse("").unwrap(), ParallelConfig::default());
    }

    /// A schedule follows from the stages per rank only if none is given.
    #[test]
    fn a_given_schedule_is_kept() {
        let schedule = |text| parse(text).unwrap().schedule;
        assert_eq!(schedule("pp=4,vp=3"), "interleaved-1f1b");
        assert_eq!([schedule("pp=4"), schedule("pp=4,vp=1"), schedule("pp=4,vp=1,schedule=1f1b")], ["1f1b"; 3]);
        assert_eq!(schedule("pp=4,vp=3,schedule=looped-bfs"), "looped-bfs");
        for kind in schedules::SCHEDULES {
            for vp in 1..4 {
                let read = parse_any(&format!("vp={vp},schedule={}", kind.name));
                let allowed = kind.pipeline(1, Some(vp), 1);
                let is_allowed = allowed.is_ok_and(|it| it.placement != Placement::Chain || vp == 1);
                assert_eq!(read.is_ok_and(|it| it.schedule == kind.name), is_allowed, "{} {vp}", kind.name);
            }
        }
    }

    #[test]
    fn only_changed_keys_are_printed() {
        for text in [
            "",
            "tp=2",
            "pp=2,zero=1,vp=1",
            "pp=2,schedule=interleaved-1f1b,vp=2",
            "cp=2,cp_kind=ring",
            "pp=2,stages=3",
            "recompute=full,offload=all:2",
            "dp=2,zero=3,gather=step",
        ] {
            assert_eq!(print_changed(&parse_any(text).unwrap()).len(), text.len(), "{text}");
            assert_eq!(parse_any(&print_changed(&parse_any(text).unwrap())), parse_any(text), "{text}");
        }
    }

    #[test]
    fn a_default_is_read_by_its_word() {
        let changed =
            parse_any("pp=3,vp=1,group=2,slices=3,shard=8,tp_overlap=true,dp_overlap=false,stages=2,5").unwrap();
        let own = [ConfigKey::Dp, ConfigKey::Vp, ConfigKey::RankOrder];
        for key in ConfigKey::ALL.into_iter().filter(|key| !own.contains(key)) {
            let KeyText { read, text, .. } = key_text(key);
            let (mut other, word) = (changed.clone(), text(&ParallelConfig::default()));
            read(&mut other, &[&word]).unwrap();
            assert_eq!(text(&other), word, "{key}");
        }
        assert_eq!(parse_any("pp=2,stages=even,shard=all,tp_overlap=default").unwrap(), parse_any("pp=2").unwrap());
    }

    #[test]
    fn what_can_only_be_predicted_comes_back_too() {
        let text = "dp=8,tp=2,cp=2,ep=8,etp=2,cp_kind=ring,shard=8,zero=3,recompute=selective:mlp+norm,offload=auto,\
                    tp_overlap=true,dp_overlap=false";
        let parallel = parse_any(text).unwrap();
        assert_eq!((parallel.ep, parallel.cp_kind, parallel.shard), (8, ir::options::CpKind::Ring, Some(8)));
        assert_eq!((parallel.tp_overlap, parallel.dp_overlap), (Some(true), Some(false)));
        assert_eq!(parse_any(&print(&parallel)).unwrap(), parallel);
        for (text, part) in [
            ("cp_kind=rings", "one of ring, allgather, ulysses"),
            ("recompute=some", "one of none, full"),
            ("zero=4", "stages 0 to 3"),
            ("offload=1", "one of none, all"),
            ("shard=0", "1 or more"),
            ("gather=once", "one of use, step"),
            ("order=pp,tp,dp", "`order` is now `rank_order`"),
            ("recompte=full", "did you mean `recompute`"),
        ] {
            let message = Error::from(parse_any(text).unwrap_err()).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn pins_over_pins() {
        assert_eq!(pins("tp=2,rank_order=pp,tp,dp"), ["tp=2", "rank_order=pp,tp,dp"]);
        assert_eq!(pinned("tp=2,pp=4", "tp=8,zero=1"), "pp=4,tp=8,zero=1");
        assert_eq!(pinned("", ""), "");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |text| Error::from(parse(text).unwrap_err()).to_string();
        for (text, part) in [
            ("dp=2,dp=2", "given twice"),
            ("tp", "key=value"),
            ("tp=2,3", "`3` after `tp=2`"),
            ("tp=-1", "whole number"),
            (",,", "is empty"),
            ("dp=2,,tp=2", "is empty"),
            ("tp=0", "1 or more"),
            ("vp=0", "1 or more"),
            ("pp=4,vp=3,schedule=1f1b", "help: take schedule=interleaved-1f1b"),
            ("pp=4,schedule=interleaved-1f1b,vp=1", "it has 2 or more chunks per rank, not 1"),
            ("pp=4,schedule=zb-v,vp=3", "help: leave out `vp` or `schedule`"),
            ("rank_order=pp,dp", "each of pp, dp, cp and tp once"),
            ("pp=2,stages=1,2", "1 of them for pp=2"),
            ("cp=2,rank_order=pp,dp,tp", "each of pp, dp, cp and tp once"),
            ("ep=0", "1 or more"),
            ("recompute=auto", "chosen by device memory"),
            ("dp=2,zero=3,gather=step,schedule=seq1f1b", "slices of sequences"),
            ("offload=auto", "offload chosen by device memory"),
            ("dp=4,cp=3,zero=1,shard=2", "cuts through 3 neighbours of cp"),
            ("dp=4,zero=1,shard=3", "does not divide dp x cp = 4"),
            ("schedul=gpipe", "did you mean `schedule`"),
            ("dp=1000000,tp=1000000,pp=100000000", "devices"),
        ] {
            assert!(message(text).contains(part), "{text}: {}", message(text));
        }
    }
}
