//! The stages in the order of the layout's schedule, simulated.

use super::stages::Load;
use crate::error::Error;
use crate::pipeline::CompileError;
use ir::limits;
use ir::schedule::Kind;
use scheduler::costs::StageCosts;
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;
use scheduler::simulate::{Idle, Timeline, simulate};

/// Of what an input gradient frees and what waits for the weight gradient, the share of the latter: 32 of 34 bytes of a
/// layer without its scores (Qi et al. 2023, table 1).
const HELD_FOR_W: f64 = 32.0 / 34.0;

/// A step of a pipeline, up to the last backward.
#[derive(Debug)]
pub(super) struct Flow {
    /// Of each rank.
    pub(super) ranks: Vec<Rank>,
    /// The idle share of the busiest rank.
    pub(super) bubble: f64,
}

/// What a rank does.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rank {
    /// The stages that it runs, and how often it runs their F, I and W.
    pub(super) stages: Vec<(usize, [f64; 3])>,
    /// When its last action ends.
    pub(super) end: f64,
    /// Where it waits.
    pub(super) idle: Idle,
    /// The most bytes that forwards keep at once.
    pub(super) kept: f64,
    /// The most micro-batches in flight of the last stage that it has.
    pub(super) in_flight: f64,
}

/// Orders and simulates the micro-batches of a step; `hops[s]` are the seconds between stages s and s + 1.
///
/// # Errors
/// The schedule does not suit the pipeline.
pub(super) fn flow(
    loads: &[Load],
    hops: Vec<f64>,
    kind: &ScheduleKind,
    pipeline: &Pipeline,
) -> Result<Flow, Error> {
    let actions = u64::from(pipeline.stages()) * u64::from(pipeline.microbatches) * u64::from(pipeline.slices);
    if actions > limits::ACTIONS {
        let (runs, microbatches) = (u64::from(pipeline.stages()), pipeline.microbatches);
        return Err(CompileError::TooManyActions { runs, microbatches }.into());
    }
    let slices = f64::from(pipeline.slices);
    let each = |of: &dyn Fn(&Load) -> f64| loads.iter().map(|load| of(load) / slices).collect::<Vec<f64>>();
    let costs = StageCosts {
        f: each(&|load| load.seconds()[0]),
        i: each(&|load| load.seconds()[1]),
        w: each(&|load| load.seconds()[2]),
        comm: hops.iter().map(|hop| hop / slices).collect(),
        mem_f: each(&|load| load.kept),
        mem_i: each(&|load| load.kept * (1.0 - HELD_FOR_W)),
        mem_w: each(&|load| load.kept * HELD_FOR_W),
        ..StageCosts::uniform(pipeline.stages(), 0.0, 0.0, 0.0, 0.0)
    };
    let schedule = kind.make(&costs, pipeline).map_err(CompileError::Schedule)?;
    let timeline = simulate(&schedule, &costs).map_err(|why| CompileError::Schedule(why.to_string()))?;
    let ranks = (0..timeline.rows.len()).map(|rank| Rank::of(&timeline, rank, loads.len(), slices)).collect();
    Ok(Flow { ranks, bubble: timeline.bubble() })
}

impl Rank {
    fn of(timeline: &Timeline, rank: usize, stages: usize, slices: f64) -> Rank {
        let row = &timeline.rows[rank];
        let mut runs = vec![[0.0; 3]; stages];
        let (mut open, mut most) = (vec![0.0_f64; stages], vec![0.0_f64; stages]);
        for item in row.iter().flat_map(|slot| slot.action.items()) {
            let Some(stage) = item.stage.map(|stage| stage as usize) else { continue };
            let [f, i, w] = &mut runs[stage];
            match item.kind {
                Kind::F => (*f, open[stage]) = (*f + 1.0 / slices, open[stage] + 1.0 / slices),
                Kind::I => *i += 1.0 / slices,
                Kind::W => (*w, open[stage]) = (*w + 1.0 / slices, open[stage] - 1.0 / slices),
                Kind::B => {
                    (*i, *w) = (*i + 1.0 / slices, *w + 1.0 / slices);
                    open[stage] -= 1.0 / slices;
                }
                _ => {}
            }
            most[stage] = most[stage].max(open[stage]);
        }
        let stages: Vec<_> = runs.into_iter().enumerate().filter(|(_, runs)| runs[0] > 0.0).collect();
        Rank {
            in_flight: stages.last().map_or(0.0, |(stage, _)| most[*stage]),
            stages,
            end: row.last().map_or(0.0, |slot| slot.end),
            idle: timeline.idle(rank),
            kept: timeline.peak_memory[rank],
        }
    }
}
