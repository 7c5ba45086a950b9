//! Heads on ranks of tp and cp.
//!
//! Key and value heads are sharded over as many ranks of tp as divide them. Where tp is larger, ranks share a key head: each has
//! some of its query heads (grouped queries, Ainslie et al. 2023), and computes only the key heads of its own queries.

use crate::dim_role::DimRole;
use crate::mesh::{Axes, Mesh};
use crate::types::DimName;

/// Heads of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heads {
    /// Key and value heads.
    pub keys: u64,
    /// Query heads of each key head.
    pub queries: u64,
    /// True if shards must have whole heads. Otherwise ranks never share key heads.
    pub whole: bool,
}

/// Heads that cp shards within attention, where it does not shard sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpHeads {
    /// Key heads, and the query heads of each.
    Keys,
    /// Query heads of every key head.
    Queries,
}

/// The roles of two dims that tp shards together: those of key heads, and those of the query heads of each.
pub type HeadRoles = [DimRole; 2];

/// The roles of the heads of attention.
pub const ATTENTION: HeadRoles = [DimRole::KvHeads, DimRole::QueryHeads];

/// The roles of the groups and heads of scans, which share keys as query heads do.
pub const SCAN: HeadRoles = [DimRole::ScanGroups, DimRole::ScanHeads];

impl Heads {
    /// Heads of attention in a model with these dims; `None` for a model without any.
    pub fn of<'a>(dims: impl Iterator<Item = &'a DimName> + Clone) -> Option<Heads> {
        Heads::of_roles(dims, ATTENTION)
    }

    /// Heads of attention and heads of scans, of which a hybrid model has both.
    pub fn all<'a>(dims: impl Iterator<Item = &'a DimName> + Clone) -> Vec<Heads> {
        [ATTENTION, SCAN].into_iter().filter_map(|roles| Heads::of_roles(dims.clone(), roles)).collect()
    }

    /// Heads of dims of these roles.
    pub fn of_roles<'a>(dims: impl Iterator<Item = &'a DimName> + Clone, [keys, queries]: HeadRoles) -> Option<Heads> {
        let DimName { size, indivisible, .. } = *dims.clone().find(|dim| dim.role == Some(keys))?;
        let queries = dims.clone().find(|dim| dim.role == Some(queries));
        Some(Heads { keys: size, queries: queries.map_or(1, |dim| dim.size), whole: indivisible })
    }

    /// Ranks that share each key head on `tp` ranks; 1 if `tp` divides the key heads. `None` if no number of ranks does.
    pub fn sharing(&self, tp: u64) -> Option<u64> {
        if !self.whole {
            return (tp <= self.keys).then_some(1);
        }
        let sharing = tp / common_divisor(tp, self.keys);
        self.queries.is_multiple_of(sharing).then_some(sharing)
    }

    /// Degrees of tp that the heads allow.
    pub fn degrees(&self) -> Vec<u64> {
        let all = self.keys.saturating_mul(self.queries);
        let mut degrees: Vec<u64> = (1..).take_while(|n| n * n <= all).flat_map(|n| [n, all / n]).collect();
        degrees.sort_unstable();
        degrees.dedup();
        degrees.retain(|&tp| all.is_multiple_of(tp) && self.sharing(tp).is_some());
        degrees
    }

    /// Heads that `cp` shards on each of `tp` ranks: key heads, or the query heads of each if there are too few. `None` if it
    /// divides neither.
    pub fn of_cp(&self, tp: u64, cp: u64) -> Option<CpHeads> {
        let sharing = self.sharing(tp)?;
        let shards_keys = self.keys.is_multiple_of(tp / sharing * cp);
        let shards_queries = self.whole && self.queries.is_multiple_of(sharing * cp);
        if shards_keys { Some(CpHeads::Keys) } else { shards_queries.then_some(CpHeads::Queries) }
    }
}

