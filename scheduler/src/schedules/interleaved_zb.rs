//! The schedule interleaved ZB: its timeline and its rows.

use super::ScheduleError;
use super::interleaved_1f1b::{depth_first, groups};
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Kind, Schedule};

/// Interleaved zero bubble (PyTorch's `ScheduleInterleavedZeroBubble`, after arXiv 2401.10241): the chunks and groups
/// of interleaved 1F1B, the split backward of ZB-H1. Rank r starts with `warm = (v-1)N + p-1-r` forwards and puts its W
/// off until it has run r of its I. ZB-H1's bubble at 1/v of the length; with N = p every rank holds pv activations.
///
/// Two ranks, four micro-batches, two chunks, f = i = w = 1:
/// ```text
/// rank 0  0F0 0F1 2F0 2F1 ... 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3
/// rank 1  ... 1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3
/// ```
pub(super) fn interleaved_zb(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let groups = groups(pipeline)?;
    let Pipeline { ranks, chunks, .. } = *pipeline;
    let rows = (0..ranks)
        .map(|rank| {
            let [forwards, i, w] = [Kind::F, Kind::I, Kind::W].map(|kind| depth_first(pipeline, &groups, rank, kind));
            let ahead = (ranks - 1 - rank) as usize + (chunks - 1) as usize * groups[0].len();
            let (warm_up, rest) = forwards.split_at(ahead.min(forwards.len()));
            let late = (rank as usize).min(w.len());
            let steady = (0..i.len()).flat_map(|k| {
                let w = k.checked_sub(late).map(|k| w[k]);
                rest.get(k).copied().into_iter().chain([i[k]]).chain(w)
            });
            let last = &w[w.len() - late..];
            with_step_end(warm_up.iter().copied().chain(steady).chain(last.iter().copied()))
        })
        .collect();
    Ok(Schedule { name: "interleaved-zb".into(), rows })
}

/// Returns the number of forwards before the first backward. A group has at least p micro-batches, or all.
pub(super) fn in_flight(rank: u32, pipeline: &Pipeline) -> u32 {
    let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
    let behind = ranks - rank;
    (behind + (chunks - 1) * ranks.min(microbatches)).min(microbatches.saturating_mul(chunks))
}
