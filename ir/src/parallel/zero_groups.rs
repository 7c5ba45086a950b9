//! Groups of ZeRO: the ranks among which one copy of the model states is sharded.
//!
//! A group is `shard` neighbours of dp and cp in rank order, and other groups hold copies (hybrid sharding, Zhao et al. 2023).
//! The ranks of a group, and those of tp beside them, hold every expert once: an expert is sharded among those of them that
//! hold it, as in Megatron-Core's instances of the distributed optimizer.

use crate::experts::{Folded, Role};
use crate::options::ParallelConfig;
use std::fmt;

/// Numbers of ranks among which ZeRO shards one copy of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroGroup {
    /// Ranks of dp and cp, for parameters outside experts.
    pub dense: u64,
    /// Ranks of dp, cp and tp, for parameters of experts.
    pub experts: u64,
}

/// Error: the ranks of dp and cp do not divide into groups of `shard` neighbours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnevenGroups {
    /// Ranks of a group.
    pub shard: u64,
    /// The numbers of which neither divides the other, or the first not the second: of the ranks of a group, and of `part`.
    pub sizes: [u64; 2],
    /// The axis, or `dp x cp`, whose ranks are the second number.
    pub part: &'static str,
    /// The numbers of ranks that groups may have.
    pub possible: Vec<u64>,
}

impl UnevenGroups {
    /// The fix.
    pub fn help(&self) -> String {
        let possible: Vec<String> = self.possible.iter().map(u64::to_string).collect();
        format!("`shard` may be {}", possible.join(", "))
    }
}

impl fmt::Display for UnevenGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnevenGroups { shard, sizes: [within, ranks], part, .. } = self;
        match *part {
            ALL => write!(f, "`shard={shard}` does not divide dp x cp = {ranks}"),
            axis if within == shard => {
                write!(f, "`shard={shard}` cuts through {ranks} neighbours of {axis}: neither number divides the other")
            }
            axis => write!(
                f,
                "`shard={shard}` takes {within} of {ranks} neighbours of {axis}: neither of these numbers divides the other"
            ),
        }
    }
}

impl std::error::Error for UnevenGroups {}

/// All ranks that may form groups.
const ALL: &str = "dp x cp";

/// Numbers of ranks of a group of `group` neighbours along each part, innermost first: all ranks of inner parts, some of the part
/// with the boundary, and 1 of outer parts.
///
/// # Errors
/// The place of a part that the boundary cuts unevenly, with the number of ranks that it would have in the group. The place is the
/// number of parts if all of them together are too few.
pub fn within(sizes: &[u64], group: u64) -> Result<Vec<u64>, (usize, u64)> {
    let (mut ranks, mut rest) = (Vec::with_capacity(sizes.len()), group);
    for (place, &size) in sizes.iter().enumerate() {
        let inside = rest.min(size);
        if inside == 0 || !size.is_multiple_of(inside) || !rest.is_multiple_of(inside) {
            return Err((place, rest));
        }
        ranks.push(inside);
        rest /= inside;
    }
    if rest == 1 { Ok(ranks) } else { Err((sizes.len(), rest)) }
}

impl ParallelConfig {
    /// Numbers of ranks of a ZeRO group; `folded` are the parts of the axes ([`ParallelConfig::fold`]).
    ///
    /// # Errors
    /// Groups of `shard` neighbours do not consist of complete parts.
    pub fn zero_group(&self, folded: &[Folded; 3]) -> Result<ZeroGroup, UnevenGroups> {
        let (mut sizes, mut roles) = (Vec::new(), Vec::new());
        for name in self.rank_order.iter().rev().filter(|name| matches!(name.as_str(), "dp" | "cp")) {
            for (axis, parts) in folded.iter().filter(|(axis, _)| *axis == name.as_str()) {
                sizes.extend(parts.iter().map(|&(_, size)| (*axis, size)));
                roles.extend(parts.iter().map(|&(role, _)| role));
            }
        }
        let ranks = group_ranks(&sizes, self.shard)?;
        let copies = roles.iter().zip(&ranks).filter(|(role, _)| **role == Role::Copies);
        let mut experts: u64 = copies.map(|(_, ranks)| ranks).product();
        for (_, parts) in folded.iter().filter(|(axis, _)| *axis == "tp") {
            experts *= parts.iter().filter(|(role, _)| *role == Role::Copies).map(|(_, size)| size).product::<u64>();
        }
        Ok(ZeroGroup { dense: ranks.iter().product(), experts })
    }

