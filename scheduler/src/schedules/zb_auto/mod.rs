//! The schedule ZB-auto: its rule and its timeline.

mod build;

use super::ScheduleError;
use crate::costs::StageCosts;
use crate::list::{self, lists};
use crate::placement::Pipeline;
use build::{Built, Rule, build};
use ir::schedule::{Kind, Schedule};

/// The automatic zero-bubble schedule (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 3.1). I and W are
/// separate, and each W runs where it fills a gap or frees memory for the next forward. Eight variants of a greedy rule are
/// built with the times and memory of each stage; the first of the least span is the result.
///
/// Without a limit, each rank may hold `2p` forwards: ZB-2p, whose ranks have almost no bubble. With a limit of p forwards it
/// is ZB-1p, which equals ZB-H1 on uniform stages. If a rank may hold less, list scheduling competes. Every limit suffices that
/// lets each rank hold one forward.
///
/// Three ranks, four micro-batches, f = i = w = 1, limit 6:
/// ```text
/// rank 0  F0 F1 F2 F3 .. I0 W0 I1 W1 I2 W2 I3 W3
/// rank 1  .. F0 F1 F2 I0 F3 I1 W0 I2 W1 I3 W2 W3
/// rank 2  .. .. F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3
/// ```
pub(super) fn zb_auto(costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let ranks = pipeline.ranks;
    let limit: Vec<f64> = match &costs.limit {
        Some(limit) => limit.clone(),
        None => costs.mem_f.iter().map(|forward| f64::from(2 * ranks) * forward).collect(),
    };
    if let Some(rank) = (0..ranks as usize).find(|&rank| limit[rank] < costs.mem_f[rank]) {
        return Err(ScheduleError::Memory { held: "", rank, limit: limit[rank], needs: costs.mem_f[rank] });
    }
    let both = [true, false];
    let rules = both.into_iter().flat_map(|early_gaps| {
        both.into_iter().flat_map(move |backward_first| {
            both.into_iter().map(move |fill_all| Rule { early_gaps, backward_first, fill_all })
        })
    });
    let built = rules.map(|rule| build(costs, pipeline.microbatches, &limit, rule));
    let mut best = built.reduce(better).expect("there are eight rules");
    if (0..ranks as usize).any(|rank| limit[rank] < f64::from(ranks) * costs.mem_f[rank] * (1.0 - ROUNDING)) {
        let lists = lists(costs, pipeline, &limit, best.span, ROUNDING * best.span);
        let built = lists.map(|list| Built { span: list.span, rows: list.rows.into_iter().map(numbered).collect() });
        best = built.fold(best, better);
    }
    let rows = best.rows;
    let rows = rows.into_iter().enumerate().map(|(rank, row)| super::row_of(rank as u32, row)).collect();
    Ok(Schedule { name: "zb-auto".into(), rows })
}

/// Returns the result of less span, the first one if they are alike.
fn better(best: Built, next: Built) -> Built {
    if next.span < best.span * (1.0 - ROUNDING) { next } else { best }
}

/// Numbers the micro-batches of a stage's row: each kind counts up.
fn numbered(row: list::Row) -> Vec<(Kind, u32)> {
    let mut count = [0; Kind::ALL.len()];
    let actions = row.into_iter().map(|(kind, _)| {
        count[kind as usize] += 1;
        (kind, count[kind as usize] - 1)
    });
    actions.collect()
}

/// Relative difference up to which times count as equal, so that the unit of the times does not matter.
const ROUNDING: f64 = 1e-9;
