//! Saved activations that go to host memory until their backward: the same numbers, smaller arenas, and programs with one copy broken.

use crate::meshes::training::{Recipe, SEED, compiled, inputs, models};
use crate::on_gpu;
use cost::PROGRAM;
use ir::graph::Call;
use ir::ids::{Reg, Token};
use ir::optimizer::Optimizer;
use ir::program::{Class, Instr, Program, Transfer};
use ir::text::{File, parse, print};
use ir::verify;
use meshwright::runtime::exec::{Executor, Options, Platform, SharedGpu, StepInput, StepOutput, Threads};
use scheduler::schedules::SCHEDULES;
use std::collections::BTreeSet;

/// Layouts with sharded, recomputed and sliced activations, and with stages on two ranks.
const MESHES: [&str; 5] = [
    "dp=2,zero=3,schedule=gpipe",
    "tp=2,sp=true",
    "pp=2,recompute=selective:mlp",
    "dp=2,pp=2,recompute=full:1,zero=2,schedule=zb-h1",
    "cp=2,pp=2,schedule=interleaved-1f1b",
];

/// A model of a family and how it is trained.
fn recipe(family: usize, steps: u64) -> Recipe {
    let config = models()[family].clone();
    Recipe { config, optimizer: Optimizer::default(), lr: 1e-3, steps, precision: "f32" }
}

fn program(file: &File) -> &Program {
    file.program.as_ref().expect("a program")
}

/// Reports of a program on some steps; what is freed gets poison.
fn run<P: Platform>(platform: P, file: &File, program: &Program, steps: &[StepInput]) -> Vec<StepOutput> {
    let options = Options { seed: SEED, poison: true, ..Options::default() };
    let mut executor = Executor::load_on(platform, &file.model, program, &options).expect("it loads");
    steps.iter().map(|step| executor.step(step.clone()).expect("it runs")).collect()
}

fn threads(file: &File) -> Threads {
    Threads::new(file.model.mesh.devices() as usize, 1, None)
}

/// Compiles with and without offload, compares two steps to the bit, and returns both files.
fn same_numbers(family: usize, mesh: &str) -> [File; 2] {
    let recipe = recipe(family, 2);
    let files = [mesh.to_string(), format!("{mesh},offload=all")]
        .map(|mesh| compiled(&recipe, mesh.trim_start_matches(','), 4));
    let [on_device, on_host] = &files;
    let steps = inputs(&on_device.model, &recipe, mesh);
    let [want, got] = [on_device, on_host].map(|file| run(threads(file), file, program(file), &steps));
    assert_eq!(got, want, "{mesh}");
    assert!(want.iter().all(|step| step.loss.is_some_and(f32::is_finite)), "{mesh}: {want:?}");
    files
}

fn copies(class: &Class, of: &Transfer) -> usize {
    class.instrs.iter().filter(|instr| matches!(instr, Instr::Start { transfer, .. } if transfer == of)).count()
}

#[test]
fn every_schedule_gives_the_same_numbers() {
    for kind in SCHEDULES {
        let files = same_numbers(0, &format!("pp=2,schedule={}", kind.name));
        let classes = &program(&files[1]).classes;
        assert!(classes.iter().any(|class| copies(class, &Transfer::Offload) > 0), "{} offloads", kind.name);
    }
}

#[test]
fn every_layout_gives_the_same_numbers() {
    for family in 0..2 {
        MESHES.iter().for_each(|mesh| drop(same_numbers(family, mesh)));
    }
}

/// The bundles of a class in host memory at once, at most, in bytes.
fn most_on_host(file: &File, class: &Class) -> u64 {
    let (mut held, mut now, mut most) = (std::collections::HashMap::new(), 0, 0);
    let bytes = |name: &str| {
        let block = name.split('.').next().expect("a name");
        let body = program(file).bodies.values().find(|body| body.name == format!("{block}.F")).expect("its forward");
        body.saved_layout(body.frame.as_ref().expect("a frame"), &file.model.mesh).bytes
    };
    for instr in &class.instrs {
        match instr {
            Instr::Start { transfer: Transfer::Offload, operand: Some(reg), .. } => {
                now += bytes(&class.regs[*reg].name);
                held.insert(format!("{}.host", class.regs[*reg].name), bytes(&class.regs[*reg].name));
                most = most.max(now);
            }
            Instr::Free(regs) => {
                now -= regs.iter().filter_map(|&reg| held.remove(&class.regs[reg].name)).sum::<u64>();
            }
            _ => {}
        }
    }
    most
}

