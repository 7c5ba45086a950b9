//! Tests of faults between processes: whoever is silent, cut off or slow, no rank waits forever and none reads what is wrong.

use super::looped::{Fault, FaultKind};
use super::rank_tests::{Processes, on_processes};
use super::*;
use std::time::Duration;

const LIMITS: Limits = Limits { silence: Duration::from_millis(400) };

/// Sums and messages round all ranks until one fails, or some are done; gives the failure of each.
fn rounds(processes: Processes, rounds: usize) -> Vec<Option<RankFailure>> {
    let ranks: usize = processes.ranks.iter().map(Vec::len).sum();
    let all: Vec<usize> = (0..ranks).collect();
    on_processes(processes, |number, rank| {
        let (group, sum) = rank.fit(&[DType::F32], &|rank| Exchange::sum(all.clone(), rank, 9000));
        let next = rank.end.channel_to((number + 1) % ranks, 0).unwrap();
        let before = rank.end.channel_from((number + ranks - 1) % ranks, 0).unwrap();
        rank.ready();
        let (tensor, sent, came) = (rank.room(9000), rank.room(3), rank.room(3));
        for round in 0..rounds {
            rank.set(tensor, (round + number) as f32);
            if let Err(failure) = rank.exchange(&group, &sum, &[tensor], &[tensor]) {
                return Some(failure);
            }
            let want = (ranks * round + ranks * (ranks - 1) / 2) as f32;
            assert!(rank.get(tensor).iter().all(|got| *got == want), "round {round} on rank {number}");
            rank.set(sent, number as f32);
            let numbers =
                [(&before, came), (&next, sent)].map(|(end, span)| (end, rank.end.start_message(end, span).number));
            for (end, number) in numbers {
                if let Err(failure) = rank.end.wait(&mut || rank.end.pending(end, number)) {
                    return Some(failure);
                }
            }
            assert_eq!(rank.get(came), [((number + ranks - 1) % ranks) as f32; 3]);
        }
        None
    })
}

fn processes(seed: u64, fault: Option<Fault>) -> Processes {
    Processes { ranks: vec![vec![0], vec![1, 2], vec![3]], seed, fault, limits: LIMITS, sums: Sums::Exact }
}

/// Processes none of which is to be given up, on however busy a machine.
fn patient(seed: u64, fault: Option<Fault>) -> Processes {
    Processes { limits: Limits::default(), ..processes(seed, fault) }
}

#[test]
fn many_rounds_in_any_order_of_arrival_are_right() {
    for seed in 0..20 {
        assert_eq!(rounds(patient(seed, None), 10), [None, None, None, None]);
    }
}

#[test]
fn sums_that_the_wire_adds_are_right_in_any_order_of_arrival() {
    for seed in 0..20 {
        assert_eq!(rounds(Processes { sums: Sums::Engine, ..patient(seed, None) }, 10), [None, None, None, None]);
    }
}

#[test]
fn a_process_that_is_silent_in_a_sum_is_named() {
    let fault = Fault { process: 1, after: 9, kind: FaultKind::Silence };
    let failures = rounds(Processes { sums: Sums::Engine, ..processes(1, Some(fault)) }, 100);
    let is_named = |failure: &RankFailure| failure.rank == 1 && failure.why.contains("process 1 on looped-1 has said");
    assert!([0, 3].iter().all(|&rank| failures[rank].as_ref().is_some_and(is_named)), "{failures:?}");
    assert!(failures.iter().all(Option::is_some));
}

#[test]
fn a_silent_process_is_named_by_those_that_wait() {
    let fault = Fault { process: 1, after: 9, kind: FaultKind::Silence };
    let failures = rounds(processes(1, Some(fault)), 100);
    for rank in [0, 3] {
        let failure = failures[rank].clone().unwrap();
        let said = "process 1 on looped-1 has said nothing for 0.4 s (step 0; here rank 3 waits for ";
        assert!(failure.rank == 1 && failure.why.starts_with(said), "{failure}");
    }
    assert!(failures.iter().all(Option::is_some));
}

#[test]
fn a_process_that_is_cut_off_ends_and_so_do_the_others() {
    let fault = Fault { process: 1, after: 9, kind: FaultKind::Cut };
    let failures = rounds(processes(2, Some(fault)), 100);
    let why = |rank: usize| failures[rank].clone().unwrap().why;
    assert!(why(1) == "the wire is cut" && why(2) == why(1), "{failures:?}");
    assert!(
        [0, 3].into_iter().all(|rank| why(rank).contains("process 1 on looped-1 has said nothing")),
        "{failures:?}"
    );
}

#[test]
fn a_failure_goes_on_from_each_process_that_hears_of_it() {
    let fault = Fault { process: 1, after: 0, kind: FaultKind::HeardBy(0) };
    let failures = on_processes(patient(5, Some(fault)), |number, rank| {
        let next = rank.end.channel_to((number + 1) % 4, 0).unwrap();
        let before = rank.end.channel_from((number + 3) % 4, 0).unwrap();
        rank.ready();
        let (sent, came) = (rank.room(3), rank.room(3));
        rank.end.start_message(&next, sent);
        let message = rank.end.start_message(&before, came).number;
        // Another rank may fail first.
        if let Err(failure) = rank.land(&before, message) {
            return failure;
        }
        if number == 1 {
            rank.end.fail("it has no memory".to_string());
        }
        // Nobody sends a second time.
        let message = rank.end.start_message(&before, came).number;
        rank.land(&before, message).unwrap_err()
    });
    let is_named =
        |failure: &RankFailure| failure.rank == 1 && failure.why == "it has no memory (step 0, process 1 on looped-1)";
    assert!(failures.iter().all(is_named), "{failures:#?}");
}

#[test]
fn processes_that_wait_for_each_other_are_told_so() {
    let failures = on_processes(processes(4, None), |number, rank| {
        let sum = (number < 2).then(|| rank.fit(&[DType::F32], &|rank| Exchange::sum(vec![0, 1], rank, 3)));
        let channel = rank.end.channel_from([1, 3, 0, 2][number], 5).unwrap();
        rank.ready();
        let place = rank.room(3);
        if let Some((group, sum)) = sum {
            rank.exchange(&group, &sum, &[place], &[place]).unwrap();
        }
        // Each receives what the next one never sends.
        let message = rank.end.start_message(&channel, place).number;
        rank.land(&channel, message).unwrap_err()
    });
    let why = "all processes wait for each other (step 0): process 0: rank 0 waits for rank 1 to send tag 5; process 1: rank 1 waits \
               for rank 3 to send tag 5; rank 2 waits for rank 0 to send tag 5; process 2: rank 3 waits for rank 2 to send tag 5";
    assert!(failures.iter().all(|failure| failure.why == why), "{failures:#?}");
}

#[test]
fn a_slow_process_is_waited_for() {
    let fault = Fault { process: 1, after: 9, kind: FaultKind::Slow(Duration::from_millis(5)) };
    assert_eq!(rounds(patient(3, Some(fault)), 10), [None, None, None, None]);
}
