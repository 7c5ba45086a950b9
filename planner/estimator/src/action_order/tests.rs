//! Simulations of dependency graphs, compared with timelines.

use super::super::pipeline::costs;
use super::super::stages::StageCost;
use super::*;
use cost::Seconds;
use scheduler::schedules::SCHEDULES;
use scheduler::simulate::{Slot, Timeline, simulate};

/// Pipelines of a schedule kind with all of its options.
fn pipelines(kind: &ScheduleKind) -> Vec<Pipeline> {
    let mut pipelines = Vec::new();
    for (ranks, chunks) in [(1, None), (2, None), (4, None), (7, None), (2, Some(3)), (4, Some(4))] {
        for microbatches in [1, 4, 9, 20] {
            let own = kind.pipeline(ranks, chunks, microbatches).into_iter();
            pipelines.extend(own.flat_map(|own| {
                let chosen = [(None, None), (Some(ranks + 1), None), (None, Some(3))];
                chosen.into_iter().filter_map(move |(group, slices)| kind.choose(own, group, slices).ok())
            }));
        }
    }
    pipelines
}

/// Stages, one of them slow, and the seconds between them.
fn stages(number: usize, slow: usize, hop: f64) -> (Vec<StageCost>, Vec<f64>) {
    let load = |stage: usize| {
        let seconds = |part: f64| Seconds { gemm: if stage == slow { 1.7 * part } else { part }, ..Seconds::default() };
        let saved = 10.0 + stage as f64 / 3.0;
        StageCost {
            f: seconds(1.0),
            i: seconds(1.3),
            w: seconds(0.8),
            saved,
            saved_for_w: saved / 3.0,
            ..StageCost::default()
        }
    };
    let hops = (1..number).map(|stage| hop * if stage == slow { 9.0 } else { 1.0 + (stage % 3) as f64 });
    ((0..number).map(load).collect(), hops.collect())
}

/// The most that is saved while F, I or B of the last stage runs.
fn saved_at_end(row: &[Slot], last: usize, costs: &StageCosts) -> f64 {
    let (mut held, mut most) = (0.0, 0.0_f64);
    for Slot { action, .. } in row {
        let memory = costs.memory(action);
        let is_last = |item: Item| item.stage == Some(last as u32) && item.kind != Kind::W;
        most = if action.items().any(is_last) { most.max(held + memory.takes) } else { most };
        held += memory.takes - memory.frees;
    }
    most
}

/// Micro-batches of the first stage that still run after the last backward of the others, and when most of these wait for W.
fn left(row: &[Slot], slices: f64) -> SmallVec<[OpenMicrobatches; 2]> {
    let items: Vec<Item> = row.iter().flat_map(|slot| slot.action.items()).collect();
    let Some(first) = items.iter().filter_map(|item| item.stage).min() else { return SmallVec::new() };
    let others = items.iter().rposition(|item| item.stage > Some(first) && matches!(item.kind, Kind::W | Kind::B));
    let Some(others) = others else { return SmallVec::new() };
    let number = |items: &[Item], kinds: &[Kind]| {
        items.iter().filter(|item| item.stage == Some(first) && kinds.contains(&item.kind)).count() as f64
    };
    let open = |end: usize| {
        let before = &items[..end];
        let [f, i, w] = [&[Kind::F][..], &[Kind::I, Kind::B], &[Kind::W, Kind::B]].map(|kinds| number(before, kinds));
        OpenMicrobatches { for_i: (f - i) / slices, for_w: (i - w) / slices }
    };
    let then = open(others + 1);
    let later = (others + 1..=items.len()).map(open).filter(|open| open.for_w > then.for_w);
    let most = later.reduce(|most, open| if open.for_w > most.for_w { open } else { most });
    [then].into_iter().chain(most).collect()
}

