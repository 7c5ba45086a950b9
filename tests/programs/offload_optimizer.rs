//! Optimizer states in host memory between updates: the same numbers and checkpoints, smaller arenas, and programs with one copy broken.

use crate::meshes::training::{Recipe, SEED, compiled, inputs, models};
use crate::on_gpu;
use cost::PROGRAM;
use ir::arena::{Arena, Resident, Role};
use ir::ids::{Reg, Token};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::program::{BodyKind, Class, Instr, Program, Transfer};
use ir::text::{File, parse, print};
use ir::verify;
use meshwright::runtime::exec::{Executor, Options, Platform, SharedGpu, Threads};
use std::collections::{BTreeMap, BTreeSet};

/// Layouts with sharded and replicated states, on one rank and in stages.
const MESHES: [&str; 6] = [
    "",
    "dp=2,zero=1",
    "dp=4,zero=3,shard=2",
    "tp=2,pp=2,schedule=zb-h1,zero=1",
    "dp=2,pp=2,schedule=interleaved-1f1b,offload=all",
    "cp=2,dp=2,zero=2,schedule=gpipe",
];

fn recipe(family: usize, precision: &'static str, steps: u64) -> Recipe {
    Recipe { config: models()[family].clone(), optimizer: Optimizer::default(), lr: 1e-3, steps, precision }
}

fn program(file: &File) -> &Program {
    file.program.as_ref().expect("a program")
}

fn arenas(file: &File) -> impl Iterator<Item = &Arena> {
    program(file).classes.iter().map(|class| class.arena.as_ref().expect("an arena"))
}

/// The file with all states on the device, and that with states in host memory.
fn both(recipe: &Recipe, mesh: &str, sequences: u64) -> [File; 2] {
    let meshes = ["false", "true"].map(|away| format!("{mesh},offload_optimizer={away}"));
    meshes.map(|mesh| compiled(recipe, mesh.trim_start_matches(','), sequences))
}

fn threads(file: &File) -> Threads {
    Threads::new(file.model.mesh.devices() as usize, 1, None)
}

fn loaded<P: Platform>(platform: P, file: &File) -> Executor<P> {
    let options = Options { seed: SEED, poison: true, ..Options::default() };
    Executor::load_on(platform, &file.model, program(file), &options).expect("it loads")
}

/// Reports of some steps, and then all parameters and states.
fn trained<P: Platform>(platform: P, file: &File, recipe: &Recipe) -> (Vec<String>, BTreeMap<String, Vec<f32>>) {
    let mut executor = loaded(platform, file);
    let steps = inputs(&file.model, recipe, "").into_iter();
    let reports = steps.map(|step| format!("{:?}", executor.step(step).expect("it runs"))).collect();
    let state = executor.export_state().expect("its state");
    (reports, state.into_iter().map(|(name, whole)| (name, whole.data)).collect())
}

#[test]
fn every_layout_gives_the_same_numbers() {
    for (number, mesh) in MESHES.into_iter().enumerate() {
        let recipe = recipe(number % 2, "f32", 3);
        let [here, away] = both(&recipe, mesh, 4);
        assert!(arenas(&away).all(|arena| arena.host > 0), "{mesh}");
        assert_eq!(trained(threads(&away), &away, &recipe), trained(threads(&here), &here, &recipe), "{mesh}");
    }
}

/// Masters are states of the update too; records of delayed scaling are read by forwards, and stay.
#[test]
fn narrow_formats_and_other_optimizers_give_the_same_numbers() {
    let sgd = Optimizer {
        kind: OptimizerKind::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 },
        ..Optimizer::default()
    };
    let muon = Optimizer { kind: OptimizerKind::muon(), ..Optimizer::default() };
    for (precision, optimizer) in
        [("bf16", Optimizer::default()), ("fp8-delayed", Optimizer::default()), ("f32", muon), ("bf16", sgd)]
    {
        let recipe = Recipe { optimizer, ..recipe(0, precision, 2) };
        let [here, away] = both(&recipe, "dp=2,zero=1,pp=2", 4);
        assert_eq!(trained(threads(&away), &away, &recipe), trained(threads(&here), &here, &recipe), "{recipe:?}");
        let masters = |it: &&Resident| it.role == Role::State("master".to_string());
        let all = || arenas(&away).flat_map(|arena| &arena.residents);
        assert_eq!(all().any(|it| masters(&it)), precision != "f32", "{precision}");
        assert!(all().filter(masters).all(|it| it.host), "{precision}");
        let records = all().filter(|it| ir::graph::is_record(&away.model.params[it.param].name));
        assert!(records.map(|it| it.host).all(|host| !host), "{precision}");
    }
}

