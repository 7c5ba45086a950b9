//! Tests of ranks that are stuck while their processes live: all processes end, and say who waits for whom.

use super::processes::drivers;
use super::*;
use crate::testing::Faults;
use comm::looped::deal;
use std::time::{Duration, Instant};

/// Steps until a rank fails.
fn failure<P: Platform>(platform: P, built: &Built, program: &Program, options: &Options<'_>) -> RankFailure {
    let mut executor = Executor::load_on(platform, &built.model, program, options).unwrap();
    let failed = (1..100).find_map(|step| executor.step(input(built, step)).err());
    let Some(Error::RankFailure(failure)) = failed else { panic!("{failed:?}") };
    assert_eq!(executor.visit(|rank, _| rank), Err(Error::RankFailure(failure.clone())));
    failure
}

/// Rank 1 gets stuck in the third step, with which its process may take a second.
fn sticking() -> Options<'static> {
    Options {
        timeout: Duration::from_secs(1),
        faults: Faults { stuck: Some((1, 3)), ..Faults::default() },
        ..Options::default()
    }
}

/// The failure of rank 1 without the number of seconds.
fn told(failure: &RankFailure) -> String {
    assert!(failure.is_stuck && failure.rank == 1, "{failure}");
    let (before, after) = failure.why.split_once(" s in ").unwrap();
    let seconds: u64 = before.strip_prefix("it has been stuck for ").unwrap().parse().unwrap();
    assert!(seconds >= 1, "{failure}");
    after.to_string()
}

#[test]
fn a_rank_that_is_stuck_ends_the_others_of_its_process() {
    for is_async in [false, true] {
        let built = build(Mesh::new("m", &[("dp", 2)]));
        let began = Instant::now();
        let failure = failure(Threads::new(2, 1, Some(is_async)), &built, &program(&built), &sticking());
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let told = told(&failure);
        let is_named =
            told.starts_with("lF %y = einsum (instance 0, micro-batch 0) (step 3); rank 0 waits for rank 1 in ");
        assert!(is_named, "{told}");
    }
}

#[test]
fn a_rank_that_is_stuck_is_named_in_all_processes() {
    for (axes, count) in [(&[("dp", 2)][..], 2), (&[("pp", 2), ("dp", 2)], 2), (&[("pp", 2), ("dp", 2)], 4)] {
        let built = build(Mesh::new("m", axes));
        let devices = built.model.mesh.devices() as usize;
        let failures = drivers(deal(devices, count, None), 1, |_, threads| {
            failure(threads, &built, &program(&built), &sticking())
        });
        let process = count / devices;
        let place = format!("(instance 0, micro-batch 0) (step 3, process {process} on looped-{process})");
        for (number, failure) in failures.iter().enumerate() {
            let told = told(failure);
            assert!(told.starts_with("lF %y = einsum ") && told.contains(&place), "{told}");
            assert!(told.contains("; rank ") || number == process, "{told}");
        }
        let waits = failures.iter().filter(|failure| failure.why.contains(" waits for rank 1 "));
        assert!(waits.count() > 0, "{axes:?}: {failures:?}");
    }
}

#[test]
fn a_rank_that_is_slow_is_not_stuck() {
    let built = build(Mesh::new("m", &[("dp", 2)]));
    // Each step takes longer than the limit, as the first one has shown.
    let (timeout, slow) = (Duration::from_secs(1), Some((1, Duration::from_millis(1500))));
    let options = Options { timeout, faults: Faults { slow, ..Faults::default() }, ..Options::default() };
    let platform = Threads::new(2, 1, Some(false)).looped(deal(2, 2, None), 3, None);
    let mut executor = Executor::load_on(platform, &built.model, &program(&built), &options).unwrap();
    (1..5).for_each(|step| drop(executor.step(input(&built, step)).unwrap()));
    executor.finish();
}

/// Rank 1 never comes to the end of a copy of its first parameter.
fn hangs(rank: usize, kept: &mut RankState<'_>) {
    kept.copy(0, |_, _| {
        if rank == 1 {
            loop {
                std::thread::park();
            }
        }
    });
}

#[test]
fn a_copy_of_state_that_hangs_ends_all_processes() {
    for count in [1, 2] {
        let built = build(Mesh::new("m", &[("dp", 2)]));
        let failures = drivers(deal(2, count, None), 1, |_, threads| {
            let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
            let mut executor = Executor::load_on(threads, &built.model, &program(&built), &options).unwrap();
            drop(executor.step(input(&built, 1)).unwrap());
            let visited = executor.visit(hangs).and_then(|_| executor.share(Vec::new()).map(drop));
            let Err(Error::RankFailure(failure)) = visited else { panic!("{visited:?}") };
            failure
        });
        for failure in failures {
            let told = told(&failure);
            assert!(told.starts_with("a copy of ") && told.contains("(step 1"), "{told}");
        }
    }
}
