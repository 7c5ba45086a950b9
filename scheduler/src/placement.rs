//! Placement of a pipeline's stages on its ranks. A schedule's rule depends on it and on the costs alone.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which rank holds which stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Stage s on rank s.
    Chain,
    /// Stage s on rank s mod p: after the last rank comes the first.
    Loop,
    /// To and fro: with two chunks stages 0..p on ranks 0..p, stages p..2p on ranks p-1..=0; with more, on it goes.
    V,
    /// Two chains over the same ranks, each with its own copy of the parameters: stage s on rank s for the first half of
    /// the micro-batches, on rank p-1-s for the second.
    Bidirectional,
}

impl Placement {
    /// All of them.
    pub const ALL: [Placement; 4] = [Placement::Chain, Placement::Loop, Placement::V, Placement::Bidirectional];

    /// Stages per rank where nothing else is asked for.
    pub fn chunks(self) -> u32 {
        if self == Placement::Chain { 1 } else { 2 }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Chain => "chain",
            Placement::Loop => "loop",
            Placement::V => "v",
            Placement::Bidirectional => "bidirectional",
        })
    }
}

/// A pipeline: what lies where, and how much goes through it in a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pipeline {
    /// Which rank holds which stage.
    pub placement: Placement,
    /// Pipeline ranks, p.
    pub ranks: u32,
    /// Stages on each rank, v. One in a chain; two in two chains, one of each.
    pub chunks: u32,
    /// Micro-batches of a step, m; of both directions together.
    pub microbatches: u32,
    /// Slices of each micro-batch's sequence, q; 1 where it is whole.
    pub slices: u32,
    /// How many micro-batches go through a chunk before the rank turns to its next one; `None`: as the kind has it.
    pub group: Option<u32>,
}

impl Pipeline {
    /// A pipeline with the chunks that its placement has by itself, of whole micro-batches.
    pub fn new(placement: Placement, ranks: u32, microbatches: u32) -> Pipeline {
        Pipeline { placement, ranks, chunks: placement.chunks(), microbatches, slices: 1, group: None }
    }

    /// Number of stages, S.
    pub fn stages(&self) -> u32 {
        match self.placement {
            Placement::Chain | Placement::Bidirectional => self.ranks,
            Placement::Loop | Placement::V => self.ranks.saturating_mul(self.chunks),
        }
    }

    /// The rank that runs a stage for a micro-batch.
    pub fn rank(&self, stage: u32, microbatch: u32) -> u32 {
        let (round, place) = (stage / self.ranks, stage % self.ranks);
        let back = match self.placement {
            Placement::Chain | Placement::Loop => false,
            Placement::V => round % 2 == 1,
            Placement::Bidirectional => self.goes_up(microbatch),
        };
        if back { self.ranks - 1 - place } else { place }
    }

    /// The ranks that hold each stage: in two chains that of the first half of the micro-batches and, if it is another, that
    /// of the second.
    pub fn owners(&self) -> Vec<Vec<u32>> {
        let owners = |stage| {
            let (first, mirrored) = (self.rank(stage, 0), self.ranks - 1 - stage % self.ranks);
            let copied = self.placement == Placement::Bidirectional && mirrored != first;
            if copied { vec![first, mirrored] } else { vec![first] }
        };
        (0..self.stages()).map(owners).collect()
    }

    /// The stages of a rank, in the order of the model; of a micro-batch's direction in two chains.
    pub fn stages_of(&self, rank: u32, microbatch: u32) -> impl Iterator<Item = u32> + use<> {
        let pipeline = *self;
        // Each round of stages, from one end of the ranks to the other, has one of this rank.
        (0..self.stages()).step_by(self.ranks as usize).map(move |first| {
            let back = pipeline.rank(first, microbatch) != 0;
            first + if back { pipeline.ranks - 1 - rank } else { rank }
        })
    }

    /// Whether a micro-batch enters at the last rank: in two chains the first `ceil(m/2)` enter at rank 0.
    pub fn goes_up(&self, microbatch: u32) -> bool {
        self.placement == Placement::Bidirectional && microbatch >= self.microbatches.div_ceil(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(placement: Placement, chunks: u32, microbatch: u32) -> Vec<u32> {
        let pipeline = Pipeline { chunks, ..Pipeline::new(placement, 3, 4) };
        (0..pipeline.stages()).map(|stage| pipeline.rank(stage, microbatch)).collect()
    }

    #[test]
    fn stages_lie_where_the_placement_says() {
        assert_eq!(ranks(Placement::Chain, 1, 3), [0, 1, 2]);
        assert_eq!(ranks(Placement::Loop, 2, 3), [0, 1, 2, 0, 1, 2]);
        assert_eq!(ranks(Placement::V, 2, 0), [0, 1, 2, 2, 1, 0]);
        assert_eq!(ranks(Placement::V, 3, 0), [0, 1, 2, 2, 1, 0, 0, 1, 2]);
        assert_eq!(ranks(Placement::Bidirectional, 2, 1), [0, 1, 2]);
        assert_eq!(ranks(Placement::Bidirectional, 2, 2), [2, 1, 0]);
        let owners = |placement| Pipeline::new(placement, 3, 4).owners();
        assert_eq!(owners(Placement::Bidirectional), [vec![0, 2], vec![1], vec![2, 0]]);
        assert_eq!(owners(Placement::Chain), [[0], [1], [2]]);
        let v = Pipeline::new(Placement::V, 3, 4);
        assert_eq!(v.stages_of(1, 0).collect::<Vec<_>>(), [1, 4]);
    }
}
