//! Regular partitions of pipelines whose ranks have several stages.
//!
//! Interleaved orders go in lock-step: a rank that is slow in one chunk holds up the others until all go on to the next chunk.
//! So a chunk wants equal stages, while chunks may differ. In a regular partition all stages have the same number of layers
//! but for a run of consecutive stages with one more, which begins or ends with a chunk, and for the first and the last stage.

use super::chain::{RunSeconds, sums};
use crate::placement::{Pipeline, Placement};
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
    own: &[usize],
    most: f64,
) -> Vec<Vec<usize>> {
    let before: Vec<f64> = sums(runs).into_iter().map(RunSeconds::total).collect();
    let mut seconds = Seconds::new(&before, pipeline);
    let own = seconds.of(own);
    let least = least_seconds(&runs[layers.clone()], pipeline);
    if own.iter().all(|own| least > most * own) {
        return Vec::new();
    }
    // The other seconds of a partition only break ties.
    let mut best: [([f64; 2], Option<Lengths>); 2] = own.map(|own| ([most * own, 0.0], None));
    let mut starts = Vec::with_capacity(pipeline.stages() as usize);
    for lengths in all(layers.len(), pipeline) {
        if !lengths.fill(&mut starts, runs.len(), layers) {
            continue;
        }
        let [lockstep, slowest] = seconds.of(&starts);
        let keys = [[lockstep, slowest], [slowest, lockstep]];
        for (key, best) in keys.into_iter().zip(&mut best) {
            if is_no_more(key, best.0) {
                *best = (key, Some(lengths.clone()));
            }
        }
    }
    let mut kept: Vec<Vec<usize>> = Vec::with_capacity(best.len());
    for lengths in best.into_iter().filter_map(|(_, lengths)| lengths) {
        if lengths.fill(&mut starts, runs.len(), layers) && kept.last() != Some(&starts) {
            kept.push(starts.clone());
        }
    }
    kept
}

/// Rounding error of seconds, which sum up block instances in another order.
const ROUNDING: f64 = 1e-9;

/// Returns whether seconds are no more than others; the second ones break ties of the first. Of partitions that take as long, the last one
/// in the order of [`all`] is taken: its longer stages come later, where fewer activations are held.
fn is_no_more(key: [f64; 2], other: [f64; 2]) -> bool {
    let is_less = key[0] < other[0] * (1.0 - ROUNDING);
    is_less || key.iter().zip(other).all(|(key, other)| *key <= other * (1.0 + ROUNDING))
}

/// Lower bound on the seconds of all partitions, in lock-step and on the slowest rank: the layers of each chunk, and of each rank, are whole.
fn least_seconds(layers: &[RunSeconds], pipeline: &Pipeline) -> f64 {
    let each = layers.iter().map(|layer| layer.total()).fold(f64::INFINITY, f64::min);
    let all = layers.len().div_ceil(pipeline.ranks as usize);
    // With two chains, half of the micro-batches run a stage on another rank.
    let whole = if pipeline.placement == Placement::Bidirectional || all == 0 { 0.0 } else { all as f64 * each };
    whole * (1.0 - ROUNDING)
}

/// Seconds of a micro-batch in partitions of some block instances.
struct Seconds<'a> {
    /// Seconds of all block instances before each.
    before: &'a [f64],
    /// Both ranks of each stage, which are one unless two chains share ranks.
    owners: Vec<[usize; 2]>,
    /// Seconds of each rank.
    by_rank: Vec<f64>,
}