/// With many micro-batches in flight the saved activations of a few blocks are left on the device; the host has the others.
#[test]
fn arenas_are_smaller_by_what_the_host_holds() {
    for mesh in ["schedule=gpipe", "pp=2,schedule=gpipe", "pp=4,schedule=1f1b", ""] {
        let [on_device, on_host] = same_numbers(0, mesh);
        let classes = program(&on_device).classes.iter().zip(&program(&on_host).classes);
        for (without, with) in classes {
            let (Some(before), Some(after)) = (&without.arena, &with.arena) else { panic!("no arenas") };
            let (out, back) = (copies(with, &Transfer::Offload), copies(with, &Transfer::Load));
            assert_eq!(out, back, "{mesh}: all that leaves comes back");
            assert_eq!(before.host, 0);
            assert_eq!(after.host, most_on_host(&on_host, with), "{mesh}: the host has no gaps");
            assert_eq!(out > 0, after.host > 0);
            assert!(after.bytes <= before.bytes, "{mesh}: {} > {}", after.bytes, before.bytes);
        }
        let arena = |file: &File| program(file).classes[0].arena.as_ref().map(|arena| arena.bytes);
        assert!(arena(&on_host) < arena(&on_device), "{mesh}: the first rank needs less");
    }
    // Of a forward that its own backward follows at once, what the last two blocks save stays.
    let [_, on_host] = same_numbers(0, "");
    let class = &program(&on_host).classes[0];
    let runs = class.instrs.iter().filter(|instr| matches!(instr, Instr::Run { keep: Some(_), .. })).count();
    let microbatches = program(&on_host).microbatches as usize;
    assert_eq!(copies(class, &Transfer::Offload), runs - 2 * microbatches);
}

/// With `all:N` the first N layers of each stage leave, and the arenas of all ranks shrink with each of them.
#[test]
fn the_first_layers_of_each_stage_are_offloaded() {
    let recipe = recipe(0, 2);
    let mesh = "pp=2,schedule=gpipe,recompute=full:1";
    let files =
        ["none", "all:1", "all:2", "all"].map(|offload| compiled(&recipe, &format!("{mesh},offload={offload}"), 4));
    let steps = inputs(&files[0].model, &recipe, mesh);
    let want = run(threads(&files[0]), &files[0], program(&files[0]), &steps);
    let mut before = u64::MAX;
    for (layers, file) in files.iter().enumerate() {
        assert_eq!(run(threads(file), file, program(file), &steps), want, "{layers} layers");
        let marked = |calls: &mut dyn Iterator<Item = &Call>| calls.filter(|call| call.offload).count();
        let is_layer = |call: &&Call| file.model.blocks[call.block].name.starts_with("layer");
        let ends = marked(&mut file.model.calls.iter().filter(|call| !is_layer(call)));
        assert_eq!(ends > 0, layers == 3, "the ends of the model leave with all layers alone");
        for stage in &file.staged.as_ref().expect("stages").stages {
            let parts = stage.parts.iter().filter(|part| is_layer(&&file.model.calls[part.call]));
            let mut of_stage =
                parts.flat_map(|part| part.instances.clone().map(|_| file.model.calls[part.call].offload));
            assert!((0..2).all(|layer| of_stage.next() == Some(layer < layers)), "{layers} layers");
        }
        let classes = program(file).classes.iter();
        let bytes = classes.filter_map(|class| class.arena.as_ref().map(|arena| arena.bytes)).sum::<u64>();
        assert!(bytes < before, "{layers} layers: {bytes}, {before}");
        before = bytes;
    }
}