/// Elements of the states of AdamW are those of the parameters, twice.
#[test]
fn the_host_holds_the_states_and_the_device_does_not() {
    for mesh in ["", "dp=2,zero=1", "pp=2,schedule=gpipe"] {
        let [here, away] = both(&recipe(0, "f32", 1), mesh, 4);
        for (here, away) in arenas(&here).zip(arenas(&away)) {
            let at = |arena: &Arena, host: bool| -> BTreeSet<(u32, u32, Role)> {
                let all = arena.residents.iter().filter(|it| it.host == host);
                all.map(|it| (it.param.as_u32(), it.instance, it.role.clone())).collect()
            };
            let states: BTreeSet<_> =
                at(here, false).into_iter().filter(|(.., role)| matches!(role, Role::State(_))).collect();
            assert_eq!(at(away, true), states, "{mesh}");
            assert!(at(away, false).is_disjoint(&states) && here.host == 0, "{mesh}");
            let last = |arena: &Arena| arena.residents.iter().filter(|it| !it.host).map(|it| it.at).max();
            assert!(last(away) < last(here) && away.bytes < here.bytes, "{mesh}: {} and {}", away.bytes, here.bytes);
        }
    }
}

#[test]
fn a_run_goes_on_from_states_that_were_elsewhere() {
    let recipe = recipe(0, "bf16", 4);
    let [here, away] = both(&recipe, "dp=2,zero=2,pp=2", 4);
    let steps = inputs(&here.model, &recipe, "");
    let run = |files: [&File; 2]| {
        let mut state = BTreeMap::new();
        let mut reports = Vec::new();
        for (file, steps) in files.into_iter().zip(steps.chunks(2)) {
            let mut executor = loaded(threads(file), file);
            executor.import_params(std::mem::take(&mut state)).expect("it takes them");
            reports.extend(steps.iter().map(|step| executor.step(step.clone()).expect("it runs")));
            state = executor
                .export_state()
                .expect("its state")
                .into_iter()
                .map(|(name, whole)| (name, whole.data))
                .collect();
        }
        (format!("{reports:?}"), state)
    };
    let want = run([&here, &here]);
    assert_eq!(run([&away, &here]), want);
    assert_eq!(run([&here, &away]), want);
}

