//! Orders under blocking sends, compared with the cycles of a graph.

use super::*;
use crate::actions::{split_backward, with_step_end};
use crate::placement::{Pipeline, Placement};
use crate::schedules::find;
use crate::simulate::tests::rows;
use ir::schedule::{Action, Item, Kind};
use petgraph::algo::is_cyclic_directed;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::HashMap;

fn uniform(stages: u32) -> StageCosts {
    StageCosts::uniform(stages, 1.0, 1.0, 1.0, 0.0)
}

/// A message between two stages: whether it is a gradient, its stage, micro-batch and slice.
type Message = (bool, u32, u32, Option<u32>);

fn makes(item: Item) -> Option<Message> {
    let back = match item.kind {
        Kind::F => false,
        Kind::I | Kind::B => true,
        _ => return None,
    };
    Some((back, item.stage?, item.microbatch?, item.slice))
}

fn takes(item: Item) -> Option<Message> {
    let (back, stage, microbatch, slice) = makes(item)?;
    Some((back, if back { stage + 1 } else { stage.checked_sub(1)? }, microbatch, slice))
}

/// Returns whether the order can run: there is no cycle among starts and ends of batches and actions.
fn acyclic(schedule: &Schedule, sends: Sends) -> bool {
    let all = || schedule.rows.iter().enumerate().flat_map(|(rank, row)| row.iter().map(move |action| (rank, action)));
    let place = |side: fn(Item) -> Option<Message>| -> HashMap<Message, usize> {
        all().flat_map(|(rank, action)| action.items().filter_map(move |item| Some((side(item)?, rank)))).collect()
    };
    let (makers, takers) = (place(makes), place(takes));
    let crosses = |message: &Message| makers.get(message).zip(takers.get(message)).is_some_and(|(a, b)| a != b);
    let mut graph: DiGraph<(), ()> = DiGraph::new();
    let mut ends: HashMap<Message, Vec<(NodeIndex, NodeIndex)>> = HashMap::new();
    for row in &schedule.rows {
        let mut last = graph.add_node(());
        let mut batch = |messages: Vec<Message>, graph: &mut DiGraph<(), ()>| {
            let (start, end) = (graph.add_node(()), graph.add_node(()));
            graph.add_edge(last, start, ());
            graph.add_edge(start, end, ());
            last = end;
            messages.into_iter().for_each(|message| ends.entry(message).or_default().push((start, end)));
        };
        let mut sent: Vec<Message> = Vec::new();
        for action in row {
            let of =
                |side: fn(Item) -> Option<Message>| action.items().filter_map(side).filter(crosses).collect::<Vec<_>>();
            let between: Vec<Message> = sent.drain(..).chain(of(takes)).collect();
            match sends {
                Sends::Batched => batch(between, &mut graph),
                _ => between.into_iter().for_each(|message| batch(vec![message], &mut graph)),
            }
            batch(Vec::new(), &mut graph);
            sent = of(makes);
        }
        match sends {
            Sends::Batched => batch(sent, &mut graph),
            _ => sent.into_iter().for_each(|message| batch(vec![message], &mut graph)),
        }
    }
    for of_message in ends.values() {
        let [(start, end), (other_start, other_end)] = of_message[..] else { panic!("a message has two ends") };
        graph.add_edge(start, other_end, ());
        graph.add_edge(other_start, end, ());
    }
    !is_cyclic_directed(&graph)
}

/// Returns a random order that runs with asynchronous sends: each next action is any whose inputs have been computed.
fn random_order(pipeline: &Pipeline, seed: u64) -> Schedule {
    let mut dice = seed;
    let mut roll = |sides: usize| {
        dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (dice >> 33) as usize % sides
    };
    let (stages, m) = (pipeline.stages(), pipeline.microbatches);
    let mut done: Vec<Vec<u32>> = vec![vec![0; m as usize]; stages as usize]; // 0, F 1, B 2
    let mut work = vec![Vec::new(); pipeline.ranks as usize];
    loop {
        let at = |s: u32, j: u32| done[s as usize][j as usize];
        let ready = |s: u32, j: u32| match at(s, j) {
            0 => s == 0 || at(s - 1, j) >= 1,
            1 => (s + 1 == stages && at(s, j) == 1) || (s + 1 < stages && at(s + 1, j) == 2),
            _ => false,
        };
        let cells: Vec<(u32, u32)> =
            (0..stages).flat_map(|s| (0..m).map(move |j| (s, j))).filter(|&(s, j)| ready(s, j)).collect();
        if cells.is_empty() {
            return Schedule { name: "random".into(), rows: work.into_iter().map(with_step_end).collect() };
        }
        let (s, j) = cells[roll(cells.len())];
        let kind = if at(s, j) == 0 { Kind::F } else { Kind::B };
        work[pipeline.rank(s, j) as usize].push(Action::One(Item::new(kind, s, j)));
        done[s as usize][j as usize] += 1;
    }
}

