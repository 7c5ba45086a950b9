//! Times, memory, idle reasons and deadlocks of small schedules.

use super::*;
use crate::schedules;
use ir::schedule::{Action, Kind};

fn item(text: &str) -> Item {
    let (head, slice) = text.split_once(':').map_or((text, None), |(head, slice)| (head, slice.parse().ok()));
    let at = head.find(char::is_alphabetic).unwrap();
    let kind = Kind::from_letter(head[at..].chars().next().unwrap()).unwrap();
    Item { kind, stage: head[..at].parse().ok(), microbatch: head[at + 1..].parse().ok(), slice }
}

fn action(text: &str) -> Action {
    match text.trim_matches(['(', ')']).split_once('|') {
        Some((a, b)) => Action::Pair(item(a), item(b)),
        None => Action::One(item(text)),
    }
}

/// Builds a schedule from one line per rank.
pub(super) fn rows(lines: &[&str]) -> Schedule {
    let rows = lines.iter().map(|line| line.split_whitespace().map(action).collect()).collect();
    Schedule { name: "test".into(), rows }
}

fn uniform(stages: u32) -> StageCosts {
    StageCosts::uniform(stages, 1.0, 1.0, 1.0, 0.0)
}

#[test]
fn starts_and_ends_follow_arrivals() {
    let costs = StageCosts::uniform(2, 2.0, 3.0, 1.0, 0.5);
    let time = simulate(&rows(&["0F0 0F1 0B0 0I1 0W1 R N U", "1F0 1B0 1F1 1I1 1W1 R N U"]), &costs).unwrap();
    let starts = |rank: usize| time.rows[rank].iter().map(|slot| slot.start).collect::<Vec<_>>();
    assert_eq!(starts(0), [0.0, 2.0, 9.0, 14.0, 17.0, 18.0, 18.0, 18.0]);
    assert_eq!(starts(1), [2.5, 4.5, 8.5, 10.5, 13.5, 14.5, 14.5, 14.5]);
    assert_eq!((time.makespan, time.span), (18.0, 18.0));
    assert_eq!(time.busy, [12.0, 12.0]);
    assert_eq!((time.bubble(), time.bubble_span()), (6.0 / 18.0, 6.0 / 18.0));
}

#[test]
fn gaps_have_reasons_and_add_up_to_the_makespan() {
    let mut costs = StageCosts::uniform(2, 2.0, 3.0, 1.0, 0.5);
    costs.limit = Some(vec![1.0, 9.0]);
    let time = simulate(&rows(&["0F0 0B0 0F1 0B1 R N U", "1F0 1B0 1F1 1B1 R N U"]), &costs).unwrap();
    let reasons =
        |rank: usize| time.rows[rank].iter().filter_map(|s| s.waited_on).map(|w| w.reason).collect::<Vec<_>>();
    assert_eq!(reasons(0), [Reason::Memory, Reason::Dependency]);
    assert_eq!(reasons(1), [Reason::Dependency, Reason::Dependency]);
    assert_eq!(time.idle(0), Idle { dependency: 6.5, latency: 0.5, memory: 7.0, barrier: 0.0 });
    for rank in 0..2 {
        let Idle { dependency, latency, memory, barrier } = time.idle(rank);
        assert_eq!(time.busy[rank] + dependency + latency + memory + barrier, time.makespan);
    }
}

#[test]
fn a_message_on_its_way_is_latency() {
    let costs = StageCosts::uniform(2, 1.0, 1.0, 1.0, 3.0);
    let time = simulate(&rows(&["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"]), &costs).unwrap();
    let wait = time.rows[0][2].waited_on.unwrap();
    assert_eq!(
        (wait.since, wait.reason, wait.place),
        (2.0, Reason::Dependency, ActionPosition { rank: 1, position: 2 })
    );
    let late =
        simulate(&rows(&["0F0 0F1 0F2 0F3 0F4 0F5 0F6 0B0", "1F0 1B0 1F1 1F2 1F3 1F4"]), &costs).unwrap().rows[0][7];
    assert_eq!((late.start, late.waited_on.map(|wait| wait.reason)), (10.0, Some(Reason::Latency)));
}

#[test]
fn the_critical_path_explains_the_makespan() {
    for (p, m, comm) in [(4, 8, 0.0), (4, 8, 1.0), (3, 5, 0.25), (1, 3, 1.0)] {
        let costs = StageCosts::uniform(p, 2.0, 3.0, 1.0, comm);
        for kind in ["gpipe", "1f1b"].map(|name| schedules::find(name).unwrap()) {
            let time = simulate(&kind.make(&costs, &kind.pipeline(p, None, m).unwrap()).unwrap(), &costs).unwrap();
            let path = time.critical_path();
            let work: f64 = path.iter().map(|&place| time.slot(place).end - time.slot(place).start).sum();
            let hops = path.windows(2).filter(|pair| pair[0].rank != pair[1].rank).count();
            assert_eq!(work + hops as f64 * comm, time.makespan, "{} p={p} m={m} c={comm}", kind.name);
            assert_eq!(time.slot(path[0]).start, 0.0);
        }
    }
}

