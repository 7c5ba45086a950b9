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

/// Number of regular partitions that are worth a simulation.
const KEPT: usize = 4;

/// The most promising regular partitions: those of least lock-step seconds, then those whose slowest rank is fastest. `layers` are
/// the block instances between the ends of the model.
pub(super) fn regular(runs: &[RunSeconds], layers: &Range<usize>, pipeline: &Pipeline) -> Vec<Vec<usize>> {
    let before = sums(runs);
    let mut scored: Vec<([f64; 2], Vec<usize>)> = Vec::new();
    for starts in all(runs.len(), layers, pipeline) {
        let score = score(&before, &starts, pipeline);
        if !scored.iter().any(|(_, known)| *known == starts) {
            scored.push((score, starts));
        }
    }
    let mut kept = best_by(&scored, |score| (score[0], score[1]));
    for starts in best_by(&scored, |score| (score[1], score[0])) {
        if !kept.contains(&starts) {
            kept.push(starts);
        }
    }
    kept
}

/// Half of the partitions to keep, by one order of their scores.
fn best_by(scored: &[([f64; 2], Vec<usize>)], key: impl Fn(&[f64; 2]) -> (f64, f64)) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..scored.len()).collect();
    order.sort_by(|&a, &b| {
        let ((a0, a1), (b0, b1)) = (key(&scored[a].0), key(&scored[b].0));
        a0.total_cmp(&b0).then(a1.total_cmp(&b1)).then(a.cmp(&b))
    });
    order.into_iter().take(KEPT / 2).map(|at| scored[at].1.clone()).collect()
}

/// Seconds of a micro-batch in lock-step, where each chunk takes as long as its slowest stage, and on the slowest rank.
fn score(before: &[RunSeconds], starts: &[usize], pipeline: &Pipeline) -> [f64; 2] {
    let ranks = pipeline.ranks as usize;
    let end = |stage: usize| starts.get(stage + 1).copied().unwrap_or(before.len() - 1);
    let seconds = |stage: usize| (before[end(stage)] - before[starts[stage]]).total();
    let chunks = (0..starts.len()).step_by(ranks);
    let lockstep =
        chunks.map(|first| (first..(first + ranks).min(starts.len())).map(seconds).fold(0.0, f64::max)).sum();
    let mut by_rank = vec![0.0; ranks];
    for (stage, owners) in pipeline.owners().iter().enumerate() {
        owners.iter().for_each(|&rank| by_rank[rank as usize] += seconds(stage) / owners.len() as f64);
    }
    [lockstep, by_rank.into_iter().fold(0.0, f64::max)]
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
        runs_of_more.filter(move |from| *from >= 0 && from + more <= stages).map(move |from| {
            let mut lengths = vec![each; stages as usize];
            lengths[from as usize..(from + more) as usize].iter_mut().for_each(|length| *length += 1);
            lengths[0] -= first;
            lengths[stages as usize - 1] -= last;
            lengths
        })
    })
    .filter_map(move |lengths| starts(&lengths, runs, &layers))
}

/// First block instance of stages with these numbers of layers; `None` if some stage would have nothing to run.
fn starts(lengths: &[i64], runs: usize, layers: &Range<usize>) -> Option<Vec<usize>> {
    let (mut starts, mut at) = (vec![0], layers.start);
    for length in &lengths[..lengths.len() - 1] {
        at += usize::try_from(*length).ok()?;
        starts.push(at);
    }
    let ascends = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let last = usize::try_from(lengths[lengths.len() - 1]).ok()?;
    (ascends && at + last == layers.end && at < runs).then_some(starts)
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
        let best = regular(&runs, &(1..127), &pipeline);
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
