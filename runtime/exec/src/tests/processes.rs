//! Tests of programs whose ranks are in several processes: the bits are those of one, wherever the ranks are.

use super::*;
use comm::looped::{deal, looped};
use comm::wire::Wire;
use comm::{Limits, Sums};
use std::thread;
use std::time::Duration;

/// The outcome of some steps: reports, gradients, parameters.
type Outcome = (Vec<StepOutput>, [BTreeMap<String, GlobalTensor>; 2]);

fn run<P: Platform>(platform: P, built: &Built, program: &Program, record: bool) -> Outcome {
    let options = Options { seed: 3, record, ..Options::default() };
    let mut executor = Executor::load_on(platform, &built.model, program, &options).unwrap();
    let outs = (1..5).map(|step| executor.step(input(built, step)).unwrap()).collect();
    let tensors = [executor.gradients().unwrap(), executor.export_params().unwrap()];
    executor.finish();
    (outs, tensors)
}

const MESHES: [&[(&str, u64)]; 4] =
    [&[("dp", 3)], &[("dp", 2), ("tp", 2)], &[("pp", 2), ("tp", 2)], &[("pp", 2), ("dp", 2), ("tp", 2)]];

#[test]
fn ranks_in_several_processes_give_the_same_bits() {
    for axes in MESHES {
        let built = build(Mesh::new("m", axes));
        let (program, devices) = (program(&built), built.model.mesh.devices() as usize);
        let threads = |is_async| Threads::new(devices, 1, Some(is_async));
        let one = run(threads(false), &built, &program, false);
        for seed in 0..12 {
            let processes = deal(devices, 2 + seed as usize % (devices - 1), (seed % 3 > 0).then_some(seed));
            let platform = threads(seed % 2 == 1).looped(processes.clone(), seed, None);
            assert_eq!(run(platform, &built, &program, seed % 4 == 3), one, "{axes:?} in {processes:?}, seed {seed}");
        }
    }
}

#[test]
fn sums_of_an_engine_differ_by_rounding() {
    let mut differ = 0;
    for axes in MESHES {
        let built = build(Mesh::new("m", axes));
        let (program, devices) = (program(&built), built.model.mesh.devices() as usize);
        let threads = |is_async| Threads::new(devices, 1, Some(is_async));
        let (outs, want) = run(threads(false), &built, &program, false);
        for seed in 0..8 {
            let processes = deal(devices, 2 + seed as usize % (devices - 1), (seed % 3 > 0).then_some(seed));
            let platform = threads(seed % 2 == 1).looped(processes.clone(), seed, None).sums(Sums::Engine);
            let (got, tensors) = run(platform, &built, &program, false);
            differ += usize::from((&got, &tensors) != (&outs, &want));
            let losses = |outs: &[StepOutput]| outs.iter().filter_map(|out| out.loss).collect::<Vec<_>>();
            close(&losses(&got), &losses(&outs), &format!("losses of {axes:?} in {processes:?}"));
            for (got, want) in tensors.iter().zip(&want) {
                for (name, tensor) in got {
                    close(&tensor.data, &want[name].data, &format!("`{name}` of {axes:?} in {processes:?}"));
                }
            }
        }
    }
    assert!(differ > 0, "the wire adds nothing");
}

/// Checks numbers that differ by rounding from others, relative to the largest.
fn close(got: &[f32], want: &[f32], what: &str) {
    let largest = want.iter().fold(0.0, |largest: f32, number| largest.max(number.abs()));
    let is_close = |(got, want): (&f32, &f32)| (got - want).abs() <= 1e-6 * largest;
    assert!(got.len() == want.len() && got.iter().zip(want).all(is_close), "{what}: {got:?} {want:?}");
}

