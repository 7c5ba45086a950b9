//! Placement of a pipeline's stages on its ranks. A schedule's rule depends on it and on the costs alone.
//!
//! A stage is on one pipeline rank, and a rank has one or more stages. With two chains a stage is on two ranks, each for
//! half of the micro-batches. Then both have its parameters, as both owners of a tied embedding do. Gradients are summed
//! among the owners before R. The first owner has the optimizer state, updates, and sends the new values; the norm counts
//! them once.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Assignment of stages to ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Stage s on rank s.
    Chain,
    /// Stage s on rank s mod p, so that rank 0 follows the last rank.
    Loop,
    /// Stages back and forth over the ranks. With two chunks, stages 0..p are on ranks 0..p and stages p..2p on ranks p-1..=0;
    /// further chunks alternate.
    V,
    /// Two chains over the same ranks, each with its own copy of the parameters: stage s on rank s for the first half of
    /// the micro-batches, on rank p-1-s for the second.
    Bidirectional,
}

impl Placement {
    /// All placements.
    pub const ALL: [Placement; 4] = [Placement::Chain, Placement::Loop, Placement::V, Placement::Bidirectional];

    /// Returns the default number of stages per rank.
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

/// A pipeline: the placement of its stages, and the micro-batches of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pipeline {
    /// Assignment of stages to ranks.
    pub placement: Placement,
    /// Number p of pipeline ranks.
    pub ranks: u32,
    /// Number v of stages on each rank. One in a chain; with two chains 2, one of each.
    pub chunks: u32,
    /// Number m of micro-batches of a step, both directions together.
    pub microbatches: u32,
    /// Number q of slices of each micro-batch's sequence; 1 without slices.
    pub slices: u32,
    /// Number of micro-batches that run through a chunk before the rank's next chunk; `None`: the default of the schedule kind.
    pub group: Option<u32>,
}

impl Pipeline {
    /// Builds a pipeline without slices, with the default chunks of its placement.
    pub fn new(placement: Placement, ranks: u32, microbatches: u32) -> Pipeline {
        Pipeline { placement, ranks, chunks: placement.chunks(), microbatches, slices: 1, group: None }
    }

    /// Returns the number S of stages.
    pub fn stages(&self) -> u32 {
        match self.placement {
            Placement::Chain | Placement::Bidirectional => self.ranks,
            Placement::Loop | Placement::V => self.ranks.saturating_mul(self.chunks),
        }
    }

    /// Returns the rank that runs a stage for a micro-batch.
    pub fn rank(&self, stage: u32, microbatch: u32) -> u32 {
        let (round, place) = (stage / self.ranks, stage % self.ranks);
        let back = match self.placement {
            Placement::Chain | Placement::Loop => false,
            Placement::V => round % 2 == 1,
            Placement::Bidirectional => self.goes_up(microbatch),
        };
        if back { self.ranks - 1 - place } else { place }
    }

    /// Returns the ranks that hold each stage. With two chains these are the rank for the first half of the micro-batches and,
    /// if different, the rank for the second half.
    pub fn owners(&self) -> Vec<Vec<u32>> {
        let owners = (0..self.stages()).map(|stage| {
            let (first, mirrored) = (self.rank(stage, 0), self.ranks - 1 - stage % self.ranks);
            let copied = self.placement == Placement::Bidirectional && mirrored != first;
            if copied { vec![first, mirrored] } else { vec![first] }
        });
        owners.collect()
    }

    /// Returns the stages of a rank in model order; with two chains those of the micro-batch's direction.
    pub fn stages_of(&self, rank: u32, microbatch: u32) -> impl Iterator<Item = u32> + use<> {
        let pipeline = *self;
        // Each round of stages, from one end of the ranks to the other, has one stage on this rank.
        (0..self.stages()).step_by(self.ranks as usize).map(move |first| {
            let back = pipeline.rank(first, microbatch) != 0;
            first + if back { pipeline.ranks - 1 - rank } else { rank }
        })
    }

    /// Returns the stages of a rank for the first micro-batch, then those for the last. With two chains they are of both.
    pub fn stages_in_both_directions(&self, rank: u32) -> impl Iterator<Item = usize> + use<> {
        let (pipeline, last) = (*self, self.microbatches.saturating_sub(1));
        [0, last]
            .into_iter()
            .flat_map(move |microbatch| pipeline.stages_of(rank, microbatch))
            .map(|stage| stage as usize)
    }

    /// Returns whether a micro-batch enters at the last rank. With two chains the first `ceil(m/2)` enter at rank 0.
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