fn rank_of(timeline: &Timeline, rank: usize, costs: &StageCosts, hops: &[f64], slices: f64) -> Rank {
    let mut counts = ActionCounts::new(hops.len() + 1);
    timeline.rows[rank].iter().for_each(|slot| counts.add(&slot.action, 1.0 / slices));
    let own = RankActions::of(counts);
    Rank {
        offloaded: 0.0,
        messages: own.messages(hops),
        stages: own.stages,
        end: timeline.rows[rank].last().map_or(0.0, |slot| slot.end),
        idle: timeline.idle(rank),
        saved: timeline.peak_memory[rank],
        saved_at_end: saved_at_end(&timeline.rows[rank], hops.len(), costs),
        in_flight: own.in_flight,
        left: left(&timeline.rows[rank], slices),
        fuses: timeline.rows[rank].iter().any(|slot| slot.action.items().any(|item| item.kind == Kind::B)),
    }
}

fn path_of(timeline: &Timeline, stages: usize, hops: &[f64], slices: f64) -> CriticalPath {
    let places = timeline.critical_path();
    let rank = places.last().map_or(0, |place| place.rank as usize);
    let mut path = CriticalPath { rank, runs: vec![PerSection::default(); stages], hops: vec![0.0; stages - 1] };
    for (at, place) in places.iter().enumerate() {
        let slot = timeline.slot(*place);
        path.add(&slot.action, 1.0 / slices);
        if at > 0 && places[at - 1].rank != place.rank {
            path.hops[crossed(timeline.slot(places[at - 1]), slot, hops)] += 1.0 / slices;
        }
    }
    path
}

/// Index of the hop between two slots: an F waits for the F of the stage before, a gradient for that of the stage after.
fn crossed(from: &Slot, to: &Slot, seconds: &[f64]) -> usize {
    let crossed = |to: Item| {
        let (stage, is_forward) = (to.stage?, to.kind == Kind::F);
        let before = if is_forward { stage.checked_sub(1)? } else { stage + 1 };
        let made = |from: Item| {
            from.stage == Some(before)
                && (from.kind == Kind::F) == is_forward
                && (from.microbatch, from.slice) == (to.microbatch, to.slice)
        };
        from.action.items().any(made).then_some(stage.min(before) as usize)
    };
    to.action.items().filter_map(crossed).max_by(|&a, &b| seconds[a].total_cmp(&seconds[b])).unwrap()
}

/// All kinds except those that search; a cached order serves all costs.
#[test]
fn a_simulation_of_an_order_equals_its_timeline() {
    for kind in SCHEDULES.iter().filter(|kind| !kind.searches()) {
        let orders = OrderCache::default();
        for pipeline in pipelines(kind).iter().filter(|pipeline| kind.accepts(pipeline)) {
            let (number, slices) = (pipeline.stages() as usize, f64::from(pipeline.slices));
            for (slow, hop) in [(0, 0.0), (number / 2, 0.1), (number - 1, 0.25), (number, 1.5)] {
                let (loads, hops) = stages(number, slow, hop);
                let costs = costs(&loads, &hops, slices);
                let made = kind.make(&costs, pipeline);
                if made.is_err() && pipeline.group.is_some() {
                    continue; // A group may be too large.
                }
                let timeline = simulate(&made.unwrap(), &costs).unwrap();
                let ranks =
                    (0..timeline.rows.len()).map(|rank| rank_of(&timeline, rank, &costs, &hops, slices)).collect();
                let expected = (ranks, path_of(&timeline, number, &hops, slices));
                let order = orders.get(kind, pipeline, &costs).unwrap();
                assert_eq!(order.run(&costs, &hops, slices), expected, "{} {pipeline:?} {slow} {hop}", kind.name);
            }
        }
    }
}

#[test]
fn a_full_cache_is_emptied() {
    let kind = scheduler::schedules::find("1f1b").unwrap();
    let costs = StageCosts::uniform(4, 1.0, 1.0, 1.0, 0.0);
    let orders = OrderCache::default();
    let get = |microbatches| orders.get(kind, &kind.pipeline(4, None, microbatches).unwrap(), &costs).unwrap();
    let first = get(8);
    assert!(Arc::ptr_eq(&first, &get(8)));
    (0..CACHED as u32 / 8000 + 1).for_each(|more| drop(get(1000 + more))); // of 8,000 actions or more
    assert!(!Arc::ptr_eq(&first, &get(8)));
    assert!(orders.known.lock().unwrap().actions <= CACHED);
}
