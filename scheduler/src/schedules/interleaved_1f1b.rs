//! The schedule interleaved 1F1B: its timeline, its rows, and the depth-first order that others share.

use super::ScheduleError;
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};
use std::ops::Range;

/// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2): v chunks per rank in a loop. A rank runs a group of N
/// micro-batches through its first chunk, then the same group through its next one, and so on; backwards in the same
/// order of micro-batches, chunks reversed. Rank r starts with `warm = 2(p-1-r) + (v-1)N` forwards, then alternates one
/// forward and one backward. The bubble of 1F1B at 1/v of the length, for (v-1)N activations more.
///
/// N is p where p divides m; else, as in PyTorch, the m micro-batches make floor(m/p) groups, here as even as can be,
/// and N is the largest. `--group` sets N (Megatron's `microbatch-group-size-per-virtual-pipeline-stage`), from p to m:
/// larger groups hide hops, and hold more. With a last group of fewer than p micro-batches the rows could deadlock.
///
/// Two ranks, four micro-batches, two chunks, f = i = w = 1:
/// ```text
/// rank 0  0F0 0F1 2F0 2F1 0F2 ... 2B0---- 0F3 2B1---- 2F2 0B0---- 2F3 0B1---- ... 2B2---- ... 2B3---- 0B2---- 0B3----
/// rank 1  ... 1F0 1F1 3F0 3B0---- 3F1 3B1---- 1F2 1B0---- 1F3 1B1---- 3F2 3B2---- 3F3 3B3---- 1B2---- 1B3---- .......
/// ```
pub(super) fn interleaved_1f1b(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let groups = groups(pipeline)?;
    let Pipeline { ranks, chunks, .. } = *pipeline;
    let rows = (0..ranks)
        .map(|rank| {
            let [forwards, backwards] = [Kind::F, Kind::B].map(|kind| depth_first(pipeline, &groups, rank, kind));
            let ahead = 2 * (ranks - 1 - rank) as usize + (chunks - 1) as usize * groups[0].len();
            let (warm_up, rest) = forwards.split_at(ahead.min(forwards.len()));
            let (steady, cool_down) = backwards.split_at(rest.len());
            let steady = rest.iter().zip(steady).flat_map(|(f, b)| [f, b]);
            with_step_end(warm_up.iter().chain(steady).chain(cool_down).copied())
        })
        .collect();
    Ok(Schedule { name: "interleaved-1f1b".into(), rows })
}

/// Returns the groups of micro-batches that run through a chunk before the rank's next chunk, the longest first.
pub(super) fn groups(pipeline: &Pipeline) -> Result<Vec<Range<u32>>, ScheduleError> {
    let Pipeline { ranks, microbatches, group, .. } = *pipeline;
    let Some(group) = group else {
        let rounds = (microbatches / ranks).max(1);
        let (each, longer) = (microbatches / rounds, microbatches % rounds);
        let starts: Vec<u32> = (0..=rounds).map(|round| round * each + round.min(longer)).collect();
        return Ok(starts.windows(2).map(|pair| pair[0]..pair[1]).collect());
    };
    let least = ranks.min(microbatches);
    if !(least..=microbatches).contains(&group) {
        return Err(ScheduleError::GroupSize { allowed: least..=microbatches, group });
    }
    let last = microbatches % group;
    if (1..least).contains(&last) {
        return Err(ScheduleError::LastGroup { group, last, least, whole: microbatches - last });
    }
    Ok((0..microbatches).step_by(group as usize).map(|first| first..microbatches.min(first + group)).collect())
}

/// Returns the actions of a kind on a rank: each group runs through all chunks before the next group. Chunks ascend in
/// forwards.
pub(super) fn depth_first(pipeline: &Pipeline, groups: &[Range<u32>], rank: u32, kind: Kind) -> Vec<Action> {
    let Pipeline { ranks, chunks, .. } = *pipeline;
    let turns = groups.iter().flat_map(|group| {
        (0..chunks).map(move |turn| {
            let chunk = if kind == Kind::F { turn } else { chunks - 1 - turn };
            (chunk * ranks + rank, group.clone())
        })
    });
    turns.flat_map(|(stage, group)| group.map(move |j| Action::One(Item::new(kind, stage, j)))).collect()
}

/// Returns the number of forwards before the first backward. A group has at least p micro-batches, or all.
pub(super) fn in_flight(rank: u32, pipeline: &Pipeline) -> u32 {
    let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
    let behind = ranks - rank;
    (2 * behind - 1 + (chunks - 1) * ranks.min(microbatches)).min(microbatches.saturating_mul(chunks))
}
