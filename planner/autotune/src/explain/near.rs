//! Configurations near another one: each changes one choice, and the choices that must change with it.

use compiler::parallel::item;
use ir::config_key::ConfigKey;
use ir::options::{CpKind, Gather, Offload, ParallelConfig, Recompute};
use scheduler::schedules;

/// A configuration that differs in one choice.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Near {
    /// Key of the choice.
    pub(super) key: ConfigKey,
    /// `true` if it has more of the choice, `false` if less or none.
    pub(super) more: bool,
    /// The configuration.
    pub(super) parallel: ParallelConfig,
}

/// Degrees between which factors can move.
const DEGREES: [ConfigKey; 4] = [ConfigKey::Dp, ConfigKey::Tp, ConfigKey::Cp, ConfigKey::Pp];

/// All neighbours of a configuration, including invalid ones.
pub(super) fn near(best: &ParallelConfig, global_batch: u64) -> Vec<Near> {
    let mut all = Vec::new();
    for key in [ConfigKey::Tp, ConfigKey::Cp, ConfigKey::Pp] {
        for other in DEGREES.into_iter().filter(|other| *other != key) {
            all.extend(moved(best, key, other).map(|parallel| (key, false, parallel)));
            all.extend(moved(best, other, key).map(|parallel| (key, true, parallel)));
        }
    }
    all.extend(within(best));
    let mut near: Vec<Near> = Vec::new();
    for (key, more, parallel) in all {
        let parallel = repaired(parallel, best, global_batch);
        let new = Near { key, more, parallel };
        // Dependent changes may have reverted the choice.
        if item(key, best) != item(key, &new.parallel) && !near.contains(&new) {
            near.push(new);
        }
    }
    near
}

/// The configuration with its recomputation, and the number of layers that it offloads, left to the memory budget.
fn open_memory(best: &ParallelConfig) -> ParallelConfig {
    let offload = if best.offload.is_in_part() { Offload::Auto } else { best.offload };
    ParallelConfig { recompute: Recompute::Auto, offload, ..best.clone() }
}

/// Neighbours that move a factor from one degree to another.
fn moved(best: &ParallelConfig, from: ConfigKey, to: ConfigKey) -> Option<ParallelConfig> {
    let mut parallel = open_memory(best);
    let factor =
        (2..=*degree(&mut parallel, from)).find(|factor| degree(&mut parallel, from).is_multiple_of(*factor))?;
    *degree(&mut parallel, from) /= factor;
    *degree(&mut parallel, to) *= factor;
    Some(parallel)
}

fn degree(parallel: &mut ParallelConfig, key: ConfigKey) -> &mut u64 {
    match key {
        ConfigKey::Tp => &mut parallel.tp,
        ConfigKey::Cp => &mut parallel.cp,
        ConfigKey::Pp => &mut parallel.pp,
        _ => &mut parallel.dp,
    }
}

/// Neighbours with the same degrees and another option.
fn within(best: &ParallelConfig) -> Vec<(ConfigKey, bool, ParallelConfig)> {
    let again = || open_memory(best);
    let mut all = Vec::new();
    let mut with = |key, more, parallel| all.push((key, more, parallel));
    if best.ep > 1 {
        with(ConfigKey::Ep, false, ParallelConfig { ep: best.ep / 2, ..again() });
        with(ConfigKey::Ep, true, ParallelConfig { ep: best.ep * 2, ..again() });
    }
    if best.etp > 1 {
        with(ConfigKey::Etp, false, ParallelConfig { etp: best.etp / 2, ..again() });
    }
    if best.dp * best.cp > 1 {
        for zero in (0..=3).filter(|zero| *zero != best.zero) {
            with(
                ConfigKey::Zero,
                zero > best.zero,
                ParallelConfig { zero, shard: None, gather: Gather::Use, ..again() },
            );
        }
    }
    if best.shard.is_some() {
        with(ConfigKey::Shard, true, ParallelConfig { shard: None, ..again() });
    }
    if best.zero == 3 {
        let more = best.gather == Gather::Use;
        let gather = if more { Gather::Step } else { Gather::Use };
        with(ConfigKey::Gather, more, ParallelConfig { gather, ..again() });
    }
    if best.mbs > 1 {
        with(ConfigKey::Mbs, false, ParallelConfig { mbs: best.mbs / 2, ..again() });
    }
    with(ConfigKey::Mbs, true, ParallelConfig { mbs: best.mbs.saturating_mul(2), ..again() });
    if best.tp > 1 {
        with(ConfigKey::Sp, !best.sp, ParallelConfig { sp: !best.sp, ..again() });
    }
    if best.recompute != Recompute::None {
        with(ConfigKey::Recompute, false, ParallelConfig { recompute: Recompute::None, ..best.clone() });
    }
    if matches!(best.recompute, Recompute::Full(_)) {
        with(ConfigKey::Recompute, false, again());
    }
    if !best.offload.is_none() {
        with(ConfigKey::Offload, false, ParallelConfig { offload: Offload::None, ..again() });
    }
    if best.offload_optimizer {
        with(ConfigKey::OffloadOptimizer, false, ParallelConfig { offload_optimizer: false, ..again() });
    }
    for kind in [CpKind::Ring, CpKind::AllGather, CpKind::Ulysses]
        .into_iter()
        .filter(|kind| best.cp > 1 && *kind != best.cp_kind)
    {
        with(ConfigKey::CpKind, false, ParallelConfig { cp_kind: kind, ..again() });
    }
    if best.tp_overlap.is_some() {
        with(ConfigKey::TpOverlap, false, ParallelConfig { tp_overlap: None, ..again() });
    }
    if best.dp_overlap.is_some() {
        with(ConfigKey::DpOverlap, false, ParallelConfig { dp_overlap: None, ..again() });
    }
    if !best.stages.is_empty() {
        with(ConfigKey::Stages, false, ParallelConfig { stages: Vec::new(), ..again() });
    }
    if best.rank_order != ParallelConfig::default().rank_order {
        with(
            ConfigKey::RankOrder,
            false,
            ParallelConfig { rank_order: ParallelConfig::default().rank_order, ..again() },
        );
    }
    all.extend(pipelines(best));
    all
}

