//! Assignment of writers: every distinct shard is written once, by one of the ranks that hold it.

use super::shard::Shard;
use exec::state::{Role, StateSlot};
use ir::types::DType;
use std::collections::BTreeMap;

/// A rank's part of a tensor in a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct StatePart {
    /// Index among the rank's slots.
    pub(super) slot: usize,
    /// The tensor's global name.
    pub(super) name: String,
    /// The parameter's.
    pub(super) param: String,
    /// The state's, unless it is the parameter itself.
    pub(super) state: Option<String>,
    /// Its elements.
    pub(super) dtype: DType,
    /// The tensor's sizes.
    pub(super) sizes: Vec<u64>,
    /// The part, in the order of its elements.
    pub(super) shards: Vec<Shard>,
}

impl StatePart {
    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.dtype.bytes() * self.shards.iter().map(Shard::elements).sum::<u64>()
    }
}

/// The rank's parts of all parameters and states.
pub(super) fn state_parts(slots: &[StateSlot]) -> Vec<StatePart> {
    let kept = slots.iter().enumerate().filter(|(_, slot)| slot.role != Role::Gradient);
    let parts = kept.map(|(place, slot)| StatePart {
        slot: place,
        name: slot.name.clone(),
        param: slot.param.clone(),
        state: if let Role::State(name) = &slot.role { Some(name.clone()) } else { None },
        dtype: slot.ty.dtype,
        sizes: slot.ty.sizes(),
        shards: Shard::of(&slot.region),
    });
    parts.collect()
}

/// The ranks that hold one distinct part, each with the part as it has it.
pub(super) type Holders<'a> = Vec<(usize, &'a StatePart)>;

/// The holders of each distinct part, by the tensor's name and the shards.
pub(super) fn holders(ranks: &[Vec<StatePart>]) -> impl Iterator<Item = Holders<'_>> {
    let mut holders: BTreeMap<(&str, &[Shard]), Holders<'_>> = BTreeMap::new();
    for (rank, parts) in ranks.iter().enumerate() {
        for part in parts.iter().filter(|part| !part.shards.is_empty()) {
            holders.entry((&part.name, &part.shards)).or_default().push((rank, part));
        }
    }
    holders.into_values()
}

/// Parts that each rank writes. The largest part is assigned first; the holder with the least data so far writes the part.
pub(super) fn assign_writers(ranks: &[Vec<StatePart>]) -> Vec<Vec<StatePart>> {
    let mut distinct: Vec<Holders<'_>> = holders(ranks).collect();
    distinct.sort_by_key(|holders| std::cmp::Reverse(holders[0].1.bytes()));
    let (mut load, mut assigned) = (vec![0; ranks.len()], vec![Vec::new(); ranks.len()]);
    for holders in distinct {
        let least = holders.into_iter().min_by_key(|(rank, _)| load[*rank]);
        let (rank, part) = least.expect("a part is there because a rank holds it");
        load[rank] += part.bytes();
        assigned[rank].push(part.clone());
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, offset: u64, size: u64) -> StatePart {
        let shards = vec![Shard { offset: vec![offset], shape: vec![size] }];
        StatePart {
            slot: 0,
            name: name.into(),
            param: name.into(),
            state: None,
            dtype: DType::F32,
            sizes: vec![8],
            shards,
        }
    }

    #[test]
    fn replicas_are_written_once_and_evenly() {
        // dp=2 x tp=2: `a` and `b` cut over tp, `c` to `f` on all.
        let on = |tp: u64| {
            let whole = ["c", "d", "e", "f"].map(|name| part(name, 0, 8));
            [vec![part("a", 4 * tp, 4), part("b", 4 * tp, 4)], whole.to_vec()].concat()
        };
        let assigned = assign_writers(&[on(0), on(1), on(0), on(1)]);
        let work: Vec<u64> = assigned.iter().map(|parts| parts.iter().map(StatePart::bytes).sum()).collect();
        assert_eq!(work, [48, 48, 48, 48]);
        let mut names: Vec<_> = assigned.iter().flatten().map(|part| (&part.name, &part.shards[0].offset)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 8);
    }
}
