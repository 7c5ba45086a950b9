//! Random rows: any order of a pipeline's actions that can be run, backwards whole or split, now and then two in a pair.

use crate::random::Random;
use ir::schedule::{Action, Item, Kind, Schedule};
use scheduler::placement::Pipeline;
use std::collections::BTreeSet;

/// A random schedule of a pipeline.
pub(crate) fn schedule(r: &mut Random, pipeline: &Pipeline) -> Schedule {
    let mut rows: Vec<Vec<Action>> = vec![Vec::new(); pipeline.ranks as usize];
    let split = *r.pick(&[0, 50, 100]);
    let mut done: BTreeSet<Item> = BTreeSet::new();
    // What can run at once: first all F of stage 0.
    let mut ready: Vec<Item> = (0..pipeline.microbatches).map(|mb| Item::new(Kind::F, 0, mb)).collect();
    while !ready.is_empty() {
        let first = ready.remove(r.below(ready.len()));
        let rank = rank_of(pipeline, &first);
        let partner = ready.iter().position(|item| r.chance(20) && rank_of(pipeline, item) == rank);
        let second = partner.map(|place| ready.remove(place));
        rows[rank as usize].push(second.map_or(Action::One(first), |second| Action::Pair(first, second)));
        for item in [Some(first), second].into_iter().flatten() {
            done.insert(item);
            ready.extend(next(r, pipeline, &item, split));
        }
    }
    let work = 2 * pipeline.stages() * pipeline.microbatches;
    assert!(done.len() >= work as usize, "{} of {work} actions", done.len());
    for row in &mut rows {
        row.extend([Kind::R, Kind::N, Kind::U].map(|kind| Action::One(Item::step(kind))));
    }
    Schedule { name: "random".to_string(), rows }
}

fn rank_of(pipeline: &Pipeline, item: &Item) -> u32 {
    pipeline.rank(item.stage.unwrap_or(0), item.microbatch.unwrap_or(0))
}

/// Items that become ready after an item.
fn next(r: &mut Random, pipeline: &Pipeline, item: &Item, split: u64) -> Vec<Item> {
    let (stage, mb) = (item.stage.unwrap_or(0), item.microbatch.unwrap_or(0));
    let backward = if r.chance(split) { Kind::I } else { Kind::B };
    let below = |kind| stage.checked_sub(1).map(|stage| Item::new(kind, stage, mb));
    match item.kind {
        Kind::F if stage + 1 < pipeline.stages() => vec![Item::new(Kind::F, stage + 1, mb)],
        Kind::F => vec![Item::new(backward, stage, mb)],
        Kind::I => below(backward).into_iter().chain([Item::new(Kind::W, stage, mb)]).collect(),
        Kind::B => below(backward).into_iter().collect(),
        _ => Vec::new(),
    }
}
