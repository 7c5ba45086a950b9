//! Regular partitions of pipelines whose ranks have several stages.
//!
//! Interleaved orders go in lock-step: a rank that is slow in one chunk holds up the others until all go on to the next chunk.
//! So a chunk wants equal stages, while chunks may differ. In a regular partition all stages have the same number of layers
//! but for a run of consecutive stages with one more, which begins or ends with a chunk, and for the first and the last stage.

use super::chain::{RunSeconds, sums};
use crate::placement::Pipeline;
use std::ops::Range;

/// Layers by which the first stage of a regular partition may be shorter; negative if it is longer, as with an embedding that
/// takes no time, or with light first layers.
const FIRST_SHORTER: Range<i64> = -1..2;

/// Upper limit on the layers by which the last stage may be shorter: heads of large vocabularies take as long as two or three layers.
const LAST_SHORTER: i64 = 3;

/// The regular partitions of least lock-step seconds, and whose slowest rank is fastest, if these seconds are less than `most` of
/// those of `own`. `layers` are the block instances between the ends of the model.
pub(super) fn regular(
    runs: &[RunSeconds],
    layers: &Range<usize>,
    pipeline: &Pipeline,
    (own, most): (&[usize], f64),
) -> Vec<Vec<usize>> {
    let before = sums(runs);
    let seconds = Seconds { before: &before, pipeline, owners: &pipeline.owners() };
    let own = seconds.of(own);
    // The other seconds of a partition only break ties.
    let below = |own: f64| ([most * own, 0.0], Vec::new());
    let mut best: [([f64; 2], Vec<usize>); 2] = own.map(below);
    for starts in all(runs.len(), layers, pipeline) {
        let [lockstep, slowest] = seconds.of(&starts);
        let keys = [[lockstep, slowest], [slowest, lockstep]];
        for (key, best) in keys.into_iter().zip(&mut best) {
            if key[0] < best.0[0] || (key[0] == best.0[0] && key[1] < best.0[1]) {
                *best = (key, starts.clone());
            }
        }
    }
    let [(_, lockstep), (_, slowest)] = best;
    let mut kept = vec![lockstep, slowest];
    kept.dedup();
    kept.retain(|starts| !starts.is_empty());
    kept
}

/// Seconds of a micro-batch in partitions of some block instances.
struct Seconds<'a> {
    /// Seconds of the block instances before each.
    before: &'a [RunSeconds],
    pipeline: &'a Pipeline,
    /// Ranks of each stage.
    owners: &'a [Vec<u32>],
}

impl Seconds<'_> {
    /// Seconds in lock-step, where each chunk takes as long as its slowest stage, and on the slowest rank.
    fn of(&self, starts: &[usize]) -> [f64; 2] {
        let ranks = self.pipeline.ranks as usize;
        let end = |stage: usize| starts.get(stage + 1).copied().unwrap_or(self.before.len() - 1);
        let mut by_rank = vec![0.0; ranks];
        let (mut lockstep, mut longest) = (0.0, 0.0_f64);
        for (stage, owners) in self.owners.iter().enumerate() {
            let seconds = (self.before[end(stage)] - self.before[starts[stage]]).total();
            owners.iter().for_each(|&rank| by_rank[rank as usize] += seconds / owners.len() as f64);
            longest = longest.max(seconds);
            if (stage + 1) % ranks == 0 {
                lockstep += std::mem::take(&mut longest);
            }
        }
        [lockstep, by_rank.into_iter().fold(0.0, f64::max)]
    }
}