#[test]
fn the_text_of_a_program_with_states_on_the_host_comes_back() {
    let [_, file] = both(&recipe(0, "f32", 1), "pp=2,schedule=gpipe", 4);
    let text = print(&file);
    for part in [
        " offload_states {\n",
        "= start load_states(@layer.U, call=",
        "= start store_states(%layer.0.U, call=",
        " m host ",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let parsed = parse(&text).unwrap_or_else(|why| panic!("{}", why.render("the program", &text)));
    assert_eq!(print(&parsed), text);
    verify::program::check(&parsed.model, program(&parsed), None).expect("it is right");
}

#[test]
fn copies_of_states_have_lines_of_their_own_in_traces() {
    let recipe = recipe(0, "f32", 1);
    let [_, file] = both(&recipe, "pp=2,schedule=gpipe", 4);
    let predicted = simulator::step(&file.model, program(&file), &PROGRAM).expect("it runs");
    let options = Options { seed: SEED, record: true, ..Options::default() };
    let mut executor = Executor::load_on(threads(&file), &file.model, program(&file), &options).expect("it loads");
    executor.set_recording(true);
    executor.step(inputs(&file.model, &recipe, "")[0].clone()).expect("it runs");
    let measured = executor.trace(&file.model, program(&file));
    let runs = program(&file).classes.iter().flat_map(|class| &class.instrs);
    let is_update =
        |instr: &&Instr| matches!(instr, Instr::Run { body, .. } if program(&file).bodies[*body].kind == BodyKind::U);
    let updates = runs.filter(is_update).count();
    for trace in [predicted, measured] {
        for line in ["to host memory", "from host memory"] {
            let tracks = trace.tracks.iter().filter(|track| track.stream.label() == line);
            let events: Vec<_> = tracks.flat_map(|track| &track.events).collect();
            assert_eq!(events.len(), updates, "{line}");
            assert!(events.iter().all(|event| trace.sites[event.site as usize].bytes > 0), "{line}");
        }
    }
}

/// A change of the first class of a program, and the invariants that it breaks.
type Mutation = (&'static str, fn(&mut Class), &'static [&'static str]);

const MUTATIONS: [Mutation; 9] = [
    ("an update runs without its states", without_states, &["states"]),
    ("an update reads the states of another block", other_states, &["states", "wrong-bundle"]),
    ("an update has the states of the one before", loaded_twice, &["in-flight", "states", "wrong-bundle"]),
    ("states are not stored", not_stored, &["states"]),
    ("states are stored as they were loaded", stale, &["states"]),
    ("states are freed before the wait of their store", freed_early, &["in-flight"]),
    ("states are read before the wait of their load", read_before_wait, &["undefined"]),
    ("states have a place on the device", on_device, &["residents"]),
    ("two states have one place", one_place, &["overlap"]),
];

#[test]
fn broken_copies_of_states_are_found() {
    let [_, file] = both(&recipe(0, "f32", 1), "pp=2,schedule=gpipe", 4);
    for (what, change, wanted) in MUTATIONS {
        let mut broken = program(&file).clone();
        change(&mut broken.classes[0]);
        let found = verify::program::check(&file.model, &broken, None).expect_err(what);
        let names: BTreeSet<&str> = found.iter().map(|violation| violation.name).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), wanted, "{what}: {found:?}");
    }
}

/// Loads of states: the position of each start and of its wait, and what it gives.
fn loads(class: &Class) -> Vec<(usize, usize, Reg)> {
    let start = |(at, instr): (usize, &Instr)| match instr {
        Instr::Start { token, transfer: Transfer::LoadStates { .. }, .. } => Some((at, *token)),
        _ => None,
    };
    let wait = |token: Token| {
        let of = |(at, instr): (usize, &Instr)| match instr {
            Instr::Wait { token: waited, result: Some(reg) } if *waited == token => Some((at, *reg)),
            _ => None,
        };
        class.instrs.iter().enumerate().find_map(of).expect("a wait")
    };
    let starts = class.instrs.iter().enumerate().filter_map(start);
    starts.map(|(at, token)| (at, wait(token).0, wait(token).1)).collect()
}

/// The position of the run that reads a bundle.
fn reader(class: &Class, bundle: Reg) -> usize {
    let reads = |instr: &Instr| matches!(instr, Instr::Run { bundles, .. } if bundles.contains(&bundle));
    class.instrs.iter().position(reads).expect("an update")
}

/// The position of the first store, and of its wait.
fn store(class: &Class) -> (usize, usize) {
    let is_start = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::StoreStates { .. }, .. });
    let at = class.instrs.iter().position(is_start).expect("a store");
    let Instr::Start { token, .. } = class.instrs[at] else { panic!("a start") };
    let is_wait = |instr: &Instr| matches!(instr, Instr::Wait { token: waited, .. } if *waited == token);
    (at, class.instrs.iter().position(is_wait).expect("a wait"))
}

fn bundles(class: &mut Class, run: usize) -> &mut Vec<Reg> {
    let Instr::Run { bundles, .. } = &mut class.instrs[run] else { panic!("a run") };
    bundles
}

fn remove(class: &mut Class, at: usize) -> (Instr, Vec<u64>) {
    (class.instrs.remove(at), class.arena.as_mut().expect("an arena").at.remove(at))
}