/// Sizes of the two parts of each axis, innermost first: the ranks along it that share a key head, and the others.
pub fn parts(sizes: impl IntoIterator<Item = u64>, sharing: u64) -> impl Iterator<Item = [u64; 2]> {
    let mut rest = sharing;
    sizes.into_iter().map(move |size| {
        let shared = common_divisor(size, rest);
        rest /= shared;
        [shared, size / shared]
    })
}

/// Axes over which key heads are sharded, and those whose ranks share a key head. `None` if an axis would be in both.
pub fn split(mesh: &Mesh, axes: &Axes, sharing: u64) -> Option<[Axes; 2]> {
    let mut parts: Vec<[u64; 2]> = parts(axes.iter().rev().map(|axis| mesh.axes[axis].size), sharing).collect();
    parts.reverse();
    let (mut keys, mut sharers) = (Vec::new(), Vec::new());
    for (axis, &[shared, others]) in axes.iter().zip(&parts) {
        match (shared, others) {
            (1, _) => keys.push(axis),
            (_, 1) => sharers.push(axis),
            _ => return None,
        }
    }
    Some([keys, sharers].map(|axes| axes.into_iter().collect()))
}

/// The greatest common divisor; the other number if one is 0.
pub fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_key_heads_if_they_divide_the_queries() {
        let heads = |keys, queries| Heads { keys, queries, whole: true };
        let llama = heads(8, 4);
        assert_eq!([1, 2, 8, 16, 32].map(|tp| llama.sharing(tp)), [Some(1), Some(1), Some(1), Some(2), Some(4)]);
        assert_eq!([3, 64].map(|tp| llama.sharing(tp)), [None, None]);
        assert_eq!(llama.degrees(), [1, 2, 4, 8, 16, 32]);
        // Each rank has both key heads, and a third of their queries.
        assert_eq!(heads(2, 6).sharing(3), Some(3));
        assert_eq!(heads(2, 6).degrees(), [1, 2, 3, 4, 6, 12]);
        assert_eq!(heads(12, 1).degrees(), [1, 2, 3, 4, 6, 12]);
    }

    #[test]
    fn cp_takes_queries_where_key_heads_are_too_few() {
        let heads = Heads { keys: 2, queries: 4, whole: true };
        let of = |tp, cp| heads.of_cp(tp, cp);
        assert_eq!(
            [of(1, 2), of(2, 2), of(4, 2)],
            [Some(CpHeads::Keys), Some(CpHeads::Queries), Some(CpHeads::Queries)]
        );
        assert_eq!([of(1, 4), of(8, 2), of(1, 3)], [Some(CpHeads::Queries), None, None]);
        // Heads that may be cut are: a rank of 3 has 4, 4 or 2 of 10.
        let cut = Heads { keys: 10, queries: 4, whole: false };
        assert_eq!([cut.sharing(3), cut.sharing(11)], [Some(1), None]);
        assert_eq!([cut.of_cp(1, 5), cut.of_cp(1, 4)], [Some(CpHeads::Keys), None]);
    }

    #[test]
    fn axes_are_wholly_on_one_side() {
        let mesh = Mesh::new("m", &[("a", 4), ("b", 3), ("c", 2)]);
        let names = |sharing| {
            let sides = split(&mesh, &mesh.tensor_axes(), sharing)?;
            Some(sides.map(|axes| axes.iter().map(|axis| mesh.axes[axis].name.as_str()).collect::<String>()))
        };
        assert_eq!(names(1).unwrap(), ["abc", ""]);
        assert_eq!(names(2).unwrap(), ["ab", "c"]);
        assert_eq!(names(3).unwrap(), ["ac", "b"]);
        assert_eq!(names(8).unwrap(), ["b", "ac"]);
        assert!(names(4).is_none(), "the rest of c's ranks is half of a's");
        assert_eq!(parts([2, 3, 4], 4).collect::<Vec<_>>(), [[2, 1], [1, 3], [2, 2]]);
    }
}