#[test]
fn the_text_of_a_program_with_copies_comes_back() {
    let file = compiled(&recipe(0, 1), "pp=2,schedule=gpipe,offload=all", 4);
    let text = print(&file);
    for part in [") offload\n", " = start offload(%layer.0.F:0) at ", " = start load(%layer.0.F:0.host) at ", " host "]
    {
        assert!(text.contains(part), "{part}");
    }
    let parsed = parse(&text).unwrap_or_else(|why| panic!("{}", why.render("the program", &text)));
    assert_eq!(print(&parsed), text);
    verify::program::check(&parsed.model, program(&parsed), None).expect("it is right");
}

#[test]
fn copies_have_lines_of_their_own_in_traces() {
    let recipe = recipe(0, 1);
    let file = compiled(&recipe, "pp=2,schedule=gpipe,offload=all", 4);
    let predicted = simulator::step(&file.model, program(&file), &PROGRAM).expect("it runs");
    let options = Options { seed: SEED, record: true, ..Options::default() };
    let mut executor = Executor::load_on(threads(&file), &file.model, program(&file), &options).expect("it loads");
    executor.set_recording(true);
    executor.step(inputs(&file.model, &recipe, "")[0].clone()).expect("it runs");
    let measured = executor.trace(&file.model, program(&file));
    for trace in [predicted, measured] {
        for (line, transfer) in [("to host memory", Transfer::Offload), ("from host memory", Transfer::Load)] {
            let events: usize =
                trace.tracks.iter().filter(|track| track.stream.label() == line).map(|track| track.events.len()).sum();
            let wanted: usize = program(&file).classes.iter().map(|class| copies(class, &transfer)).sum();
            assert_eq!(events, wanted, "{line}");
        }
    }
}

/// A change of the first class of a program that offloads, and the invariants that it breaks.
type Mutation = (&'static str, fn(&mut Class), &'static [&'static str]);

const MUTATIONS: [Mutation; 8] = [
    ("the backward reads the bundle of host memory", read_on_host, &["leak", "offload"]),
    ("a bundle is loaded twice", load_twice, &["leak", "offload"]),
    ("a bundle is never loaded", never_loaded, &["offload", "undefined"]),
    ("a bundle is read before the wait of its load", read_before_wait, &["in-flight", "undefined"]),
    ("a bundle is freed before the wait of its offload", free_before_wait, &["in-flight"]),
    ("two bundles have one place in host memory", one_place, &["overlap"]),
    ("host memory is too small", small_host, &["arena"]),
    ("a load has the place of the parameters", load_on_parameters, &["overlap"]),
];

#[test]
fn broken_copies_are_found() {
    let file = compiled(&recipe(0, 1), "pp=2,schedule=gpipe,offload=all", 4);
    for (what, change, wanted) in MUTATIONS {
        let mut broken = program(&file).clone();
        change(&mut broken.classes[0]);
        let found = verify::program::check(&file.model, &broken, None).expect_err(what);
        let names: BTreeSet<&str> = found.iter().map(|violation| violation.name).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), wanted, "{what}: {found:?}");
    }
}

/// The starts of copies: position, token and bundle.
fn starts(class: &Class, of: &Transfer) -> Vec<(usize, Token, Reg)> {
    let start = |(at, instr): (usize, &Instr)| match instr {
        Instr::Start { token, transfer, operand: Some(reg) } if transfer == of => Some((at, *token, *reg)),
        _ => None,
    };
    class.instrs.iter().enumerate().filter_map(start).collect()
}

/// The position and the result of the wait for a token.
fn wait(class: &Class, token: Token) -> (usize, Reg) {
    let of = |(at, instr): (usize, &Instr)| match instr {
        Instr::Wait { token: waited, result: Some(reg) } if *waited == token => Some((at, *reg)),
        _ => None,
    };
    class.instrs.iter().enumerate().find_map(of).expect("a wait")
}

fn places(class: &mut Class, at: usize) -> &mut Vec<u64> {
    &mut class.arena.as_mut().expect("an arena").at[at]
}