fn insert(class: &mut Class, at: usize, (instr, stated): (Instr, Vec<u64>)) {
    class.instrs.insert(at, instr);
    class.arena.as_mut().expect("an arena").at.insert(at, stated);
}

fn without_states(class: &mut Class) {
    let (.., states) = loads(class)[0];
    let run = reader(class, states);
    bundles(class, run).retain(|reg| *reg != states);
}

fn other_states(class: &mut Class) {
    let all = loads(class);
    let ((.., first), (_, waited, second)) = (all[1], all[2]);
    let wait = remove(class, waited);
    let run = reader(class, first);
    insert(class, run, wait);
    let at = bundles(class, run + 1).iter().position(|reg| *reg == first).expect("its states");
    bundles(class, run + 1)[at] = second;
}

fn loaded_twice(class: &mut Class) {
    let all = loads(class);
    let ((first, ..), (second, ..)) = (all[0], all[1]);
    let Instr::Start { transfer, .. } = class.instrs[first].clone() else { panic!("a start") };
    let Instr::Start { transfer: other, .. } = &mut class.instrs[second] else { panic!("a start") };
    *other = transfer;
}

fn not_stored(class: &mut Class) {
    let (at, waited) = store(class);
    remove(class, waited);
    remove(class, at);
}

fn stale(class: &mut Class) {
    let (.., states) = loads(class)[0];
    let (at, waited) = store(class);
    let Instr::Start { operand, .. } = &mut class.instrs[at] else { panic!("a start") };
    *operand = Some(states);
    // It is freed after the store, not before.
    let free = class.instrs.iter().position(|instr| matches!(instr, Instr::Free(regs) if regs.contains(&states)));
    if let Instr::Free(regs) = &mut class.instrs[free.expect("its free")] {
        regs.retain(|reg| *reg != states);
    }
    insert(class, waited + 1, (Instr::Free(vec![states]), Vec::new()));
}

fn freed_early(class: &mut Class) {
    let (at, waited) = store(class);
    assert!(matches!(class.instrs[waited + 1], Instr::Free(_)));
    let free = remove(class, waited + 1);
    insert(class, at + 1, free);
}

fn read_before_wait(class: &mut Class) {
    let (_, waited, states) = loads(class)[0];
    let run = reader(class, states);
    let wait = remove(class, waited);
    insert(class, run, wait);
}

fn on_device(class: &mut Class) {
    let arena = class.arena.as_mut().expect("an arena");
    arena.residents.iter_mut().find(|it| it.host).expect("a state").host = false;
    arena.bytes += 1 << 20;
    let end = arena.bytes - (1 << 20);
    arena.residents.iter_mut().filter(|it| matches!(it.role, Role::State(_)) && !it.host).for_each(|it| it.at = end);
}

fn one_place(class: &mut Class) {
    let residents = &mut class.arena.as_mut().expect("an arena").residents;
    let at = residents.iter().find(|it| it.host).expect("a state").at;
    residents.iter_mut().filter(|it| it.host).take(2).for_each(|it| it.at = at);
}

/// Runs a test that is ignored in a process of its own, which finds the stand-in in place of CUDA.
#[cfg(target_os = "linux")]
#[test]
fn states_of_a_gpu_on_the_host_change_nothing() {
    crate::process::passes_on_stand_in("offload_optimizer::on_a_gpu", "offload_optimizer");
}

/// A single rank repeats its third step as a graph.
#[test]
#[ignore = "the test above runs it where CUDA is"]
fn on_a_gpu() {
    for mesh in ["schedule=gpipe", "pp=2,dp=2,zero=1"] {
        let recipe = Recipe { config: on_gpu::llama(), ..recipe(0, "bf16", 4) };
        let files = both(&recipe, mesh, 8);
        let gpu = |file: &File| SharedGpu::open(0, file.model.mesh.devices() as usize).unwrap();
        let [here, away] = files.each_ref().map(|file| trained(gpu(file), file, &recipe));
        assert_eq!(away, here, "{mesh}");
    }
}