#[test]
fn memory_is_freed_in_two_parts() {
    let mut costs = uniform(1);
    (costs.mem_f, costs.mem_i, costs.mem_w) = (vec![10.0], vec![7.0], vec![3.0]);
    let peak = |row| simulate(&rows(&[row]), &costs).unwrap().peak_memory[0];
    assert_eq!(peak("0F0 0I0 0F1 0W0 0I1 0W1"), 13.0);
    assert_eq!(peak("0F0 0F1 0I0 0W0 0I1 0W1"), 20.0);
    assert_eq!(peak("0F0 0B0 0F1 0B1"), 10.0);
}

#[test]
fn a_pair_takes_fb_and_needs_what_its_two_need() {
    let mut costs = StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0);
    costs.fb = Some(2.5);
    let time = simulate(&rows(&["0F0 0F1 (0F2|0B0) 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"]), &costs).unwrap();
    assert_eq!((time.rows[0][2].start, time.rows[0][2].end), (4.0, 6.5));
    assert_eq!(time.peak_memory, [3.0, 1.0]);
}

#[test]
fn slices_go_forward_ascending_and_backward_descending() {
    // Seq1F1B on one rank: the backward of slice 0 needs that of slice 1.
    let time = simulate(&rows(&["0F0:0 0F0:1 0B0:1 0B0:0"]), &uniform(1)).unwrap();
    assert_eq!(time.makespan, 6.0);
    let error = simulate(&rows(&["0F0:0 0F0:1 0B0:0 0B0:1"]), &uniform(1)).unwrap_err();
    assert!(error.to_string().contains("waits for 0B0:1 of rank 0"), "{error}");
}

#[test]
fn two_chains_share_the_ranks() {
    // Micro-batch 1 runs the stages on the ranks in reverse: rank 1 has a copy of stage 0.
    let mut costs = uniform(2);
    (costs.mem_f, costs.mem_i, costs.mem_w) = (vec![3.0, 10.0], vec![2.0, 4.0], vec![1.0, 6.0]);
    let time = simulate(&rows(&["0F0 1F1 1I1 1W1 0B0", "0F1 1F0 1B0 0B1"]), &costs).unwrap();
    assert_eq!((time.makespan, time.bubble()), (6.0, 0.0));
    assert_eq!(time.peak_memory, [13.0, 13.0]);
}

#[test]
fn each_hop_has_its_own_time_and_the_turn_of_a_v_has_none() {
    let costs = StageCosts { comm: vec![1.0, 100.0, 4.0], ..uniform(4) };
    let time = simulate(&rows(&["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"]), &costs).unwrap();
    let starts = |rank: usize| time.rows[rank].iter().map(|slot| slot.start).collect::<Vec<_>>();
    assert_eq!((starts(0), starts(1)), (vec![0.0, 8.0, 9.0, 20.0], vec![2.0, 3.0, 15.0, 17.0]));
}

#[test]
fn a_deadlock_shows_every_row() {
    let error = simulate(&rows(&["0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1F2 1B0 1F1 1B1 1B2"]), &uniform(2)).unwrap_err();
    let golden = "\
no rank can go on after 3 actions
rank 0: 0F0 0F1 [0B0]  waits for 1B0 of rank 1  <- rank 1 is at 1F2
rank 1: 1F0 [1F2]      waits for 0F2 of rank 0  <- rank 0 is at 0B0";
    assert_eq!(error.to_string(), golden);
    let error = simulate(&rows(&["0F0 0F1 0F2 0F3 0F4 0F5 0F6 0B0 R", "1F0 1F1 1F2 1F3 1F4 1F5 1F6"]), &uniform(2));
    let golden = "\
no rank can go on after 14 actions
rank 0: .. 0F1 0F2 0F3 0F4 0F5 0F6 [0B0]  waits for 1I0, which is in no row
rank 1: .. 1F1 1F2 1F3 1F4 1F5 1F6        done";
    assert_eq!(error.unwrap_err().to_string(), golden);
}

#[test]
fn nonsense_is_refused() {
    let error = |line| simulate(&rows(&[line]), &uniform(1)).unwrap_err().to_string();
    assert_eq!(error("0F0 0F0 0B0"), "rank 0, position 1: `0F0` appears twice");
    assert_eq!(error("0F0 0B0 0I0"), "rank 0, position 2: `0I0` appears twice");
    assert_eq!(error("F0 0B0"), "rank 0, position 0: `F0` names no stage or no micro-batch");
    assert_eq!(error("0F0 1F0 1B0 0B0"), "rank 0, position 1: `1F0` names a stage that has no costs");
    let spans = "the items name 1 stages x 4000000001 micro-batches x 1 slices, but are only 2";
    assert_eq!(error("0F4000000000 0B4000000000"), spans);
}