/// Runs `f` on a thread for each process, with its platform.
pub(super) fn drivers<R: Send>(
    processes: Vec<Vec<usize>>,
    seed: u64,
    f: impl Fn(usize, Threads) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let f = &f;
        let drive = |(world, wire): (comm::wire::World, _)| {
            let wire: Box<dyn Wire> = Box::new(wire);
            scope.spawn(move || f(world.me, Threads::joined(world, wire, 1, Some(seed % 2 == 1))))
        };
        let threads: Vec<_> = looped(processes, seed, None).into_iter().map(drive).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn each_process_has_the_answers_of_all() {
    for (axes, seed) in MESHES.into_iter().zip(0..) {
        let built = build(Mesh::new("m", axes));
        let (program, devices) = (program(&built), built.model.mesh.devices() as usize);
        let one = run(Threads::new(devices, 1, Some(false)), &built, &program, false);
        for processes in [deal(devices, 2, None), deal(devices, devices, None)] {
            let answers = drivers(processes, seed, |_, threads| run(threads, &built, &program, false));
            assert!(answers.iter().all(|answer| *answer == one), "{axes:?}");
        }
    }
}

#[test]
fn words_and_bytes_reach_all_processes() {
    let built = build(Mesh::new("m", &[("dp", 3)]));
    let program = program(&built);
    let heard = drivers(deal(3, 3, None), 5, |me, threads| {
        let mut executor = Executor::load_on(threads, &built.model, &program, &Options::default()).unwrap();
        executor.give_word(if me == 1 { 7 } else { 0 }, me == 2);
        executor.step(input(&built, 1)).unwrap();
        let found = executor.visit(|rank, _| rank).unwrap();
        let shared = executor.share(vec![me as u8; me]).unwrap();
        executor.import_params(BTreeMap::from([("w".to_string(), vec![2.0; 21])])).unwrap();
        let answer = (executor.word(), found, shared, executor.export_params().unwrap()["w"].data[20]);
        executor.finish();
        answer
    });
    let all = vec![vec![], vec![1], vec![2, 2]];
    let want = |me| (7, vec![me], all.clone(), 2.0);
    assert_eq!(heard, [want(0), want(1), want(2)]);
}

#[test]
fn a_rank_that_panics_is_named_in_all_processes() {
    let built = build(Mesh::new("m", &[("pp", 2), ("dp", 2)]));
    let mut broken = program(&built);
    let class = &mut broken.classes[1];
    let is_receive = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::Recv { .. }, .. });
    let receive = class.instrs.iter().position(is_receive).unwrap();
    class.arena.as_mut().unwrap().at[receive][0] = 1 << 40;
    let failures = drivers(deal(4, 2, None), 1, |_, threads| {
        // A process may hear of the failure before it has loaded.
        let executor = Executor::load_on(threads, &built.model, &broken, &Options::default());
        executor.and_then(|mut executor| executor.step(input(&built, 1))).unwrap_err().to_string()
    });
    let first = &failures[0];
    assert!(first.contains("do not lie in an arena") && first.contains("(step 1, process 1 on looped-1)"), "{first}");
    assert!(failures.iter().all(|other| other == first), "{failures:?}");
}

#[test]
fn processes_with_different_programs_are_told_apart() {
    let built = build(Mesh::new("m", &[("dp", 2)]));
    let mut other = program(&built);
    other.name.push('x');
    let refused = drivers(deal(2, 2, None), 2, |me, threads| {
        let program = if me == 0 { program(&built) } else { other.clone() };
        Executor::load_on(threads, &built.model, &program, &Options::default()).err().unwrap().to_string()
    });
    assert!(refused.iter().all(|why| why.contains("on looped-")), "{refused:?}");
}

#[test]
fn who_waits_for_a_process_that_has_ended_fails() {
    let limits = Limits { silence: Duration::from_millis(500) };
    let outcomes = drivers(vec![vec![0], vec![1], vec![2]], 0, |me, threads| {
        let threads = threads.limits(limits);
        threads.start().unwrap();
        threads.share(vec![me as u8]).unwrap();
        if me == 1 {
            threads.finish();
            return Ok(());
        }
        threads.share(Vec::new()).map(drop).map_err(|failure| failure.why)
    });
    assert_eq!(outcomes[1], Ok(()));
    for me in [0, 2] {
        let why = outcomes[me].as_ref().unwrap_err();
        assert!(why.contains("process 1 on looped-1 has ended, and this one waits for it"), "{why}");
    }
}

#[test]
fn who_cannot_go_on_says_why() {
    let outcomes = drivers(vec![vec![0], vec![1], vec![2]], 0, |me, threads| {
        threads.start().unwrap();
        // Others may hear of the failure while they wait for each other.
        let first = threads.share(Vec::new());
        if me == 1 {
            first.unwrap();
            threads.note_cause("no space left");
            threads.note_cause("what follows from it");
            return Ok(());
        }
        first.and_then(|_| threads.share(Vec::new())).map(drop).map_err(|failure| failure.why)
    });
    for me in [0, 2] {
        let why = outcomes[me].as_ref().unwrap_err();
        assert!(why.ends_with("process 1 on looped-1 cannot go on: no space left"), "{why}");
    }
}

#[test]
fn what_processes_share_comes_in_parts() {
    // One byte more than two parts.
    let long = 2 * (1 << 26) + 1;
    let shared = drivers(vec![vec![0], vec![1]], 0, |me, threads| {
        threads.start().unwrap();
        let own = if me == 0 { (0..long).map(|at| (at % 251) as u8).collect() } else { vec![9] };
        let all = threads.share(own).unwrap();
        threads.finish();
        all
    });
    for all in shared {
        assert!(all[0].len() == long && all[0].iter().zip(0..).all(|(byte, at)| *byte == (at % 251) as u8));
        assert_eq!(all[1], [9]);
    }
}
