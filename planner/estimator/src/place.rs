//! Placement of a configuration on devices: degrees that fill the devices, and the replica groups of each collective.

use super::error::Error;
use super::replicas::ReplicaGroups;
use compiler::parallel;
use cost::{Group, SplitByExperts};
use ir::config_key::ConfigKey;
use ir::experts::{Folded, Role};
use ir::options::ParallelConfig;
use ir::zero_groups::ZeroGroup;
use scheduler::schedules;
use transforms::slices::SliceError;

/// Configuration of a text on `gpus` devices. A missing dp is derived.
///
/// # Errors
/// The text is not a configuration, or its degrees do not fit together.
pub(super) fn config_on(text: &str, gpus: Option<u64>) -> Result<ParallelConfig, Error> {
    let mut parallel = parallel::parse_any(text)?;
    if let Some(gpus) = gpus {
        let others = parallel.tp * parallel.pp * parallel.cp;
        if !parallel::has_key(text, ConfigKey::Dp) && gpus.is_multiple_of(others) {
            parallel.dp = gpus / others;
        }
        if parallel.devices() != gpus {
            let ParallelConfig { dp, tp, pp, cp, .. } = parallel;
            return Err(Error::Devices { dp, tp, pp, cp, devices: parallel.devices(), gpus });
        }
    }
    schedules::find(&parallel.schedule)?;
    check_groups(&parallel)?;
    Ok(parallel)
}

/// Checks that ep x etp and `shard` divide the ranks that they group.
fn check_groups(parallel: &ParallelConfig) -> Result<(), Error> {
    let ParallelConfig { dp, tp, cp, ep, etp, .. } = *parallel;
    if !(dp * cp * tp).is_multiple_of(ep.saturating_mul(etp)) {
        return Err(Error::Experts { ep, etp, dp, cp, tp });
    }
    parallel.zero_group(&parallel.fold()?)?;
    Ok(())
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

/// Ranks that hold the same parameters, in the groups among which ZeRO shards them. Without groups of whole parts all of
/// them are one.
pub(super) fn replica_groups(parallel: &ParallelConfig) -> SplitByExperts<ReplicaGroups> {
    let (dense, experts) = (replicas(parallel), expert_replicas(parallel));
    let folded = parallel.shard.and_then(|_| parallel.fold().ok());
    let group = folded.and_then(|folded| parallel.zero_group(&folded).ok());
    let group = group.unwrap_or(ZeroGroup { dense: dense.ranks, experts: experts.ranks });
    SplitByExperts {
        dense: sharded(dense, group.dense, 1),
        experts: sharded(experts, group.experts, same_tokens(parallel)),
    }
}

/// Number of neighbours that hold copies of an expert and compute the same gradient: without sequence parallelism, ranks of tp
/// route the same tokens.
fn same_tokens(parallel: &ParallelConfig) -> u64 {
    let within_tp = |[(_, parts), ..]: [Folded; 3]| parts.into_iter().filter(|(role, _)| *role == Role::Copies);
    match parallel.fold() {
        Ok(folded) if !parallel.sp => within_tp(folded).map(|(_, ranks)| ranks).product(),
        _ => 1,
    }
}

/// Replica group of dense parameters: the ranks of dp and cp.
fn replicas(parallel: &ParallelConfig) -> Group {
    Group { ranks: parallel.dp * parallel.cp, stride: least_stride(parallel, &["dp", "cp"]) }
}

/// Replica group of experts: the ranks below pp, except ep and etp, which are innermost (Liu et al. 2025, MoE parallel
/// folding).
fn expert_replicas(parallel: &ParallelConfig) -> Group {
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

/// Splits a group into `ranks` among which ZeRO shards, and the ranks with the same shard. Of its neighbours, each `same` have the
/// same gradient.
fn sharded(group: Group, ranks: u64, same: u64) -> ReplicaGroups {
    let every = |group: Group, by: u64| Group { ranks: group.ranks / by, stride: group.stride * by };
    let (shards, copies) = (Group { ranks, ..group }, every(group, ranks));
    let of_shards = same.min(ranks);
    ReplicaGroups { shards, copies, scatters: every(shards, of_shards), sums: every(copies, same / of_shards) }
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
        let groups = |text: &str| {
            let groups = replica_groups(&config_on(text, None).unwrap());
            [groups.dense, groups.experts].map(|ReplicaGroups { shards, copies, .. }| (shards, copies))
        };
        let group = |ranks, stride| Group { ranks, stride };
        assert_eq!(groups("dp=32,tp=2,shard=8")[0], (group(8, 2), group(4, 16)));
        assert_eq!(groups("dp=8,cp=4,shard=8")[0], (group(8, 1), group(4, 8)));
        // Of a group's ranks 2 hold an expert.
        assert_eq!(groups("dp=32,ep=4,shard=8"), [(group(8, 1), group(4, 8)), (group(2, 4), group(4, 8))]);
        assert_eq!(groups("dp=32,ep=8,shard=4"), [(group(4, 1), group(8, 4)), (group(1, 8), group(4, 8))]);
        assert_eq!(groups("dp=8,tp=2,ep=4")[1], (group(4, 4), group(1, 16)));
    }

    /// Two of tp route the same tokens through copies of an expert. With sequence parallelism they route different ones, and with
    /// ep over tp they hold different experts.
    #[test]
    fn ranks_that_route_the_same_tokens_sum_no_gradients() {
        let summed = |text: &str| {
            let ReplicaGroups { scatters, sums, .. } = replica_groups(&config_on(text, None).unwrap()).experts;
            (scatters, sums)
        };
        let group = |ranks, stride| Group { ranks, stride };
        assert_eq!(summed("dp=4,tp=2"), (group(4, 2), group(1, 8)));
        assert_eq!(summed("dp=4,tp=2,sp=true"), (group(8, 1), group(1, 8)));
        assert_eq!(summed("dp=4,tp=2,ep=2"), (group(4, 2), group(1, 8)));
        assert_eq!(summed("dp=4,tp=2,shard=2"), (group(2, 2), group(2, 4)));
        assert_eq!(summed("tp=4,pp=2"), (group(1, 4), group(1, 4)));
    }

    #[test]
    fn products_that_cannot_be_are_refused() {
        let message = |text: &str, gpus| config_on(text, gpus).unwrap_err().to_string();
        for (text, gpus, part) in [
            ("tp=3", Some(8), "3 devices, not 8"),
            ("dp=2,tp=2", Some(8), "4 devices, not 8"),
            ("dp=2,ep=4", None, "does not divide dp=2"),
            ("dp=8,shard=3", None, "`shard=3` does not divide dp x cp = 8"),
            ("dp=4,cp=3,shard=2", None, "`shard=2` cuts through 3 neighbours of cp"),
            ("schedule=1f2b", None, "no schedule `1f2b`"),
        ] {
            assert!(message(text, gpus).contains(part), "{text}: {}", message(text, gpus));
        }
    }
}