#[test]
fn an_order_can_be_run_iff_its_batches_have_no_cycle() {
    let (mut runs, mut stuck) = ([0, 0], [0, 0]);
    for placement in Placement::ALL {
        for (ranks, m, seed) in
            [(2, 1), (2, 2), (2, 3), (3, 2), (4, 3)].into_iter().flat_map(|(p, m)| (0..40).map(move |s| (p, m, s)))
        {
            let pipeline = Pipeline::new(placement, ranks, m);
            let costs = uniform(pipeline.stages());
            let schedule = random_order(&pipeline, seed);
            assert_eq!(can_run(&schedule, &costs, Sends::Async), Ok(()));
            for (at, sends) in [Sends::Batched, Sends::Blocking].into_iter().enumerate() {
                let can = can_run(&schedule, &costs, sends).is_ok();
                assert_eq!(can, acyclic(&schedule, sends), "{sends} {schedule}");
                *(if can { &mut runs[at] } else { &mut stuck[at] }) += 1;
            }
        }
    }
    assert!(runs.iter().chain(&stuck).all(|&count| count > 100), "{runs:?} {stuck:?}");
    assert!(runs[0] > runs[1], "batches run more orders: {runs:?}");
}

#[test]
fn one_forward_one_backward_needs_batches_and_gpipe_does_not() {
    for (name, sends, can) in
        [("gpipe", Sends::Blocking, true), ("1f1b", Sends::Batched, true), ("1f1b", Sends::Blocking, false)]
    {
        let kind = find(name).unwrap();
        for (p, m) in [(2, 4), (4, 8), (5, 3)] {
            let costs = uniform(p);
            let fused = kind.make(&costs, &kind.pipeline(p, None, m).unwrap()).unwrap();
            for schedule in [split_backward(fused.clone()), fused] {
                assert_eq!(can_run(&schedule, &costs, sends).is_ok(), can, "{name} {sends} p={p} m={m}");
            }
        }
    }
}

#[test]
fn a_deadlock_shows_who_sends_to_whom() {
    let schedule = rows(&["0F0 0F1 0B0 0F2 0B1 0B2 R", "1F0 1B0 1F1 1B1 1F2 1B2 R"]);
    let golden = "\
no rank can go on after 2 actions
rank 0: 0F0 [0F1]  sends 0F1 to rank 1  <- rank 1 is at 1B0
rank 1: 1F0 [1B0]  sends 1B0 to rank 0  <- rank 0 is at 0F1";
    assert_eq!(can_run(&schedule, &uniform(2), Sends::Blocking).unwrap_err().to_string(), golden);
    assert_eq!(can_run(&schedule, &uniform(2), Sends::Batched), Ok(()));

    let crossed = rows(&["0F0 0F1 0B0 0B1", "1F0 1F1 1B1 1B0"]);
    let golden = "\
no rank can go on after 4 actions
rank 0: 0F0 0F1 [0B0]  waits for 1B0 of rank 1  <- rank 1 is at 1B1
rank 1: 1F0 1F1 [1B1]  sends 1B1 to rank 0      <- rank 0 is at 0B0";
    assert_eq!(can_run(&crossed, &uniform(2), Sends::Async), Ok(()));
    assert_eq!(can_run(&crossed, &uniform(2), Sends::Batched).unwrap_err().to_string(), golden);
}

#[test]
fn what_cannot_be_run_at_all_is_said_as_ever() {
    let error = can_run(&rows(&["0F0 0B0", "1F0"]), &uniform(2), Sends::Batched).unwrap_err();
    assert!(error.to_string().contains("waits for 1I0, which is in no row"), "{error}");
}
