//! Configurations near another one: each changes one choice, and the choices that must change with it.

use super::brief::differences;
use ir::options::{CpKind, Gather, Offload, ParallelConfig, Recompute};
use scheduler::schedules;

/// A configuration that differs in one choice.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Near {
    /// Key of the choice.
    pub(super) key: &'static str,
    /// `true` if it has more of the choice, `false` if less or none.
    pub(super) more: bool,
    /// The configuration.
    pub(super) parallel: ParallelConfig,
}

/// Degrees between which factors can move.
const DEGREES: [&str; 4] = ["dp", "tp", "cp", "pp"];

/// All neighbours of a configuration, including invalid ones.
pub(super) fn near(best: &ParallelConfig, global_batch: u64) -> Vec<Near> {
    let mut all = Vec::new();
    for key in ["tp", "cp", "pp"] {
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
        let changed = differences(best, &new.parallel).split(',').any(|item| item.split('=').next() == Some(key));
        if changed && !near.contains(&new) {
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
fn moved(best: &ParallelConfig, from: &str, to: &str) -> Option<ParallelConfig> {
    let mut parallel = open_memory(best);
    let factor =
        (2..=*degree(&mut parallel, from)).find(|factor| degree(&mut parallel, from).is_multiple_of(*factor))?;
    *degree(&mut parallel, from) /= factor;
    *degree(&mut parallel, to) *= factor;
    Some(parallel)
}

fn degree<'a>(parallel: &'a mut ParallelConfig, key: &str) -> &'a mut u64 {
    match key {
        "tp" => &mut parallel.tp,
        "cp" => &mut parallel.cp,
        "pp" => &mut parallel.pp,
        _ => &mut parallel.dp,
    }
}

/// Neighbours with the same degrees and another option.
fn within(best: &ParallelConfig) -> Vec<(&'static str, bool, ParallelConfig)> {
    let again = || open_memory(best);
    let mut all = Vec::new();
    let mut with = |key, more, parallel| all.push((key, more, parallel));
    if best.ep > 1 {
        with("ep", false, ParallelConfig { ep: best.ep / 2, ..again() });
        with("ep", true, ParallelConfig { ep: best.ep * 2, ..again() });
    }
    if best.etp > 1 {
        with("etp", false, ParallelConfig { etp: best.etp / 2, ..again() });
    }
    if best.dp * best.cp > 1 {
        for zero in (0..=3).filter(|zero| *zero != best.zero) {
            with("zero", zero > best.zero, ParallelConfig { zero, shard: None, gather: Gather::Use, ..again() });
        }
    }
    if best.shard.is_some() {
        with("shard", true, ParallelConfig { shard: None, ..again() });
    }
    if best.zero == 3 {
        let more = best.gather == Gather::Use;
        let gather = if more { Gather::Step } else { Gather::Use };
        with("gather", more, ParallelConfig { gather, ..again() });
    }
    if best.mbs > 1 {
        with("mbs", false, ParallelConfig { mbs: best.mbs / 2, ..again() });
    }
    with("mbs", true, ParallelConfig { mbs: best.mbs.saturating_mul(2), ..again() });
    if best.tp > 1 {
        with("sp", !best.sp, ParallelConfig { sp: !best.sp, ..again() });
    }
    if best.recompute != Recompute::None {
        with("recompute", false, ParallelConfig { recompute: Recompute::None, ..best.clone() });
    }
    if matches!(best.recompute, Recompute::Full(_)) {
        with("recompute", false, again());
    }
    if !best.offload.is_none() {
        with("offload", false, ParallelConfig { offload: Offload::None, ..again() });
    }
    if best.offload_optimizer {
        with("offload_optimizer", false, ParallelConfig { offload_optimizer: false, ..again() });
    }
    for kind in [CpKind::Ring, CpKind::AllGather, CpKind::Ulysses]
        .into_iter()
        .filter(|kind| best.cp > 1 && *kind != best.cp_kind)
    {
        with("cp_kind", false, ParallelConfig { cp_kind: kind, ..again() });
    }
    if best.tp_overlap.is_some() {
        with("tp_overlap", false, ParallelConfig { tp_overlap: None, ..again() });
    }
    if best.dp_overlap.is_some() {
        with("dp_overlap", false, ParallelConfig { dp_overlap: None, ..again() });
    }
    if !best.stages.is_empty() {
        with("stages", false, ParallelConfig { stages: Vec::new(), ..again() });
    }
    if best.rank_order != ParallelConfig::default().rank_order {
        with("rank_order", false, ParallelConfig { rank_order: ParallelConfig::default().rank_order, ..again() });
    }
    all.extend(pipelines(best));
    all
}

/// Neighbours with another schedule: fewer or more stages per rank, and 1F1B.
fn pipelines(best: &ParallelConfig) -> Vec<(&'static str, bool, ParallelConfig)> {
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
        all.push(("vp", true, with_chunks(2)));
    } else if best.schedule == schedules::with_chunks(&plain, Some(2)) {
        all.push(("vp", false, with_chunks(chunks / 2)));
        all.push(("vp", true, with_chunks(chunks * 2)));
    } else {
        all.push(("schedule", false, with_chunks(1)));
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
            ("tp", false, "dp=8,tp=2"),
            ("pp", false, "dp=8,pp=1"),
            ("pp", true, "dp=2,pp=4"),
            ("zero", false, "zero=0"),
            ("vp", true, "vp=2"),
            ("recompute", false, "recompute=none"),
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
        let alone = near(&best, 8).into_iter().find(|near| near.key == "tp" && near.parallel.dp == 4).unwrap();
        assert_eq!((alone.parallel.sp, alone.parallel.mbs), (false, 2));
        let one = near(&best, 8).into_iter().find(|near| near.parallel.dp == 1 && near.parallel.pp == 1).unwrap();
        assert_eq!(one.parallel.zero, 0, "{one:?}");
    }
}
