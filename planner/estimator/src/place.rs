//! Placement of a configuration on devices: degrees that fill the devices, and the replica groups of each collective.

use super::error::Error;
use super::replicas::ReplicaGroups;
use compiler::parallel;
use cost::Group;
use ir::options::ParallelConfig;
use scheduler::schedules;
use transforms::slices::SliceError;

/// Configuration of a text on `gpus` devices. A missing dp is derived, and 1F1B with several stages per rank is interleaved
/// 1F1B (Narayanan et al. 2021).
///
/// # Errors
/// The text is not a configuration, or its degrees do not fit together.
pub(super) fn config_on(text: &str, gpus: Option<u64>) -> Result<ParallelConfig, Error> {
    let mut parallel = parallel::parse_any(text)?;
    if let Some(gpus) = gpus {
        let others = parallel.tp * parallel.pp * parallel.cp;
        if !parallel::has_key(text, "dp") && gpus.is_multiple_of(others) {
            parallel.dp = gpus / others;
        }
        if parallel.devices() != gpus {
            let ParallelConfig { dp, tp, pp, cp, .. } = parallel;
            return Err(Error::Devices { dp, tp, pp, cp, devices: parallel.devices(), gpus });
        }
    }
    parallel.schedule = schedules::with_chunks(&parallel.schedule, parallel.vp).to_string();
    schedules::find(&parallel.schedule)?;
    check_groups(&parallel)?;
    Ok(parallel)
}

/// Checks that ep x etp and `shard` divide the ranks that they group.
fn check_groups(parallel: &ParallelConfig) -> Result<(), Error> {
    let ParallelConfig { dp, tp, cp, ep, etp, shard, .. } = *parallel;
    if !(dp * cp * tp).is_multiple_of(ep.saturating_mul(etp)) {
        return Err(Error::Experts { ep, etp, dp, cp, tp });
    }
    let replicas = dp * cp;
    match shard {
        Some(shard) if !replicas.is_multiple_of(shard) => Err(Error::Shard { shard, dp, cp }),
        _ => Ok(()),
    }
}

/// Checks that the slices of a sequence are equal.
pub(super) fn check_slices(seq: u64, slices: u32) -> Result<(), Error> {
    if seq.is_multiple_of(slices.max(1).into()) { Ok(()) } else { Err(SliceError::Uneven { slices, size: seq }.into()) }
}

/// Distance between neighbours on an axis, in ranks.
pub(super) fn stride(parallel: &ParallelConfig, axis: &str) -> u64 {
    let inner = parallel.rank_order.iter().skip_while(|name| *name != axis).skip(1);
    inner.filter_map(|name| parallel.degree(name)).product()
}

/// Replica group of dense parameters: the ranks of dp and cp.
pub(super) fn replicas(parallel: &ParallelConfig) -> Group {
    Group { ranks: parallel.dp * parallel.cp, stride: least_stride(parallel, &["dp", "cp"]) }
}

/// Replica group of experts: the ranks below pp, except ep and etp, which are innermost (Liu et al. 2025, MoE parallel
/// folding).
pub(super) fn expert_replicas(parallel: &ParallelConfig) -> Group {
    let inner = parallel.ep * parallel.etp;
    Group {
        ranks: parallel.dp * parallel.cp * parallel.tp / inner,
        stride: inner * least_stride(parallel, &["dp", "cp", "tp"]),
    }
}

/// Distance between neighbours in a group over several axes, in ranks.
fn least_stride(parallel: &ParallelConfig, axes: &[&str]) -> u64 {
    let there = axes.iter().filter(|axis| parallel.degree(axis).is_some_and(|degree| degree > 1));
    there.map(|axis| stride(parallel, axis)).min().unwrap_or(1)
}

/// Splits a group into the ranks among which ZeRO shards, and the ranks with the same shard.
pub(super) fn sharded(group: Group, shard: Option<u64>) -> ReplicaGroups {
    let ranks = shard.map_or(group.ranks, |shard| shard.min(group.ranks));
    let copies = Group { ranks: group.ranks.div_ceil(ranks), stride: group.stride * ranks };
    ReplicaGroups { shards: Group { ranks, ..group }, copies }
}

/// Group of two neighbouring pipeline ranks.
pub(super) fn neighbours(parallel: &ParallelConfig) -> Group {
    Group { ranks: 2, stride: stride(parallel, "pp") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dp_is_what_is_left() {
        let parallel = config_on("tp=4,pp=2,cp=2", Some(64)).unwrap();
        assert_eq!((parallel.dp, parallel.devices()), (4, 64));
        assert_eq!(replicas(&parallel), Group { ranks: 8, stride: 4 });
        assert_eq!(neighbours(&parallel), Group { ranks: 2, stride: 32 });
        assert_eq!(config_on("dp=3", None).unwrap().devices(), 3);
    }

    #[test]
    fn experts_lie_over_what_they_are_given() {
        let parallel = config_on("dp=4,tp=2,ep=8", None).unwrap();
        assert_eq!(expert_replicas(&parallel), Group { ranks: 1, stride: 8 });
        let parallel = config_on("dp=8,tp=2,ep=4,etp=2", None).unwrap();
        assert_eq!(expert_replicas(&parallel), Group { ranks: 2, stride: 8 });
    }

    #[test]
    fn shards_lie_inside() {
        let ReplicaGroups { shards, copies } = sharded(Group { ranks: 32, stride: 2 }, Some(8));
        assert_eq!((shards, copies), (Group { ranks: 8, stride: 2 }, Group { ranks: 4, stride: 16 }));
    }

    #[test]
    fn products_that_cannot_be_are_refused() {
        let message = |text: &str, gpus| config_on(text, gpus).unwrap_err().to_string();
        for (text, gpus, part) in [
            ("tp=3", Some(8), "3 devices, not 8"),
            ("dp=2,tp=2", Some(8), "4 devices, not 8"),
            ("dp=2,ep=4", None, "does not divide dp=2"),
            ("dp=8,shard=3", None, "shard=3 does not divide"),
            ("schedule=1f2b", None, "no schedule `1f2b`"),
        ] {
            assert!(message(text, gpus).contains(part), "{text}: {}", message(text, gpus));
        }
    }
}