impl Seconds<'_> {
    fn new<'a>(before: &'a [f64], pipeline: &Pipeline) -> Seconds<'a> {
        let Pipeline { ranks, placement, .. } = *pipeline;
        let owners = (0..pipeline.stages()).map(|stage| {
            let own = pipeline.rank(stage, 0);
            // With two chains, half of the micro-batches run a stage on the mirrored rank.
            let other = if placement == Placement::Bidirectional { ranks - 1 - stage % ranks } else { own };
            [own as usize, other as usize]
        });
        Seconds { before, owners: owners.collect(), by_rank: vec![0.0; ranks as usize] }
    }

    /// Seconds in lock-step, where each chunk takes as long as its slowest stage, and on the slowest rank.
    fn of(&mut self, starts: &[usize]) -> [f64; 2] {
        self.by_rank.fill(0.0);
        let (ranks, mut lockstep) = (self.by_rank.len(), 0.0);
        for (chunk, owners) in self.owners.chunks(ranks).enumerate() {
            let mut longest = 0.0_f64;
            for (stage, &[own, other]) in (chunk * ranks..).zip(owners) {
                let end = starts.get(stage + 1).copied().unwrap_or(self.before.len() - 1);
                let seconds = self.before[end] - self.before[starts[stage]];
                self.by_rank[own] += seconds / 2.0;
                self.by_rank[other] += seconds / 2.0;
                longest = longest.max(seconds);
            }
            lockstep += longest;
        }
        [lockstep, self.by_rank.iter().copied().fold(0.0, f64::max)]
    }
}

/// All regular partitions of a number of layers; some leave a stage nothing to run.
fn all(number: usize, pipeline: &Pipeline) -> impl Iterator<Item = Lengths> {
    let (stages, ranks, number) = (i64::from(pipeline.stages()), i64::from(pipeline.ranks), number as i64);
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
}

/// Numbers of layers of the stages of a regular partition.
#[derive(Clone)]
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

    /// Writes the first block instance of each stage. Returns `false` if some stage would have nothing to run.
    fn fill(&self, starts: &mut Vec<usize>, runs: usize, layers: &Range<usize>) -> bool {
        starts.clear();
        starts.push(0);
        let mut at = layers.start as i64;
        for stage in 0..self.stages - 1 {
            at += self.of(stage);
            if at <= starts[starts.len() - 1] as i64 {
                return false;
            }
            starts.push(at as usize);
        }
        let last = self.of(self.stages - 1);
        last >= 0 && at + last == layers.end as i64 && at < runs as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers_of(starts: &[usize], layers: &Range<usize>) -> Vec<usize> {
        let ends = starts[1..].iter().copied().chain([layers.end]);
        starts.iter().zip(ends).map(|(&start, end)| end - start.max(layers.start)).collect()
    }

    /// Fourteen or fifteen layers too many on a loop of 16 ranks and 7 chunks are all in the last chunk, but not beside the head.
    #[test]
    fn a_loop_has_its_longer_stages_in_one_chunk() {
        let layer = RunSeconds { f: 1.0, i: 1.0, w: 1.0 };
        let mut runs = vec![layer; 128];
        (runs[0], runs[127]) = (RunSeconds::default(), RunSeconds { f: 0.8, i: 0.8, w: 0.8 });
        let pipeline = Pipeline { chunks: 7, ..Pipeline::new(Placement::Loop, 16, 16) };
        let own: Vec<usize> = (0..112).map(|stage| stage * 128 / 112).collect();
        let best = regular(&runs, &(1..127), &pipeline, &own, 0.99);
        let lengths = layers_of(&best[0], &(1..127));
        assert_eq!((lengths.len(), lengths.iter().sum::<usize>()), (112, 126), "{lengths:?}");
        let longer: Vec<bool> = lengths.chunks(16).map(|chunk| chunk.contains(&2)).collect();
        assert_eq!(longer, [false, false, false, false, false, false, true], "{lengths:?}");
        assert_eq!(lengths[111], 1, "{lengths:?}");
    }

    /// Every regular partition begins with the model, ascends, and leaves no stage without a block instance.
    #[test]
    fn regular_partitions_are_partitions() {
        for (placement, chunks) in
            [(Placement::Loop, 2), (Placement::Loop, 3), (Placement::V, 2), (Placement::Bidirectional, 2)]
        {
            for (runs, layers) in [(34, 1..33), (10, 1..9), (12, 0..12)] {
                let pipeline = Pipeline { chunks, ..Pipeline::new(placement, 4, 8) };
                let mut starts = Vec::new();
                for lengths in all(layers.len(), &pipeline) {
                    if !lengths.fill(&mut starts, runs, &layers) {
                        continue;
                    }
                    assert_eq!((starts.len() as u32, starts[0]), (pipeline.stages(), 0), "{starts:?}");
                    assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
                    assert!(starts[starts.len() - 1] < runs, "{starts:?}");
                }
            }
        }
    }
}
