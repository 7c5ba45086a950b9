//! The fields of each row against the orders that the kind makes.

use super::super::{OrderBasis, SCHEDULES, ScheduleKind};
use crate::costs::StageCosts;
use crate::placement::{Pipeline, Placement};
use crate::simulate::simulate;
use ir::schedule::Kind;

/// Returns equal costs on all stages, and costs that differ on all stages.
fn others(pipeline: &Pipeline) -> [StageCosts; 2] {
    let even = StageCosts::uniform(pipeline.stages(), 1.0, 0.7, 2.5, 0.0);
    let mut uneven = StageCosts { fb: Some(1.1), ..even.clone() };
    let fields = [&mut uneven.f, &mut uneven.i, &mut uneven.w, &mut uneven.comm, &mut uneven.mem_i, &mut uneven.mem_w];
    for (number, field) in (1..).zip(fields) {
        for (stage, figure) in (1..).zip(field) {
            *figure = f64::from((stage * 7 + number * 3) % 11) / 5.0;
        }
    }
    uneven.mem_f = uneven.mem_i.iter().zip(&uneven.mem_w).map(|(i, w)| i + w).collect();
    [even, uneven]
}

/// Returns the same costs with stages that save different bytes.
fn saving_unevenly(costs: &StageCosts) -> StageCosts {
    let mem_f: Vec<f64> = (0..costs.f.len()).map(|stage| 0.1 + (stage * 5 % 7) as f64).collect();
    let half: Vec<f64> = mem_f.iter().map(|saved| saved / 2.0).collect();
    StageCosts { mem_f, mem_i: half.clone(), mem_w: half, ..costs.clone() }
}

/// Returns what a rank saves by its micro-batches in flight: those of each stage, and further ones of its smallest stage.
fn least_saved(kind: &ScheduleKind, pipeline: &Pipeline, rank: u32, costs: &StageCosts) -> f64 {
    if pipeline.placement == Placement::Bidirectional {
        return 0.0;
    }
    let of_each = kind.min_microbatches_of_each(rank, pipeline);
    let further = kind.min_in_flight(rank, pipeline).saturating_sub(of_each * pipeline.chunks);
    let saved: Vec<f64> = pipeline.stages_of(rank, 0).map(|stage| costs.mem_f[stage as usize]).collect();
    let smallest = saved.iter().copied().fold(f64::INFINITY, f64::min);
    (f64::from(of_each) * saved.iter().sum::<f64>() + f64::from(further) * smallest) / f64::from(pipeline.slices)
}

#[test]
fn what_is_accepted_can_be_made_and_has_the_properties_of_its_row() {
    for kind in SCHEDULES.iter().filter(|kind| kind.order != OrderBasis::Solved) {
        for (ranks, chunks) in [(1, None), (2, None), (3, None), (4, None), (2, Some(3)), (3, Some(4))] {
            for microbatches in [1, 2, 3, 4, 5, 8, 9] {
                let Ok(pipeline) = kind.pipeline(ranks, chunks, microbatches) else { continue };
                let costs = StageCosts::uniform(pipeline.stages(), 1.0, 1.5, 0.5, 0.1);
                let made = kind.make(&costs, &pipeline);
                assert_eq!(made.is_ok(), kind.accepts(&pipeline), "{} {pipeline:?}", kind.name);
                let Ok(schedule) = made else { continue };
                for other in others(&pipeline) {
                    let same = kind.make(&other, &pipeline).unwrap().rows == schedule.rows;
                    assert!(same || !kind.has_fixed_order(), "{} {pipeline:?}", kind.name);
                }
                let timeline = simulate(&schedule, &costs).unwrap();
                for (rank, peak) in timeline.peak_memory.iter().enumerate() {
                    let kept = f64::from(kind.min_in_flight(rank as u32, &pipeline)) / f64::from(pipeline.slices);
                    assert!(kept <= *peak, "{} {pipeline:?} {rank}: {kept} {peak}", kind.name);
                }
                let uneven = saving_unevenly(&costs);
                for (rank, peak) in (0..).zip(&simulate(&schedule, &uneven).unwrap().peak_memory) {
                    let least = least_saved(kind, &pipeline, rank, &uneven);
                    assert!(least <= *peak + 1e-9, "{} {pipeline:?} {rank}: {least} {peak}", kind.name);
                }
                let items = schedule.rows.iter().flatten().flat_map(|action| action.items());
                let whole = items.into_iter().all(|item| !matches!(item.kind, Kind::I | Kind::W));
                assert!(whole || kind.splits_backward, "{} {pipeline:?}", kind.name);
            }
        }
    }
}
