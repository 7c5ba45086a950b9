//! Properties of a schedule kind, known without generating rows: whether it supports a pipeline, and how its backwards run.

use super::ScheduleKind;
use crate::placement::Pipeline;

/// Schedules whose backwards are whole: every B is I and W in one.
const WHOLE: [&str; 9] =
    ["gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "chimera", "seq1f1b", "hanayo", "1f1b-v"];

/// Schedules whose order follows from costs.
const BY_COSTS: [&str; 4] = ["zb-auto", "v-auto", "zb-v-greedy", crate::optimal::KIND];

/// Schedules that are searched for.
const SEARCHES: [&str; 2] = ["v-auto", crate::optimal::KIND];

impl ScheduleKind {
    /// Whether the order is the same whatever actions take.
    pub fn has_fixed_order(&self) -> bool {
        !BY_COSTS.contains(&self.name)
    }

    /// Whether it tries many orders: on 32 ranks for seconds.
    pub fn searches(&self) -> bool {
        SEARCHES.contains(&self.name)
    }

    /// Whether the kind's constraint holds for a pipeline with its own groups.
    pub fn suits(&self, pipeline: &Pipeline) -> bool {
        let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
        let both_even = ranks.is_multiple_of(2) && microbatches.is_multiple_of(2);
        match self.name {
            "dualpipe" => both_even && microbatches >= 2 * ranks,
            "dualpipe-v" => microbatches >= 2 * ranks,
            "chimera" => both_even,
            "hanayo" => chunks.is_multiple_of(2),
            "zb-h2" => microbatches >= 2 * ranks - 1,
            _ => true,
        }
    }

    /// How many forwards of one stage and slice a rank keeps at once, at least.
    pub fn keeps(&self, rank: u32, pipeline: &Pipeline) -> u32 {
        let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
        let behind = ranks - rank;
        match self.name {
            "gpipe" => microbatches,
            "1f1b" | "zb-h1" => behind.min(microbatches),
            "eager-1f1b" | "zb-h2" => (2 * behind - 1).min(microbatches),
            "zb-v" if microbatches >= 2 * ranks => 2 * ranks - 1,
            // Groups have at least as many micro-batches as there are ranks, or all.
            "interleaved-1f1b" => {
                (2 * behind - 1 + (chunks - 1) * ranks.min(microbatches)).min(microbatches.saturating_mul(chunks))
            }
            "interleaved-zb" => {
                (behind + (chunks - 1) * ranks.min(microbatches)).min(microbatches.saturating_mul(chunks))
            }
            "looped-bfs" => microbatches.saturating_mul(chunks),
            _ => 1,
        }
    }

    /// Whether of many micro-batches each round, as many as there are ranks, is ordered as the one before it. Hanayo's
    /// order returns after many rounds: on four ranks with four chunks after 17.
    pub fn repeats_rounds(&self) -> bool {
        self.has_fixed_order() && self.name != "hanayo"
    }

    /// Whether no input gradient is given on before the weight gradient of its stage is done.
    pub fn has_whole_backwards(&self) -> bool {
        WHOLE.contains(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SCHEDULES;
    use crate::costs::StageCosts;
    use crate::optimal::KIND;
    use crate::placement::Pipeline;
    use crate::simulate::simulate;
    use ir::schedule::Kind;

    /// Costs that are the same on all stages, and costs that are nowhere the same.
    fn others(pipeline: &Pipeline) -> [StageCosts; 2] {
        let even = StageCosts::uniform(pipeline.stages(), 1.0, 0.7, 2.5, 0.0);
        let mut uneven = StageCosts { fb: Some(1.1), ..even.clone() };
        let fields =
            [&mut uneven.f, &mut uneven.i, &mut uneven.w, &mut uneven.comm, &mut uneven.mem_i, &mut uneven.mem_w];
        for (number, field) in (1..).zip(fields) {
            for (stage, figure) in (1..).zip(field) {
                *figure = f64::from((stage * 7 + number * 3) % 11) / 5.0;
            }
        }
        uneven.mem_f = uneven.mem_i.iter().zip(&uneven.mem_w).map(|(i, w)| i + w).collect();
        [even, uneven]
    }

    #[test]
    fn what_suits_can_be_made_and_has_the_backwards_that_are_told() {
        for kind in SCHEDULES.iter().filter(|kind| kind.name != KIND) {
            for (ranks, chunks) in [(1, None), (2, None), (3, None), (4, None), (2, Some(3)), (3, Some(4))] {
                for microbatches in [1, 2, 3, 4, 5, 8, 9] {
                    let Ok(pipeline) = kind.pipeline(ranks, chunks, microbatches) else { continue };
                    let costs = StageCosts::uniform(pipeline.stages(), 1.0, 1.5, 0.5, 0.1);
                    let made = kind.make(&costs, &pipeline);
                    assert_eq!(made.is_ok(), kind.suits(&pipeline), "{} {pipeline:?}", kind.name);
                    let Ok(schedule) = made else { continue };
                    for other in others(&pipeline) {
                        let same = kind.make(&other, &pipeline).unwrap().rows == schedule.rows;
                        assert!(same || !kind.has_fixed_order(), "{} {pipeline:?}", kind.name);
                    }
                    let timeline = simulate(&schedule, &costs).unwrap();
                    for (rank, peak) in timeline.peak_memory.iter().enumerate() {
                        let kept = f64::from(kind.keeps(rank as u32, &pipeline)) / f64::from(pipeline.slices);
                        assert!(kept <= *peak, "{} {pipeline:?} {rank}: {kept} {peak}", kind.name);
                    }
                    let items = schedule.rows.iter().flatten().flat_map(|action| action.items());
                    let whole = items.into_iter().all(|item| !matches!(item.kind, Kind::I | Kind::W));
                    assert!(whole || !kind.has_whole_backwards(), "{} {pipeline:?}", kind.name);
                }
            }
        }
    }
}
