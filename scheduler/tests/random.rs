//! Random pipelines, costs and limits: every kind that makes an order makes a right one, and all figures agree.

use ir::schedule::{Action, Item, Kind, Schedule};
use meshwright_scheduler::actions::split_backward;
use meshwright_scheduler::bound::{Bound, lower_bound};
use meshwright_scheduler::check::{Invariant, check_pipeline};
use meshwright_scheduler::costs::StageCosts;
use meshwright_scheduler::limits::{first_below, least_limit};
use meshwright_scheduler::placement::{Pipeline, Placement};
use meshwright_scheduler::schedules::{Chunks, SCHEDULES};
use meshwright_scheduler::simulate::{Timeline, simulate};

/// A random number generator that is always the same (Knuth, MMIX).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32 % sides
    }

    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + self.roll(most - least + 1)
    }

    /// Times that are all the same, or all different.
    fn numbers(&mut self, count: u32, least: u32, most: u32) -> Vec<f64> {
        let (same, first) = (self.roll(2) == 0, f64::from(self.between(least, most)) / 8.0);
        (0..count).map(|_| if same { first } else { f64::from(self.between(least, most)) / 8.0 }).collect()
    }

    fn costs(&mut self, stages: u32) -> StageCosts {
        let (f, i, w) = (self.numbers(stages, 1, 80), self.numbers(stages, 1, 80), self.numbers(stages, 0, 80));
        let comm = self.numbers(stages - 1, 0, 40);
        let fb = (self.roll(4) == 0).then(|| f64::from(self.between(40, 240)) / 8.0);
        let (mem_i, mem_w) = (self.numbers(stages, 0, 16), self.numbers(stages, 1, 16));
        let mem_f = mem_i.iter().zip(&mem_w).map(|(i, w)| i + w).collect();
        let limit = None;
        StageCosts { unit: "s".into(), f, i, w, comm, fb, mem_f, mem_i, mem_w, limit }
    }
}

#[test]
fn a_thousand_random_pipelines() {
    let mut dice = Dice(7);
    let mut made = vec![0; SCHEDULES.len()];
    for case in 0..1000 {
        let (ranks, microbatches, chunks) = (dice.between(2, 8), dice.between(1, 32), dice.between(1, 4));
        let at = case % SCHEDULES.len();
        let kind = &SCHEDULES[at];
        let chunks = match kind.chunks {
            Chunks::Just(number) => number,
            Chunks::From(least) => chunks.max(least),
        };
        // Two chains want even numbers, and two micro-batches a rank or more; so have half of the others.
        let even = kind.placement == Placement::Bidirectional || dice.roll(2) == 0;
        let ranks = if even { 2 * ranks.div_ceil(2) } else { ranks };
        let microbatches = if even { 2 * dice.between(ranks, 16) } else { microbatches };
        // A search that does not prove its best order takes its whole budget: small problems are mostly proved.
        let searched = kind.name == "optimal";
        let [ranks, microbatches, chunks] =
            if searched { [ranks.min(4), microbatches.min(6), 1] } else { [ranks, microbatches, chunks] };
        let pipeline = kind.pipeline(ranks, Some(chunks), microbatches).unwrap();
        let mut costs = dice.costs(pipeline.stages());
        // `optimal.rs` compares small problems with pairs with all orders.
        let many = searched && pipeline.stages() * pipeline.microbatches > 16;
        costs.fb = costs.fb.filter(|_| !many);
        let least = least_limit(&costs, &pipeline);
        costs.limit = match dice.roll(3) {
            0 => None,
            1 => Some(least.iter().map(|least| least * f64::from(dice.between(4, 12)) / 8.0).collect()),
            _ => Some(least.iter().map(|least| least * f64::from(dice.between(8, 64)) / 8.0).collect()),
        };
        limits_are_exact(&costs, &pipeline, &least);
        let Ok(schedule) = kind.make(&costs, &pipeline) else { continue };
        made[at] += 1;
        let told = format!("case {case}: {} {pipeline:?} {costs:?}", kind.name);
        let known =
            Known { costs: &costs, pipeline: &pipeline, least: &least, bound: lower_bound(&costs, &pipeline, false) };
        for schedule in [split_backward(schedule.clone()), schedule] {
            right(&schedule, &known, &told);
        }
    }
    let never: Vec<&str> =
        SCHEDULES.iter().zip(&made).filter(|(_, made)| **made == 0).map(|(kind, _)| kind.name).collect();
    assert!(never.is_empty(), "{never:?} made no order at all");
}

/// One micro-batch after the other holds the least limit; below it on some rank, that rank is named.
fn limits_are_exact(costs: &StageCosts, pipeline: &Pipeline, least: &[f64]) {
    let limits = |limit: Option<Vec<f64>>| StageCosts { limit, ..costs.clone() };
    let one_by_one = one_by_one(pipeline);
    assert_eq!(check_pipeline(&one_by_one, &limits(Some(least.to_vec())), pipeline), vec![]);
    assert_eq!(simulate(&one_by_one, costs).unwrap().peak_memory, least);
    if let Some(rank) = first_below(least, costs.limit.as_deref()) {
        let broken = check_pipeline(&one_by_one, costs, pipeline);
        assert!(broken.iter().any(|violation| violation.invariant == Invariant::Memory && violation.rank == rank));
    }
}