fn insert(class: &mut Class, at: usize, instr: Instr, stated: Vec<u64>) {
    class.instrs.insert(at, instr);
    class.arena.as_mut().expect("an arena").at.insert(at, stated);
}

fn remove(class: &mut Class, at: usize) -> (Instr, Vec<u64>) {
    (class.instrs.remove(at), class.arena.as_mut().expect("an arena").at.remove(at))
}

fn read_on_host(class: &mut Class) {
    let (_, token, host) = starts(class, &Transfer::Load)[0];
    let (_, loaded) = wait(class, token);
    for instr in &mut class.instrs {
        if let Instr::Run { bundles, .. } = instr {
            bundles.iter_mut().filter(|reg| **reg == loaded).for_each(|reg| *reg = host);
        }
        if let Instr::Free(regs) = instr {
            match regs.contains(&host) {
                true => regs.retain(|reg| *reg != host),
                false => regs.iter_mut().filter(|reg| **reg == loaded).for_each(|reg| *reg = host),
            }
        }
    }
}

fn load_twice(class: &mut Class) {
    let (at, token, host) = starts(class, &Transfer::Load)[0];
    let (waited, loaded) = wait(class, token);
    let (place, data) = (places(class, at)[0], class.regs[loaded].clone());
    let (again, other) = (class.regs.push(data), Token::from_u32(1000));
    insert(class, waited + 1, Instr::Wait { token: other, result: Some(again) }, Vec::new());
    insert(
        class,
        waited + 1,
        Instr::Start { token: other, transfer: Transfer::Load, operand: Some(host) },
        vec![place],
    );
}

fn never_loaded(class: &mut Class) {
    let (at, token, _) = starts(class, &Transfer::Load)[0];
    let (waited, _) = wait(class, token);
    remove(class, waited);
    remove(class, at);
}

fn read_before_wait(class: &mut Class) {
    let (_, token, _) = starts(class, &Transfer::Load)[0];
    let (at, loaded) = wait(class, token);
    let reads = |instr: &Instr| matches!(instr, Instr::Run { bundles, .. } if bundles.contains(&loaded));
    let run = class.instrs.iter().position(reads).expect("a backward");
    let (instr, stated) = remove(class, at);
    insert(class, run, instr, stated);
}

fn free_before_wait(class: &mut Class) {
    let (at, token, bundle) = starts(class, &Transfer::Offload)[0];
    let (waited, _) = wait(class, token);
    assert!(matches!(&class.instrs[waited + 1], Instr::Free(regs) if regs.contains(&bundle)));
    let (instr, stated) = remove(class, waited + 1);
    insert(class, at + 1, instr, stated);
}

fn one_place(class: &mut Class) {
    let offloads = starts(class, &Transfer::Offload);
    offloads[..2].iter().for_each(|(at, ..)| places(class, *at)[0] = 0);
}

fn small_host(class: &mut Class) {
    class.arena.as_mut().expect("an arena").host -= 64;
}

fn load_on_parameters(class: &mut Class) {
    let (at, ..) = starts(class, &Transfer::Load)[0];
    places(class, at)[0] = 0;
}

/// Runs a test that is ignored in a process of its own, which finds the stand-in in place of CUDA.
#[cfg(target_os = "linux")]
#[test]
fn copies_on_a_gpu_change_nothing() {
    crate::process::passes_on_stand_in("offload::on_a_gpu", "offload");
}

/// A single rank repeats its third step as a graph.
#[test]
#[ignore = "the test above runs it where CUDA is"]
fn on_a_gpu() {
    let recipe = Recipe { config: on_gpu::llama(), ..recipe(0, 3) };
    for mesh in ["schedule=gpipe", "pp=2,schedule=zb-h1"] {
        let files = ["", ",offload=all"].map(|offload| compiled(&recipe, &format!("{mesh}{offload}"), 8));
        let steps = inputs(&files[0].model, &recipe, mesh);
        let gpu = |file: &File| SharedGpu::open(0, file.model.mesh.devices() as usize).unwrap();
        let [want, got] = files.each_ref().map(|file| run(gpu(file), file, program(file), &steps));
        assert_eq!(got, want, "{mesh}");
    }
}
