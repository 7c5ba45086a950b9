//! Comparison of replicas: parts of parameters and states that several ranks hold must be the same bytes on all of them.

use super::assign::holders;
use super::error::Error;
use super::together::{all_parts, share};
use exec::{Executor, Platform};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The replicas of an executor's parameters and states. Executors of several processes compare theirs together.
pub struct Replicas {
    all: Vec<Replica>,
    /// The slots of each rank that have replicas elsewhere.
    slots: Arc<Vec<Vec<usize>>>,
}

/// A part of a tensor that several ranks hold.
struct Replica {
    name: String,
    /// The ranks, and the place of the part among those that the rank compares.
    holders: Vec<(usize, usize)>,
}

/// A part of a tensor that is not the same on all ranks that hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The tensor's global name.
    pub name: String,
    /// The ranks that differ from most; all if there is no majority.
    pub odd: Vec<usize>,
    /// The ranks that agree.
    pub others: Vec<usize>,
    /// The number of parts that differ.
    pub parts: usize,
}

impl Replicas {
    /// Finds the replicas, which stay the same.
    ///
    /// # Errors
    /// A rank failed.
    pub fn of<P: Platform>(executor: &mut Executor<P>) -> Result<Replicas, Error> {
        let ranks = all_parts(executor)?;
        let mut slots = vec![Vec::new(); ranks.len()];
        let mut all = Vec::new();
        for several in holders(&ranks).filter(|holders| holders.len() > 1) {
            let name = several[0].1.name.clone();
            let mut holders = Vec::with_capacity(several.len());
            for (rank, part) in several {
                holders.push((rank, slots[rank].len()));
                slots[rank].push(part.slot);
            }
            all.push(Replica { name, holders });
        }
        Ok(Replicas { all, slots: Arc::new(slots) })
    }

    /// Compares all by hashes. Gives the first part that is not the same everywhere.
    ///
    /// # Errors
    /// A rank failed.
    pub fn compare<P: Platform>(&self, executor: &mut Executor<P>) -> Result<Option<Divergence>, Error> {
        let slots = self.slots.clone();
        let own = executor.visit(move |rank, state| {
            let hashes = slots[rank].iter().map(|&slot| hash(&state.stored(slot)));
            (rank, hashes.collect::<Vec<u64>>())
        })?;
        let mut hashes = vec![Vec::new(); self.slots.len()];
        share(executor, own)?.into_iter().flatten().for_each(|(rank, of_rank)| hashes[rank] = of_rank);
        let mut differing = self.all.iter().filter(|replica| replica.hashes(&hashes).len() > 1);
        let first = differing.next();
        let more = differing.count();
        Ok(first.map(|first| first.divergence(&hashes, more + 1)))
    }
}

impl Replica {
    /// The ranks of each hash.
    fn hashes(&self, hashes: &[Vec<u64>]) -> BTreeMap<u64, Vec<usize>> {
        let mut ranks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for &(rank, place) in &self.holders {
            let hash = hashes[rank].get(place).copied().unwrap_or_default();
            ranks.entry(hash).or_default().push(rank);
        }
        ranks
    }

    fn divergence(&self, hashes: &[Vec<u64>], parts: usize) -> Divergence {
        let by_hash: Vec<Vec<usize>> = self.hashes(hashes).into_values().collect();
        let most = by_hash.iter().find(|ranks| 2 * ranks.len() > self.holders.len());
        let others = most.cloned().unwrap_or_default();
        let mut odd: Vec<usize> = self.holders.iter().map(|(rank, _)| *rank).collect();
        odd.retain(|rank| !others.contains(rank));
        Divergence { name: self.name.clone(), odd, others, parts }
    }
}

/// FNV-1a hash of 64 bits (Fowler, Noll, Vo), over words of 8 bytes. It differs if one word does: each step is a bijection.
fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}