/// All regular partitions.
fn all(runs: usize, layers: &Range<usize>, pipeline: &Pipeline) -> impl Iterator<Item = Vec<usize>> {
    let (stages, ranks) = (i64::from(pipeline.stages()), i64::from(pipeline.ranks));
    let (number, layers) = (layers.len() as i64, layers.clone());
    let ends = FIRST_SHORTER.flat_map(move |first| (0..=LAST_SHORTER).map(move |last| [first, last]));
    ends.flat_map(move |[first, last]| {
        let (each, more) = ((number + first + last).div_euclid(stages), (number + first + last).rem_euclid(stages));
        let chunks = if more == 0 { 1 } else { stages / ranks };
        let runs_of_more = (0..chunks).flat_map(move |chunk| [chunk * ranks, (chunk + 1) * ranks - more]);
        runs_of_more.filter(move |from| *from >= 0 && from + more <= stages).map(move |from| Lengths {
            stages,
            each,
            longer: from..from + more,
            shorter: [first, last],
        })
    })
    .filter_map(move |lengths| lengths.starts(runs, &layers))
}

/// Numbers of layers of the stages of a regular partition.
struct Lengths {
    stages: i64,
    each: i64,
    /// Stages with one layer more.
    longer: Range<i64>,
    /// Layers by which the first and the last stage are shorter.
    shorter: [i64; 2],
}

impl Lengths {
    fn of(&self, stage: i64) -> i64 {
        let ends = [stage == 0, stage + 1 == self.stages].map(i64::from);
        let shorter = ends[0] * self.shorter[0] + ends[1] * self.shorter[1];
        self.each + i64::from(self.longer.contains(&stage)) - shorter
    }

    /// First block instance of each stage; `None` if some stage would have nothing to run.
    fn starts(&self, runs: usize, layers: &Range<usize>) -> Option<Vec<usize>> {
        let (mut starts, mut at) = (Vec::with_capacity(self.stages as usize), layers.start);
        starts.push(0);
        for stage in 0..self.stages - 1 {
            at += usize::try_from(self.of(stage)).ok()?;
            if at <= starts[starts.len() - 1] {
                return None;
            }
            starts.push(at);
        }
        let last = usize::try_from(self.of(self.stages - 1)).ok()?;
        (at + last == layers.end && at < runs).then_some(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    fn layers_of(starts: &[usize], layers: &Range<usize>) -> Vec<usize> {
        let ends = starts[1..].iter().copied().chain([layers.end]);
        starts.iter().zip(ends).map(|(&start, end)| end - start.max(layers.start)).collect()
    }

    /// Fourteen layers too many on a loop of 16 ranks and 7 chunks are all in one chunk, and the head is alone.
    #[test]
    fn a_loop_has_its_longer_stages_in_one_chunk() {
        let layer = RunSeconds { f: 1.0, i: 1.0, w: 1.0 };
        let mut runs = vec![layer; 128];
        (runs[0], runs[127]) = (RunSeconds::default(), RunSeconds { f: 0.8, i: 0.8, w: 0.8 });
        let pipeline = Pipeline { chunks: 7, ..Pipeline::new(Placement::Loop, 16, 16) };
        let own: Vec<usize> = (0..112).map(|stage| stage * 128 / 112).collect();
        let best = regular(&runs, &(1..127), &pipeline, (&own, 0.99));
        let lengths = layers_of(&best[0], &(1..127));
        assert_eq!((lengths.len(), lengths.iter().sum::<usize>(), lengths[111]), (112, 126, 0), "{lengths:?}");
        let chunks_with_more = lengths.chunks(16).filter(|chunk| chunk.contains(&2)).count();
        assert_eq!(chunks_with_more, 1, "{lengths:?}");
    }

    /// Every regular partition begins with the model, ascends, and leaves no stage without a block instance.
    #[test]
    fn regular_partitions_are_partitions() {
        for (placement, chunks) in
            [(Placement::Loop, 2), (Placement::Loop, 3), (Placement::V, 2), (Placement::Bidirectional, 2)]
        {
            for (runs, layers) in [(34, 1..33), (10, 1..9), (12, 0..12)] {
                let pipeline = Pipeline { chunks, ..Pipeline::new(placement, 4, 8) };
                for starts in all(runs, &layers, &pipeline) {
                    assert_eq!((starts.len() as u32, starts[0]), (pipeline.stages(), 0), "{starts:?}");
                    assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
                    assert!(starts[starts.len() - 1] < runs, "{starts:?}");
                }
            }
        }
    }
}