    /// True if the ranks divide into groups of `shard` neighbours.
    pub fn has_even_groups(&self) -> bool {
        self.shard.is_none() || self.fold().is_ok_and(|folded| self.zero_group(&folded).is_ok())
    }
}

/// Numbers of ranks of a group along each part of dp and cp, innermost first; all ranks without `shard`.
///
/// # Errors
/// The boundary of the groups cuts through a part.
pub fn group_ranks(parts: &[(&'static str, u64)], shard: Option<u64>) -> Result<Vec<u64>, UnevenGroups> {
    let sizes: Vec<u64> = parts.iter().map(|&(_, size)| size).collect();
    let all = sizes.iter().product();
    let shard = shard.unwrap_or(all);
    within(&sizes, shard).map_err(|(place, rest)| {
        let divides = shard > 0 && all.is_multiple_of(shard);
        let (part, sizes_of) = match parts.get(place).filter(|_| divides) {
            Some(&(axis, size)) => (axis, [rest, size]),
            None => (ALL, [shard, all]),
        };
        let possible = (1..=all).filter(|&ranks| all.is_multiple_of(ranks) && within(&sizes, ranks).is_ok());
        UnevenGroups { shard, sizes: sizes_of, part, possible: possible.collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(degrees: [u64; 5], shard: u64) -> ParallelConfig {
        let [dp, cp, tp, ep, etp] = degrees;
        ParallelConfig { dp, cp, tp, ep, etp, shard: Some(shard), ..ParallelConfig::default() }
    }

    fn group(parallel: &ParallelConfig) -> Result<(u64, u64), String> {
        let group = parallel.zero_group(&parallel.fold().unwrap());
        group.map(|ZeroGroup { dense, experts }| (dense, experts)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_group_and_the_ranks_of_tp_hold_every_expert_once() {
        for (degrees, shard, want) in [
            // Experts differ within a node of 8: ZeRO has none of them left to share out there, and 4 in groups of 32.
            ([64, 1, 1, 8, 1], 8, (8, 1)),
            ([64, 1, 1, 8, 1], 32, (32, 4)),
            ([64, 1, 1, 8, 1], 4, (4, 1)),
            ([8, 2, 4, 4, 2], 4, (4, 2)),
            ([8, 1, 4, 2, 1], 4, (4, 8)),
            ([8, 4, 1, 1, 1], 2, (2, 2)),
        ] {
            assert_eq!(group(&config(degrees, shard)), Ok(want), "{degrees:?} {shard}");
        }
        let all = ParallelConfig { shard: None, ..config([8, 2, 4, 4, 2], 1) };
        assert_eq!(group(&all), Ok((16, 8)));
    }

    #[test]
    fn neighbours_follow_the_rank_order() {
        let parallel = config([4, 3, 1, 3, 1], 4);
        assert!(group(&parallel).is_err());
        let rank_order = ["pp", "cp", "dp", "tp"].map(str::to_string).into();
        assert_eq!(group(&ParallelConfig { rank_order, ..parallel }), Ok((4, 4)));
    }

    #[test]
    fn what_does_not_divide_is_told_with_what_does() {
        for (degrees, shard, why, possible) in [
            ([16, 1, 1, 1, 1], 5, "`shard=5` does not divide dp x cp = 16", vec![1, 2, 4, 8, 16]),
            ([4, 3, 1, 1, 1], 2, "`shard=2` cuts through 3 neighbours of cp", vec![1, 3, 6, 12]),
            ([9, 2, 1, 1, 1], 12, "does not divide dp x cp = 18", vec![1, 2, 6, 18]),
            ([12, 1, 1, 2, 1], 3, "`shard=3` cuts through 2 neighbours of dp", vec![1, 2, 4, 6, 12]),
        ] {
            let parallel = config(degrees, shard);
            let error = parallel.zero_group(&parallel.fold().unwrap()).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.possible, possible, "{error}");
        }
    }
}