/// Each micro-batch, slice by slice, through all stages and back before the next.
fn one_by_one(pipeline: &Pipeline) -> Schedule {
    let mut rows = vec![Vec::new(); pipeline.ranks as usize];
    let stages = 0..pipeline.stages();
    let slices = 0..pipeline.slices;
    for microbatch in 0..pipeline.microbatches {
        let mut add = |kind, stage, slice| {
            let slice = (pipeline.slices > 1).then_some(slice);
            let item = Item { slice, ..Item::new(kind, stage, microbatch) };
            rows[pipeline.rank(stage, microbatch) as usize].push(Action::One(item));
        };
        slices.clone().for_each(|slice| stages.clone().for_each(|stage| add(Kind::F, stage, slice)));
        slices.clone().rev().for_each(|slice| stages.clone().rev().for_each(|stage| add(Kind::B, stage, slice)));
    }
    rows.iter_mut().for_each(|row| row.extend([Kind::R, Kind::N, Kind::U].map(|kind| Action::One(Item::step(kind)))));
    Schedule { name: "one by one".into(), rows }
}

/// Case of a test of all its orders, and known bounds.
struct Known<'a> {
    costs: &'a StageCosts,
    pipeline: &'a Pipeline,
    least: &'a [f64],
    bound: Bound,
}

/// The checker finds nothing but broken limits; figures agree with a recount.
fn right(schedule: &Schedule, &Known { costs, pipeline, least, bound }: &Known, told: &str) {
    let violations = check_pipeline(schedule, costs, pipeline);
    assert!(violations.iter().all(|violation| violation.invariant == Invariant::Memory), "{told}: {violations:?}");
    let time = simulate(schedule, costs).unwrap_or_else(|why| panic!("{told}: {why}"));
    let fits = |(peak, limit): (&f64, &f64)| *peak <= limit * (1.0 + 1e-9);
    let within = costs.limit.as_ref().is_none_or(|limit| time.peak_memory.iter().zip(limit).all(fits));
    assert_eq!(violations.is_empty(), within, "{told}: {violations:?} {:?}", time.peak_memory);
    if first_below(least, costs.limit.as_deref()).is_some() {
        assert!(!within, "{told}: below the least limit {least:?}");
    }

    assert!(bound.makespan <= time.makespan * (1.0 + 1e-12), "{told}: {} > {}", bound.makespan, time.makespan);
    assert!(bound.span <= time.span * (1.0 + 1e-12), "{told}: {} > {}", bound.span, time.span);
    for (rank, row) in time.rows.iter().enumerate() {
        let work: f64 = schedule.rows[rank].iter().map(|action| costs.seconds(action)).sum();
        close(time.busy[rank], work, told);
        let idle = time.idle(rank);
        close(work + idle.dependency + idle.latency + idle.memory + idle.barrier, time.makespan, told);
        close(time.peak_memory[rank], peak(&schedule.rows[rank], costs), told);
        assert!(row.windows(2).all(|pair| pair[0].end <= pair[1].start), "{told}: rank {rank} does two things at once");
    }
    arrivals(&time, costs, pipeline, told);
    critical_path(&time, costs, told);
}

/// From time 0 to the makespan, with no gaps but hops.
fn critical_path(time: &Timeline, costs: &StageCosts, told: &str) {
    let path = time.critical_path();
    assert_eq!(time.slot(path[0]).start, 0.0, "{told}");
    assert_eq!(time.slot(path[path.len() - 1]).end, time.makespan, "{told}");
    for pair in path.windows(2) {
        let gap = time.slot(pair[1]).start - time.slot(pair[0]).end;
        let hops = costs.comm.iter().filter(|_| pair[0].rank != pair[1].rank);
        let explained = hops.chain(&[0.0]).any(|hop| (gap - hop).abs() < 1e-9);
        assert!(explained, "{told}: {gap} seconds of the critical path");
    }
}

fn close(a: f64, b: f64, told: &str) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{told}: {a} is not {b}");
}

/// The most that a row holds: what all that has started took, less what all that ended before it freed.
fn peak(row: &[Action], costs: &StageCosts) -> f64 {
    let sum = |action: &Action, kinds: &[Kind], of: &[f64]| -> f64 {
        let items = action.items().filter(|item| kinds.contains(&item.kind));
        items.filter_map(|item| item.stage).map(|stage| of[stage as usize]).sum()
    };
    let (mut taken, mut freed, mut most) = (0.0, 0.0, 0.0_f64);
    for action in row {
        taken += sum(action, &[Kind::F], &costs.mem_f);
        most = most.max(taken - freed);
        freed += sum(action, &[Kind::I, Kind::B], &costs.mem_i) + sum(action, &[Kind::W, Kind::B], &costs.mem_w);
    }
    most
}

/// Nothing starts before what it needs from the next stage has ended and crossed.
fn arrivals(time: &Timeline, costs: &StageCosts, pipeline: &Pipeline, told: &str) {
    let key = |item: Item| Some((item.kind == Kind::F, item.stage?, item.microbatch?, item.slice));
    let slots = || time.rows.iter().flatten().flat_map(|slot| slot.action.items().map(move |item| (item, slot)));
    let made = slots().filter(|(item, _)| item.kind != Kind::W);
    let ends: std::collections::HashMap<_, _> = made.filter_map(|(item, slot)| Some((key(item)?, slot.end))).collect();
    for (item, slot) in slots().filter(|(item, _)| matches!(item.kind, Kind::F | Kind::I | Kind::B)) {
        let (forward, stage, microbatch, slice) = key(item).unwrap();
        let from = if forward { stage.checked_sub(1) } else { Some(stage + 1).filter(|&s| s < pipeline.stages()) };
        let Some(from) = from else { continue };
        let local = pipeline.rank(stage, microbatch) == pipeline.rank(from, microbatch);
        let hop = if local { 0.0 } else { costs.comm[stage.min(from) as usize] };
        assert!(ends[&(forward, from, microbatch, slice)] + hop <= slot.start, "{told}: {item} starts too early");
    }
}