/// Neighbours with another schedule: fewer or more stages per rank, and 1F1B.
fn pipelines(best: &ParallelConfig) -> Vec<(ConfigKey, bool, ParallelConfig)> {
    if best.pp < 2 {
        return Vec::new();
    }
    let chunks = best.vp.unwrap_or(1);
    let of = |schedule: &str, vp: Option<u32>| ParallelConfig {
        schedule: schedule.to_string(),
        vp,
        group: None,
        slices: None,
        stages: Vec::new(),
        ..open_memory(best)
    };
    let plain = ParallelConfig::default().schedule;
    let with_chunks = |vp: u32| of(schedules::with_chunks(&plain, Some(vp)), (vp > 1).then_some(vp));
    let mut all = Vec::new();
    if best.schedule == plain {
        all.push((ConfigKey::Vp, true, with_chunks(2)));
    } else if best.schedule == schedules::with_chunks(&plain, Some(2)) {
        all.push((ConfigKey::Vp, false, with_chunks(chunks / 2)));
        all.push((ConfigKey::Vp, true, with_chunks(chunks * 2)));
    } else {
        all.push((ConfigKey::Schedule, false, with_chunks(1)));
    }
    all
}

/// Applies the changes that a choice requires: a micro-batch that divides the batch, no sequence parallelism without tp, no
/// schedule without pp, and groups that divide their ranks.
fn repaired(parallel: ParallelConfig, best: &ParallelConfig, global_batch: u64) -> ParallelConfig {
    let mut parallel = parallel;
    if parallel.tp == 1 {
        parallel.sp = false;
    } else if best.tp == 1 {
        parallel.sp = true;
    }
    if parallel.pp != best.pp {
        parallel.stages = Vec::new();
        (parallel.group, parallel.slices) = (None, None);
        if parallel.pp == 1 || best.pp == 1 {
            (parallel.schedule, parallel.vp) = (ParallelConfig::default().schedule, None);
        }
    }
    if parallel.cp == 1 {
        parallel.cp_kind = ParallelConfig::default().cp_kind;
    }
    parallel.mbs = common(parallel.mbs, global_batch / parallel.dp.max(1)).max(1);
    parallel.ep = common(parallel.ep, parallel.dp * parallel.cp * parallel.tp / parallel.etp.max(1)).max(1);
    let replicas = parallel.dp * parallel.cp;
    parallel.shard = parallel.shard.filter(|_| parallel.has_even_groups());
    parallel.zero = if replicas == 1 { 0 } else { parallel.zero };
    parallel.gather = if parallel.zero == 3 { parallel.gather } else { Gather::Use };
    parallel
}

/// The greatest common divisor; 0 with 0 alone.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::parallel::parse_any;

    #[test]
    fn each_is_of_as_many_devices_and_changes_its_own_choice() {
        let best = parse_any("dp=4,tp=4,pp=2,sp=true,zero=1,mbs=2,recompute=full").unwrap();
        let near = near(&best, 64);
        assert!(near.iter().all(|near| near.parallel.devices() == best.devices()));
        for (key, more, is) in [
            (ConfigKey::Tp, false, "dp=8,tp=2"),
            (ConfigKey::Pp, false, "dp=8,pp=1"),
            (ConfigKey::Pp, true, "dp=2,pp=4"),
            (ConfigKey::Zero, false, "zero=0"),
            (ConfigKey::Vp, true, "vp=2"),
            (ConfigKey::Recompute, false, "recompute=none"),
        ] {
            let found = near.iter().filter(|near| near.key == key && near.more == more);
            let texts: Vec<String> = found.map(|near| super::super::differences(&best, &near.parallel)).collect();
            let has = |text: &String| is.split(',').all(|part| text.split(',').any(|item| item == part));
            assert!(texts.iter().any(has), "{key}: {texts:?}");
        }
    }

    #[test]
    fn what_follows_is_made_to_fit() {
        let best = parse_any("dp=2,tp=2,sp=true,zero=1,mbs=4").unwrap();
        let alone = near(&best, 8).into_iter().find(|near| near.key == ConfigKey::Tp && near.parallel.dp == 4).unwrap();
        assert_eq!((alone.parallel.sp, alone.parallel.mbs), (false, 2));
        let one = near(&best, 8).into_iter().find(|near| near.parallel.dp == 1 && near.parallel.pp == 1).unwrap();
        assert_eq!(one.parallel.zero, 0, "{one:?}");
    }
}
